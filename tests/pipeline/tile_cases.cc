#include "tests/pipeline/tile_cases.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <sstream>
#include <vector>

#include "pipeline/ops.h"
#include "tests/pipeline/random_samples.h"
#include "tests/pipeline/random_tiling.h"

namespace tilery {
namespace {

using Bytes = std::vector<std::byte>;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

size_t SizeOf(cuda::ModelType type) { return type == cuda::ModelType::kF32 ? 4 : 2; }

// One value of the model's tensors, and what is left of it there.
float ToModel(float v, cuda::ModelType type, std::byte* to) {
  if (type == cuda::ModelType::kF32) {
    std::memcpy(to, &v, 4);
    return v;
  }
  const auto bits = std::bit_cast<uint32_t>(v);
  const auto rounded = static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  const uint16_t half = type == cuda::ModelType::kF16 ? FloatToHalf(v) : rounded;
  std::memcpy(to, &half, 2);
  if (type == cuda::ModelType::kF16) return HalfToFloat(half);
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

// [c, voxels] -> a slot.
void ToSlot(const std::vector<float>& planar, int64_t channels, const TileCase& c,
            std::byte* slot) {
  const int64_t voxels = static_cast<int64_t>(planar.size()) / channels;
  for (int64_t k = 0; k < channels; ++k) {
    for (int64_t v = 0; v < voxels; ++v) {
      const int64_t at = c.layout == cuda::ModelLayout::kPlanar ? k * voxels + v : v * channels + k;
      ToModel(planar[k * voxels + v], c.type, slot + at * SizeOf(c.type));
    }
  }
}

template <typename T>
T* Put(TileBackend& backend, const std::vector<T>& values) {
  return static_cast<T*>(backend.Copy(values.data(), values.size() * sizeof(T)));
}

Bytes Get(TileBackend& backend, const void* from, size_t size) {
  Bytes bytes(size);
  backend.Read(from, bytes.data(), size);
  return bytes;
}

std::string Describe(const TileCase& c) {
  std::ostringstream text;
  text << "seed " << c.seed << ": item " << ShapeToString(c.shape, 3) << ", tile "
       << ShapeToString(c.tiling.tile, 3) << ", overlap " << ShapeToString(c.tiling.overlap, 3)
       << ", trim " << ShapeToString(c.tiling.trim, 3) << ", window "
       << WindowKindName(c.tiling.window) << ", pad " << PadModeName(c.tiling.pad)
       << ", model type " << static_cast<int>(c.type) << ", layout " << static_cast<int>(c.layout)
       << ", channels " << c.transfer.model_in << " to " << c.transfer.model_out << " to "
       << c.transfer.accumulators << " to " << c.transfer.out_channels << ", "
       << DTypeName(c.transfer.in_dtype) << " to " << DTypeName(c.transfer.out_dtype) << ", posts";
  for (const PostOp& op : c.transfer.post) text << " " << static_cast<int>(op.kind);
  return text.str() + ": ";
}

// Runs of consecutive tiles that together are all of the unit's.
std::vector<cuda::TileRun> RandomRuns(RandomTiling& random, int64_t tiles, int64_t largest) {
  std::vector<cuda::TileRun> runs;
  for (int64_t first = 0; first < tiles;) {
    const int64_t count = random.Pick(1, std::min(largest, tiles - first));
    runs.push_back({first, static_cast<int32_t>(count), static_cast<int32_t>(random.Pick(0, 2)),
                    static_cast<int32_t>(random.Pick(1, 2))});
    first += count;
  }
  return runs;
}

int64_t SlotsOf(const cuda::TileRun& run) {
  return run.slot + int64_t{run.count - 1} * run.step + 2;  // one more than is used
}

Index TileOf(const Box& tiles, int64_t number) {
  const Index n = tiles.shape();
  return {tiles.begin[0] + number / n[2] / n[1], tiles.begin[1] + number / n[2] % n[1],
          tiles.begin[2] + number % n[2]};
}

}  // namespace

std::string CheckGathering(TileBackend& backend, const TileCase& c, int64_t units) {
  RandomTiling random(c.seed);
  const ItemGeometry geometry(c.shape, c.tiling, c.sizing);
  const Transfer& t = c.transfer;
  const InputTables tables(t);
  constexpr int64_t kStored = 3;  // channels
  for (; units > 0; --units) {
    const int64_t unit = random.Pick(0, geometry.units() - 1);
    const Box box = geometry.unit_input(unit), tiles = geometry.unit_tiles(unit);
    const bool holes = IsFloat(t.in_dtype) && random.Pick(0, 1) == 1;
    const Bytes bytes = testing::RandomSamples(t.in_dtype, box.voxels() * kStored, holes, c.seed);
    const ConstView view = DenseView(bytes.data(), t.in_dtype, kStored, box.shape(),
                                     c.interleaved ? Layout::kInterleaved : Layout::kPlanar);
    const GatherSource source{view, box, &geometry.grid(), &tables, holes};

    cuda::GatherTask task{};
    cuda::TileStarts starts{};
    task.samples = Put(backend, bytes);
    task.dtype = t.in_dtype;
    for (int a = 0; a < 4; ++a) task.stride[a] = view.stride[a];
    for (int a = 0; a < 3; ++a) {
      task.origin[a] = box.begin[a];
      task.item[a] = c.shape[a];
      task.tile[a] = c.tiling.tile[a];
      const auto& all = geometry.grid().starts[a];
      starts.begin[a] = Put(
          backend, std::vector<int64_t>(all.begin() + tiles.begin[a], all.begin() + tiles.end[a]));
      starts.count[a] = static_cast<int32_t>(tiles.extent(a));
    }
    task.pad = static_cast<cuda::Pad>(c.tiling.pad);
    task.replace_nonfinite = holes;
    task.channels = t.model_in;
    for (int32_t k = 0; k < t.model_in; ++k) {
      const InputTables::Channel& channel = tables.model(k);
      const float* values = c.tabled && channel.values ? Put(backend, *channel.values) : nullptr;
      task.channel[k] = {t.passes[0].in[k], channel.terms, values, channel.zero, channel.filling};
    }
    task.type = c.type;
    task.layout = c.layout;
    const int64_t slot_values = t.model_in * Product(c.tiling.tile);
    const size_t slot_bytes = slot_values * SizeOf(c.type);
    for (const cuda::TileRun& run : RandomRuns(random, tiles.voxels(), c.largest_batch)) {
      Bytes want(SlotsOf(run) * slot_bytes, std::byte{0xcd});
      task.out = Put(backend, want);
      for (int64_t k = 0; k < run.count; ++k) {
        std::vector<float> tile(slot_values);
        GatherTile(source, TileOf(tiles, run.first + k), t.passes[0], tile.data());
        ToSlot(tile, t.model_in, c, want.data() + (run.slot + k * run.step) * slot_bytes);
      }
      backend.Gather(task, starts, run);
      const Bytes got = Get(backend, task.out, want.size());
      const auto bad = std::mismatch(got.begin(), got.end(), want.begin()).first;
      if (bad == got.end()) continue;
      const auto at = static_cast<size_t>(bad - got.begin());
      return Describe(c) + "gathering tiles " + std::to_string(run.first) + "+" +
             std::to_string(run.count) + " of unit " + std::to_string(unit) + " differs in slot " +
             std::to_string(at / slot_bytes) + " (first " + std::to_string(run.slot) + ", step " +
             std::to_string(run.step) + ") at value " +
             std::to_string(at % slot_bytes / SizeOf(c.type)) + " of " +
             std::to_string(slot_values);
    }
  }
  return "";
}

std::string CheckBlending(TileBackend& backend, const TileCase& c, int64_t units) {
  RandomTiling random(c.seed);
  const ItemGeometry geometry(c.shape, c.tiling, c.sizing);
  const TileGrid& grid = geometry.grid();
  const Transfer& t = c.transfer;
  const Pass& pass = t.passes[0];
  for (; units > 0; --units) {
    const int64_t unit = random.Pick(0, geometry.units() - 1);
    const Box tiles = geometry.unit_tiles(unit), cover = geometry.unit_cover(unit);
    const Box interior = geometry.interior(unit);

    cuda::BlendTilesTask task{};
    cuda::TileCovers covers{};
    std::vector<UnitAxis> axes;
    for (int a = 0; a < 3; ++a) axes.push_back(MakeUnitAxis(geometry, unit, a));
    for (int a = 0; a < 3; ++a) {
      task.axis[a] = {Put(backend, axes[a].first), Put(backend, axes[a].tiles),
                      Put(backend, axes[a].begin), Put(backend, axes[a].weights)};
      task.tile_shape[a] = grid.output_tile()[a];
      covers.begin[a] = axes[a].cover_begin.data();
      covers.end[a] = axes[a].cover_end.data();
      covers.count[a] = task.tile_count[a] = static_cast<int32_t>(tiles.extent(a));
      task.cover_shape[a] = cover.extent(a);
      task.interior_begin[a] = interior.empty() ? 0 : interior.begin[a] - cover.begin[a];
      task.interior_shape[a] = interior.empty() ? 0 : interior.extent(a);
    }
    task.type = c.type;
    task.layout = c.layout;
    task.channels = t.model_out;
    task.mean = pass.reduce == Pass::Reduce::kMean;
    task.out_count = pass.out_count;
    task.keep = c.keep;
    std::copy(pass.out.begin(), pass.out.end(), task.out);
    const std::vector<float> poison(t.accumulators * cover.voxels(), kNan);
    task.sums = Put(backend, poison);
    cuda::FinalizeTask& finalize = task.finalize;  // of no matter where sums are kept
    (pass.is_alpha ? finalize.alphas : finalize.colours) = t.accumulators;
    std::iota(finalize.accumulator, finalize.accumulator + t.accumulators, 0);
    for (const PostOp& op : t.post) {
      const bool labelled = op.kind == PostOp::Kind::kLabels;
      finalize.post[finalize.posts++] = {static_cast<cuda::PostKind>(op.kind),
                                         labelled || op.values.empty() ? 0 : op.values[0],
                                         labelled || op.values.size() < 2 ? 0 : op.values[1]};
      if (!labelled) continue;
      finalize.labels = Put(backend, op.values);
      finalize.label_count = static_cast<int32_t>(op.values.size());
    }
    finalize.range_lo = static_cast<float>(t.range_lo);
    finalize.range_hi = static_cast<float>(t.range_hi);
    if (IsInteger(t.out_dtype)) {
      finalize.colour_terms = {t.range_lo, t.range_hi - t.range_lo, HighestOf(t.out_dtype),
                               LowestOf(t.out_dtype), !t.labels};
      finalize.alpha_terms = finalize.colour_terms;
      finalize.alpha_terms.scaled = true;
    }
    finalize.dtype = t.out_dtype;
    finalize.out_channels = t.out_channels;
    finalize.overflow = Put(backend, std::vector<int32_t>{0});
    // Output begins anywhere within a word of 16 bytes, and nothing around it may change.
    const size_t voxel_bytes = t.out_channels * DTypeSize(t.out_dtype);
    const size_t before = 16 + DTypeSize(t.out_dtype) * random.Pick(0, 3);
    Bytes want_out(before + interior.voxels() * voxel_bytes + 16, std::byte{0xcd});
    auto* out = Put(backend, want_out);
    finalize.out = out + before;

    std::vector<float> sums(poison.size(), 0.0f);
    const Sums want{sums.data(), cover, t.accumulators};
    const int64_t plane = Product(grid.output_tile());
    const size_t slot_bytes = t.model_out * plane * SizeOf(c.type);
    std::mt19937 values(c.seed);
    std::normal_distribution<float> normal(static_cast<float>((t.range_lo + t.range_hi) / 2),
                                           static_cast<float>((t.range_hi - t.range_lo) / 2));
    for (const cuda::TileRun& run : RandomRuns(random, tiles.voxels(), c.largest_batch)) {
      Bytes slots(SlotsOf(run) * slot_bytes, std::byte{0xff});  // not a number
      for (int64_t k = 0; k < run.count; ++k) {
        std::vector<float> output(t.model_out * plane);
        std::byte* slot = slots.data() + (run.slot + k * run.step) * slot_bytes;
        for (float& v : output) v = ToModel(normal(values), c.type, slot);
        ToSlot(output, t.model_out, c, slot);
        const Index tile = TileOf(tiles, run.first + k);
        BlendTile(output.data(), t.model_out, grid.output_box(tile), geometry.windows(0)[tile[0]],
                  geometry.windows(1)[tile[1]], geometry.windows(2)[tile[2]], pass, want);
      }
      task.output = Put(backend, slots);
      task.region = cuda::CoverOf(covers, run);
      backend.Blend(task, run);
    }

    const auto where = [&](const std::string& what, const Index& v) {
      return Describe(c) + what + " of unit " + std::to_string(unit) + " at output voxel " +
             ToString(Box{v, {v[0] + 1, v[1] + 1, v[2] + 1}}) + ", cover " + ToString(cover) +
             ", interior " + ToString(interior);
    };
    if (!interior.empty() && !c.keep) {
      Finalizer(t).FromSums(want, interior,
                            DenseView(want_out.data() + before, t.out_dtype, t.out_channels,
                                      interior.shape(), Layout::kInterleaved));
    }
    const Bytes got_out = Get(backend, out, want_out.size());
    for (size_t i = 0; i < got_out.size(); ++i) {
      if (got_out[i] == want_out[i]) continue;
      if (i < before || i >= got_out.size() - 16) return Describe(c) + "wrote outside the output";
      const auto v = static_cast<int64_t>((i - before) / voxel_bytes);
      const Index n = interior.shape();
      return where("byte " + std::to_string((i - before) % voxel_bytes) + " of the output",
                   {interior.begin[0] + v / n[2] / n[1], interior.begin[1] + v / n[2] % n[1],
                    interior.begin[2] + v % n[2]});
    }
    std::vector<float> got(poison.size());
    backend.Read(task.sums, got.data(), got.size() * sizeof(float));
    for (int64_t i = 0; i < static_cast<int64_t>(got.size()); ++i) {
      const int64_t v = i % cover.voxels();
      const Index n = cover.shape(), at{v / n[2] / n[1], v / n[2] % n[1], v % n[2]};
      const Index voxel{cover.begin[0] + at[0], cover.begin[1] + at[1], cover.begin[2] + at[2]};
      const Box one{voxel, {voxel[0] + 1, voxel[1] + 1, voxel[2] + 1}};
      if (c.keep || !interior.contains(one)) {
        if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(sums[i])) {
          return where("the sum " + std::to_string(got[i]) + " instead of " +
                           std::to_string(sums[i]) + ", accumulator " +
                           std::to_string(i / cover.voxels()),
                       voxel);
        }
      } else if (axes[0].tiles[at[0]] * axes[1].tiles[at[1]] * axes[2].tiles[at[2]] == 1 &&
                 !std::isnan(got[i])) {
        return where("sums were touched though one tile alone covers them:", voxel);
      }
    }
    int32_t overflow;
    backend.Read(finalize.overflow, &overflow, sizeof overflow);
    if (overflow != 0) return Describe(c) + "reports values beyond f16";
  }
  return "";
}

}  // namespace tilery
