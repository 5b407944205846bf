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

Bytes RandomSamples(DType dtype, int64_t count, bool holes, uint32_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(-2, 2);
  Bytes bytes(count * DTypeSize(dtype));
  for (int64_t i = 0; i < count; ++i) {
    std::byte* at = bytes.data() + i * DTypeSize(dtype);
    const double v = holes && i % 29 == 3 ? kNan : uniform(random);
    const auto f = static_cast<float>(v);
    const uint16_t half = FloatToHalf(f);
    const uint64_t bits = random();
    if (dtype == DType::kF64) std::memcpy(at, &v, 8);
    if (dtype == DType::kF32) std::memcpy(at, &f, 4);
    if (dtype == DType::kF16) std::memcpy(at, &half, 2);
    if (IsInteger(dtype)) std::memcpy(at, &bits, DTypeSize(dtype));
  }
  return bytes;
}

std::vector<PostOp> RandomPost(RandomTiling& random, int32_t colours, bool* labels) {
  using Kind = PostOp::Kind;
  std::vector<PostOp> post;
  *labels = false;
  for (int64_t left = random.Pick(-2, 3); left > 0 && !*labels; --left) {
    switch (static_cast<Kind>(random.Pick(0, 6))) {
      case Kind::kClamp:
        post.push_back({Kind::kClamp, {-0.5, 0.75}});
        break;
      case Kind::kSigmoid:
        post.push_back({Kind::kSigmoid, {}});
        break;
      case Kind::kSoftmax:
        post.push_back({Kind::kSoftmax, {}});
        break;
      case Kind::kThreshold:
        post.push_back({Kind::kThreshold, {0.25}});
        break;
      case Kind::kScale:
        post.push_back({Kind::kScale, {1.7, -0.3}});
        break;
      case Kind::kArgmax:
        post.push_back({Kind::kArgmax, {}});
        break;
      case Kind::kLabels:
        if (colours == 0) break;
        post.push_back({Kind::kArgmax, {}});
        post.push_back({Kind::kLabels, {3, 70, 100}});
        *labels = true;
        break;
    }
  }
  return post;
}

}  // namespace

UnitAxis MakeUnitAxis(const ItemGeometry& geometry, int64_t unit, int a) {
  const Box tiles = geometry.unit_tiles(unit), cover = geometry.unit_cover(unit);
  const Box interior = geometry.interior(unit);
  const int64_t extent = geometry.grid().output_tile()[a];
  UnitAxis axis;
  axis.first.assign(cover.extent(a), -1);
  axis.tiles.assign(cover.extent(a), 0);
  for (int64_t k = 0; k < tiles.extent(a); ++k) {
    const TileWindow& window = geometry.windows(a)[tiles.begin[a] + k];
    Index tile = tiles.begin;
    tile[a] += k;
    const int64_t begin = geometry.grid().output_box(tile).begin[a];
    axis.begin.push_back(begin - cover.begin[a]);
    axis.cover_begin.push_back(window.begin - cover.begin[a]);
    axis.cover_end.push_back(window.end() - cover.begin[a]);
    axis.weights.resize((k + 1) * extent, kNan);
    for (int64_t x = window.begin; x < window.end(); ++x) {
      int32_t& first = axis.first[x - cover.begin[a]];
      if (first < 0) first = static_cast<int32_t>(k);
      ++axis.tiles[x - cover.begin[a]];
      axis.weights[k * extent + x - begin] = window.weights[x - window.begin];
    }
  }
  // Weights that must not be needed.
  for (int64_t x = interior.begin[a]; x < interior.end[a]; ++x) {
    const int64_t at = x - cover.begin[a];
    if (axis.tiles[at] != 1) continue;
    const int64_t k = axis.first[at];
    axis.weights[k * extent + at - axis.begin[k]] = kNan;
  }
  return axis;
}

