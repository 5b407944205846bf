// The cases themselves; what is done with them is in tile_cases.cc.
#include <algorithm>
#include <limits>
#include <vector>

#include "tests/pipeline/random_tiling.h"
#include "tests/pipeline/tile_cases.h"

namespace tilery {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

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

// More than the kernels have registers for: kept, or finished some at a time.
void GiveManySums(RandomTiling& random, TileCase& c) {
  Transfer& t = c.transfer;
  constexpr int32_t kEven[] = {64, 96, 40};  // whose parts often are whole words
  t.accumulators =
      static_cast<int32_t>(random.Pick(0, 1) == 0 ? random.Pick(33, 70) : kEven[random.Pick(0, 2)]);
  t.out_channels = t.accumulators;
  t.model_out = t.accumulators + static_cast<int32_t>(random.Pick(0, 2));
  Pass& pass = t.passes[0];
  pass.out_count = t.accumulators;
  pass.out.clear();
  const bool in_order = random.Pick(0, 1) == 0;
  for (int k = 0; k < t.accumulators; ++k)
    pass.out.push_back(in_order ? k : static_cast<int32_t>(random.Pick(0, t.model_out - 1)));
  std::erase_if(t.post, [](const PostOp& op) {
    return op.kind == PostOp::Kind::kSoftmax || op.kind == PostOp::Kind::kArgmax ||
           op.kind == PostOp::Kind::kLabels;
  });
  t.labels = false;
  c.sizing.channels = t.accumulators;
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
  c.keep = random.Pick(0, 9) == 0;
  if (pass.reduce != Pass::Reduce::kMean && !pass.is_alpha &&
      random.Pick(0, c.keep ? 3 : 12) == 0) {
    GiveManySums(random, c);
  }
  return c;
}

}  // namespace tilery
