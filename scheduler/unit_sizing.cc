// How large units are, and what they cost in scratch.
#include <algorithm>
#include <numeric>

#include "io/error.h"
#include "scheduler/item_rules.h"
#include "scheduler/planner.h"

namespace tilery {
namespace {

constexpr int64_t kUnitsWanted = 256;
constexpr int64_t kFewestTiles = 16;
constexpr int64_t kMostTiles = 1024;
constexpr int64_t kMostVoxels = int64_t{1} << 22;  // of tiles so small that more of them do no harm
constexpr int64_t kTailShare = 5;                  // the last fifth
constexpr int64_t kMostWindowBytes = int64_t{1} << 29;
constexpr int64_t kWindowBytes = 64;      // of one tile along one axis, beside its weights
constexpr int64_t kBrickBytes = 4096;     // names, boxes and table of a brick file
constexpr int64_t kBlockBytes = 1 << 20;  // a brick's checksummed block, with an entry of 32 bytes

int64_t AxisTiles(int64_t n, const Tiling& tiling, size_t axis) {
  const int64_t tile = tiling.tile[axis];
  const int64_t stride = tile - tiling.overlap[axis];
  const int64_t grain = std::lcm(tiling.scale[axis].den, tiling.multiple[axis]);
  const int64_t padded = PaddedExtent(n, tile, grain);
  return padded <= tile ? 1 : (padded - tile + stride - 1) / stride + 1;
}

// Every unit has its own copies, tables and reports: of tiles with few voxels (a leaf of a sparse
// volume has 512) it takes many to be worth that.
int64_t MostTiles(const Tiling& tiling) {
  return std::max(kMostTiles, kMostVoxels / Product(tiling.tile));
}

// A power of two, so that a job which gains or loses a few inputs keeps the units of all others.
int64_t TilesPerUnit(int64_t tiles_of_job, const Tiling& tiling) {
  const int64_t most = std::min(MostTiles(tiling), tiles_of_job / kUnitsWanted);
  int64_t tiles = kFewestTiles;
  while (tiles * 2 <= most) tiles *= 2;
  return tiles;
}

using Wide = __int128;

std::string Digits(Wide value) {
  std::string digits;
  for (; value > 0 || digits.empty(); value /= 10)
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
  return digits;
}

std::string TooManyUnits(const Item& item, const std::string& units) {
  return Printable(item.input) + ": its " + ShapeToString(item.header.shape, item.header.dims) +
         " voxels make " + units + " units of work, more than the " + std::to_string(kMostUnits) +
         " that one item may have; choose a larger tile, a smaller overlap or more "
         "execution.unit_memory, or cut the input into parts";
}

// Tiles that are run at, at one pass.
int64_t TilesOf(const Item& item, const Tiling& tiling) {
  return item.grid.tiles ? static_cast<int64_t>(item.grid.tiles->size())
                         : GridTiles(item.header.shape, tiling);
}

// Output voxels that the units have sums of, at most.
Wide SumVoxels(const Item& item, const Tiling& tiling) {
  const Wide box = Product(OutputShape(item.header.shape, tiling));
  if (!item.grid.tiles) return box;
  return std::min(box, Wide{TilesOf(item, tiling)} * Product(OutputShape(tiling.tile, tiling)));
}

// Why an item is beyond what can be planned, or "". Headers may promise anything, so this is
// decided before anything is made whose size depends on them.
std::string BeyondPlanning(const Item& item, const ItemParams& params, int64_t unit_memory) {
  const Tiling& tiling = params.tiling;
  const Wide tiles = TilesOf(item, tiling);
  Wide windows = 0;
  for (size_t axis = 0; axis < 3; ++axis) {
    const Wide along = AxisTiles(item.header.shape[axis], tiling, axis);
    const Wide weights = tiling.scale[axis].Ceil(tiling.tile[axis]);
    windows += along * (weights * Wide{sizeof(float)} + kWindowBytes);
  }
  const Transfer& t = params.transfer;
  const Wide voxels = SumVoxels(item, tiling);
  const Wide sums = voxels * t.accumulators * Wide{sizeof(float)};
  const Wide units = std::max(tiles / MostTiles(tiling), sums / std::max<int64_t>(unit_memory, 1));
  if (units > kMostUnits) return TooManyUnits(item, "at least " + Digits(units));
  constexpr Wide kMostBytes = Wide{1} << 60;
  const Wide in = item.grid.tiles ? voxels : Wide{Product(item.header.shape)};
  const Wide samples =
      std::max(voxels * std::max(t.out_channels, t.accumulators), in * item.header.channels);
  if (samples * 8 > kMostBytes) {
    return Printable(item.input) + ": its " + ShapeToString(item.header.shape, item.header.dims) +
           " voxels make " + Digits(samples) + " samples, more than the limit of " +
           Digits(kMostBytes / 8) + "; cut the input into parts";
  }
  if (windows > kMostWindowBytes) {
    return Printable(item.input) + ": the blending windows of its " +
           ShapeToString(item.header.shape, item.header.dims) + " voxels take " + Digits(windows) +
           " bytes, more than the limit of " + std::to_string(kMostWindowBytes) +
           "; choose a smaller overlap, or cut the input into parts";
  }
  return "";
}

void SetCosts(Item& item, const ItemParams& params, const ItemGeometry* geometry) {
  const Transfer& t = params.transfer;
  const auto voxels = static_cast<int64_t>(SumVoxels(item, params.tiling));
  item.output_bytes = voxels * t.out_channels * static_cast<int64_t>(DTypeSize(t.out_dtype));
  item.seam_bytes = geometry != nullptr ? geometry->seam_bytes() : 0;
  item.scratch_bytes = 0;
  if (item.infer_units <= 1) return;
  const int64_t samples = item.output_bytes + item.seam_bytes;
  item.scratch_bytes = samples + samples / kBlockBytes * 32 + item.infer_units * kBrickBytes;
  if (item.staged) {
    item.scratch_bytes += Product(item.header.shape) * item.header.channels *
                          static_cast<int64_t>(DTypeSize(item.header.dtype));
  }
}

}  // namespace

int64_t GridTiles(const Index& shape, const Tiling& tiling) {
  int64_t tiles = 1;
  for (size_t axis = 0; axis < 3; ++axis) tiles *= AxisTiles(shape[axis], tiling, axis);
  return tiles;
}

namespace {

// False if an item turned out to have too many units and is refused now.
bool TrySizes(Plan& plan, int64_t unit_memory) {
  int64_t total = 0;
  for (Item& item : plan.items) {
    if (!item.refused.empty()) continue;
    const ItemParams& params = plan.params[static_cast<size_t>(item.params)];
    item.refused = BeyondPlanning(item, params, unit_memory);
    if (item.refused.empty()) total += TilesOf(item, params.tiling);
  }
  plan.units = 0;
  plan.tiles = 0;
  for (Item& item : plan.items) {
    item.first_unit = plan.units;
    item.tiles = item.scratch_bytes = item.seam_bytes = item.output_bytes = 0;
    item.infer_units = 0;
    item.staged = false;
    if (!item.refused.empty()) continue;
    const ItemParams& params = plan.params[static_cast<size_t>(item.params)];
    const int64_t unit = TilesPerUnit(total, params.tiling);
    const int64_t grid = GridTiles(item.header.shape, params.tiling);
    const int64_t tiles = TilesOf(item, params.tiling);
    const Wide accumulator = Wide{Product(OutputShape(item.header.shape, params.tiling))} *
                             params.transfer.accumulators * Wide{sizeof(float)};
    item.sizing = UnitSizing{};
    item.sizing.tiles = unit;
    item.sizing.accumulator_bytes = unit_memory;
    item.sizing.channels = params.transfer.accumulators;
    // Units are cut by all tiles of the item's box, so it is the box that has to fit one.
    if (grid <= unit && accumulator <= unit_memory) {
      // One unit that writes the output itself: cutting it finer would cost a detour over bricks.
      item.infer_units = 1;
      item.staged = false;
      SetCosts(item, params, nullptr);
    } else {
      // The small units for balance at the end lie in the last fifth of every item, not of the job:
      // an item's place in the job must not decide its blocks, hence its key.
      item.sizing.tail_begin = grid - grid / kTailShare;
      const ItemGeometry geometry(item.header.shape, params.tiling, item.sizing, item.grid.tiles);
      if (geometry.units() > kMostUnits) {
        item.refused = TooManyUnits(item, std::to_string(geometry.units()));
        return false;
      }
      item.infer_units = static_cast<int32_t>(geometry.units());
      item.staged = item.header.access == Access::kRows && item.infer_units > 1;
      SetCosts(item, params, &geometry);
    }
    item.tiles = tiles * ModelPasses(params.transfer);
    plan.tiles += item.tiles;
    plan.units += item.units();
  }
  return true;
}

}  // namespace

void SizeUnits(Plan& plan, int64_t unit_memory) {
  // Sizes depend on the tiles of all items that take part.
  while (!TrySizes(plan, unit_memory)) {
  }
}

}  // namespace tilery