TileCase RandomTileCase(uint32_t seed) {
  RandomTiling random(seed * 2654435761u + 1);
  TileCase c;
  c.seed = seed;
  for (;;) {
    const bool flat = random.Pick(0, 1) == 0;
    c.tiling = random.Next(flat ? 1 : 0, flat ? random.Pick(2, 120) : random.Pick(2, 24));
    c.shape = flat ? Index{random.Pick(1, 3), random.Pick(1, 60), random.Pick(1, 300)}
                   : Index{random.Pick(1, 14), random.Pick(1, 20), random.Pick(1, 60)};
    const TileGrid grid(c.shape, c.tiling);
    if (grid.tiles() <= 600 && Product(grid.output_tile()) * grid.tiles() <= 600'000) break;
  }
  c.type = static_cast<cuda::ModelType>(random.Pick(0, 2));
  c.layout = static_cast<cuda::ModelLayout>(random.Pick(0, 1));
  c.tabled = random.Pick(0, 1) == 1;
  c.interleaved = random.Pick(0, 1) == 1;
  c.largest_batch = random.Pick(1, 40);
  c.sizing.tiles = random.Pick(1, 60);
  if (random.Pick(0, 1) == 1) c.sizing.tail_begin = random.Pick(0, 60);

  Transfer& t = c.transfer;
  t.in_dtype = static_cast<DType>(random.Pick(0, 8));
  t.out_dtype = static_cast<DType>(random.Pick(0, 8));
  constexpr double kRanges[][2] = {{0, 1}, {0, 1}, {-1, 1}, {0, 255}, {10, 10.5}};
  const auto range = kRanges[random.Pick(0, 4)];
  t.range_lo = range[0];
  t.range_hi = range[1];
  t.raw_lo = IsInteger(t.in_dtype) ? LowestOf(t.in_dtype) : t.range_lo;
  t.raw_hi = IsInteger(t.in_dtype) ? HighestOf(t.in_dtype) : t.range_hi;
  t.model_in = static_cast<int32_t>(random.Pick(0, 9) == 0 ? 32 : random.Pick(1, 6));
  if (random.Pick(0, 1) == 1) {
    for (int k = 0; k < t.model_in; ++k) {
      t.mean.push_back(0.485 - 0.01 * k);
      t.std.push_back(0.229 + 0.01 * k);
    }
  }
  const int64_t kind = random.Pick(0, 9);
  t.accumulators = static_cast<int32_t>(kind < 7   ? random.Pick(1, 4)
                                        : kind < 9 ? random.Pick(5, 8)
                                                   : random.Pick(9, 32));
  Pass pass;
  for (int k = 0; k < t.model_in; ++k) pass.in.push_back(static_cast<int32_t>(random.Pick(0, 2)));
  pass.out_count = t.accumulators;
  pass.is_alpha = random.Pick(0, 7) == 0;
  if (random.Pick(0, 5) == 0) {
    pass.reduce = Pass::Reduce::kMean;
    t.model_out = static_cast<int32_t>(random.Pick(1, 5));
  } else {
    t.model_out = t.accumulators + static_cast<int32_t>(std::max<int64_t>(random.Pick(-3, 2), 0));
    for (int k = 0; k < t.accumulators; ++k) pass.out.push_back(k);
    if (random.Pick(0, 1) == 1) {
      for (int32_t& k : pass.out) k = static_cast<int32_t>(random.Pick(0, t.model_out - 1));
    }
  }
  t.passes = {pass};
  c.sizing.channels = t.accumulators;
  const int32_t colours = pass.is_alpha ? 0 : t.accumulators;
  t.post = RandomPost(random, colours, &t.labels);
  t.out_channels = t.accumulators;
  for (const PostOp& op : t.post) {
    if (op.kind == PostOp::Kind::kArgmax && colours > 0) t.out_channels = 1;
  }
  return c;
}

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
    const Bytes bytes = RandomSamples(t.in_dtype, box.voxels() * kStored, holes, c.seed);
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
    std::copy(pass.out.begin(), pass.out.end(), task.out);
    const std::vector<float> poison(t.accumulators * cover.voxels(), kNan);
    task.sums = Put(backend, poison);
    cuda::FinalizeTask& finalize = task.finalize;
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
    if (!interior.empty()) {
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
      if (!interior.contains(one)) {
        if (std::bit_cast<uint32_t>(got[i]) != std::bit_cast<uint32_t>(sums[i])) {
          return where("the seam's sum " + std::to_string(got[i]) + " instead of " +
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
