#include "pipeline/blocks.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "io/error.h"

namespace tilery {
namespace {

using Wide = __int128;  // sums over a whole item times bytes

using Windows = std::array<std::vector<TileWindow>, 3>;
using Cuts = std::vector<int64_t>;

struct Span {
  int64_t begin, end;
  int64_t length() const { return std::max<int64_t>(end - begin, 0); }
};

// Where the tiles of block `block` have weight. Begins and ends of windows ascend with the tile.
Span CoverOf(const std::vector<TileWindow>& windows, const Cuts& cuts, size_t block) {
  return {windows[static_cast<size_t>(cuts[block])].begin,
          windows[static_cast<size_t>(cuts[block + 1] - 1)].end()};
}

// Where it is the only one: past the block before, short of the block behind.
Span SoloOf(const std::vector<TileWindow>& windows, const Cuts& cuts, size_t block) {
  Span solo = CoverOf(windows, cuts, block);
  if (block > 0) solo.begin = std::max(solo.begin, CoverOf(windows, cuts, block - 1).end);
  if (block + 2 < cuts.size())
    solo.end = std::min(solo.end, CoverOf(windows, cuts, block + 1).begin);
  return solo;
}

// Cuts [begin, end) into as few parts of at most `size` as possible, equal but for one.
void CutEvenly(int64_t begin, int64_t end, int64_t size, Cuts* cuts) {
  const int64_t parts = (end - begin + size - 1) / size;
  for (int64_t i = 1; i <= parts; ++i) cuts->push_back(begin + (end - begin) * i / parts);
}

// One way to cut an axis, with what it costs.
struct AxisCuts {
  Cuts cuts;
  int64_t tiles = 0;      // of the largest block
  int64_t cover = 0;      // output voxels of the widest block
  int64_t all_cover = 0;  // summed over blocks
  int64_t all_solo = 0;
};

AxisCuts CutAxis(const std::vector<TileWindow>& windows, int64_t size, int64_t tail) {
  const auto count = static_cast<int64_t>(windows.size());
  AxisCuts axis;
  axis.cuts = {0};
  CutEvenly(0, tail, size, &axis.cuts);
  // A quarter of what the blocks before really have: even cuts are often smaller than allowed.
  const int64_t parts = std::max<int64_t>((tail + size - 1) / size, 1);
  const int64_t before = tail > 0 ? (tail + parts - 1) / parts : size;
  CutEvenly(tail, count, (before + 3) / 4, &axis.cuts);
  for (size_t block = 0; block + 1 < axis.cuts.size(); ++block) {
    const int64_t cover = CoverOf(windows, axis.cuts, block).length();
    axis.tiles = std::max(axis.tiles, axis.cuts[block + 1] - axis.cuts[block]);
    axis.cover = std::max(axis.cover, cover);
    axis.all_cover += cover;
    axis.all_solo += SoloOf(windows, axis.cuts, block).length();
  }
  return axis;
}

// All ways worth trying: one for each number of tiles that the largest of evenly cut blocks can
// have, largest first.
std::vector<AxisCuts> WaysToCut(const std::vector<TileWindow>& windows, int64_t most,
                                int64_t tail) {
  const auto count = static_cast<int64_t>(windows.size());
  std::vector<AxisCuts> ways;
  for (int64_t size = std::min(count, most); size >= 1;) {
    const int64_t parts = (count + size - 1) / size;
    size = (count + parts - 1) / parts;
    ways.push_back(CutAxis(windows, size, tail));
    --size;
  }
  return ways;
}

Wide AccumulatorBytes(int64_t z, int64_t y, int64_t x, int32_t channels) {
  return Wide{z} * y * x * channels * static_cast<Wide>(sizeof(float));
}

// First layer of the outermost tiled axis that belongs to the last part of the plan.
int64_t TailLayer(const Index& counts, int outermost, int64_t tail_begin) {
  const int64_t layer = Product(counts) / counts[outermost];
  if (tail_begin >= Product(counts)) return counts[outermost];
  return std::clamp((std::max<int64_t>(tail_begin, 0) + layer / 2) / layer, int64_t{0},
                    counts[outermost]);
}

// The partition with the fewest seam bytes that keeps both bounds; among equals the one with the
// fewest units, then the one that cuts outer axes.
std::array<Cuts, 3> ChooseCuts(const Windows& windows, const Index& counts,
                               const UnitSizing& sizing) {
  const int64_t most = std::max<int64_t>(sizing.tiles, 1);
  int outermost = 0;
  while (outermost < 2 && counts[outermost] == 1) ++outermost;
  std::array<std::vector<AxisCuts>, 3> ways;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t tail =
        axis == outermost ? TailLayer(counts, axis, sizing.tail_begin) : counts[axis];
    ways[axis] = WaysToCut(windows[axis], most, tail);
  }
  const auto fits = [&](const AxisCuts& z, const AxisCuts& y, const AxisCuts& x) {
    return Wide{z.tiles} * y.tiles * x.tiles <= most &&
           AccumulatorBytes(z.cover, y.cover, x.cover, sizing.channels) <= sizing.accumulator_bytes;
  };
  std::array<const AxisCuts*, 3> best{};
  std::pair<Wide, Wide> best_cost;
  for (const AxisCuts& x : ways[2]) {
    for (const AxisCuts& y : ways[1]) {
      // Ways come with the fewest cuts first, and more cuts never mean fewer seams.
      const auto z = std::find_if(ways[0].begin(), ways[0].end(),
                                  [&](const AxisCuts& candidate) { return fits(candidate, y, x); });
      if (z == ways[0].end()) continue;
      const Wide seams = Wide{z->all_cover} * y.all_cover * x.all_cover -
                         Wide{z->all_solo} * y.all_solo * x.all_solo;
      const Wide units = static_cast<Wide>(z->cuts.size() - 1) *
                         static_cast<Wide>(y.cuts.size() - 1) *
                         static_cast<Wide>(x.cuts.size() - 1);
      if (best[0] == nullptr || std::pair(seams, units) < best_cost) {
        best = {&*z, &y, &x};
        best_cost = {seams, units};
      }
    }
  }
  if (best[0] == nullptr) {
    const Wide needed = AccumulatorBytes(ways[0].back().cover, ways[1].back().cover,
                                         ways[2].back().cover, sizing.channels);
    throw Error(Fault::kUsage, "a single tile's result takes " +
                                   std::to_string(static_cast<int64_t>(needed)) +
                                   " bytes of float32, more than execution.unit_memory of " +
                                   std::to_string(sizing.accumulator_bytes) +
                                   " bytes; raise unit_memory or choose a smaller tile");
  }
  return {best[0]->cuts, best[1]->cuts, best[2]->cuts};
}

}  // namespace

ItemGeometry::ItemGeometry(const Index& shape, const Tiling& tiling, const UnitSizing& sizing,
                           std::shared_ptr<const TileSet> tiles)
    : grid_(shape, tiling), sizing_(sizing), sparse_(tiles != nullptr) {
  for (int axis = 0; axis < 3; ++axis) windows_[axis] = MakeWindows(grid_, axis);
  cuts_ = ChooseCuts(windows_, grid_.counts(), sizing_);
  for (int axis = 0; axis < 3; ++axis) {
    const size_t blocks = cuts_[axis].size() - 1;
    std::vector<int64_t> borders;
    for (size_t block = 0; block < blocks; ++block) {
      const Span cover = CoverOf(windows_[axis], cuts_[axis], block);
      borders.push_back(cover.begin);
      borders.push_back(cover.end);
    }
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    size_t first = 0;  // block that reaches past the interval's begin
    size_t last = 0;   // block that begins past it
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      while (CoverOf(windows_[axis], cuts_[axis], first).end <= borders[i]) ++first;
      while (last < blocks && CoverOf(windows_[axis], cuts_[axis], last).begin <= borders[i])
        ++last;
      intervals_[axis].push_back(
          {borders[i], borders[i + 1], static_cast<int64_t>(first), static_cast<int64_t>(last)});
    }
  }
  if (tiles) ListUnits(*tiles);
}

void ItemGeometry::ListUnits(const TileSet& tiles) {
  std::array<std::vector<int64_t>, 3> block_of;  // [axis][tile]
  for (int axis = 0; axis < 3; ++axis) {
    for (size_t block = 0; block + 1 < cuts_[axis].size(); ++block)
      block_of[axis].resize(static_cast<size_t>(cuts_[axis][block + 1]),
                            static_cast<int64_t>(block));
  }
  std::vector<std::pair<int64_t, int64_t>> placed;  // block, tile
  placed.reserve(tiles.size());
  for (const int64_t tile : tiles) {
    const Index at = grid_.tile_at(tile);
    Index block;
    for (size_t axis = 0; axis < 3; ++axis)
      block[axis] = block_of[axis].at(static_cast<size_t>(at[axis]));
    placed.emplace_back(BlockNumber(block), tile);
  }
  std::sort(placed.begin(), placed.end());
  listed_.reserve(placed.size());
  for (const auto& [block, tile] : placed) {
    if (blocks_.empty() || blocks_.back() != block) {
      blocks_.push_back(block);
      begins_.push_back(listed_.size());
    }
    listed_.push_back(tile);
  }
  begins_.push_back(listed_.size());
}

std::span<const int64_t> ItemGeometry::listed_tiles(int64_t unit) const {
  if (!sparse_) return {};
  const auto at = static_cast<size_t>(unit);
  return std::span(listed_).subspan(begins_[at], begins_[at + 1] - begins_[at]);
}

int64_t ItemGeometry::tiles_of(int64_t unit) const {
  return sparse_ ? static_cast<int64_t>(listed_tiles(unit).size()) : unit_tiles(unit).voxels();
}

int64_t ItemGeometry::units() const {
  if (sparse_) return static_cast<int64_t>(blocks_.size());
  int64_t units = 1;
  for (const auto& cuts : cuts_) units *= static_cast<int64_t>(cuts.size()) - 1;
  return units;
}

Index ItemGeometry::BlockOf(int64_t unit) const {
  if (sparse_) unit = blocks_[static_cast<size_t>(unit)];
  const auto y = static_cast<int64_t>(cuts_[1].size()) - 1;
  const auto x = static_cast<int64_t>(cuts_[2].size()) - 1;
  return {unit / (y * x), unit / x % y, unit % x};
}

int64_t ItemGeometry::UnitOf(const Index& block) const {
  const int64_t number = BlockNumber(block);
  if (!sparse_) return number;
  const auto found = std::lower_bound(blocks_.begin(), blocks_.end(), number);
  return found != blocks_.end() && *found == number ? found - blocks_.begin() : -1;
}

int64_t ItemGeometry::BlockNumber(const Index& block) const {
  const auto y = static_cast<int64_t>(cuts_[1].size()) - 1;
  const auto x = static_cast<int64_t>(cuts_[2].size()) - 1;
  return (block[0] * y + block[1]) * x + block[2];
}

Box ItemGeometry::unit_tiles(int64_t unit) const {
  const Index block = BlockOf(unit);
  Box tiles;
  for (int axis = 0; axis < 3; ++axis) {
    tiles.begin[axis] = cuts_[axis][static_cast<size_t>(block[axis])];
    tiles.end[axis] = cuts_[axis][static_cast<size_t>(block[axis]) + 1];
  }
  return tiles;
}

Box ItemGeometry::unit_input(int64_t unit) const {
  const Box tiles = unit_tiles(unit);
  Box input;
  for (int axis = 0; axis < 3; ++axis) {
    const int64_t n = grid_.shape[axis];
    int64_t& begin = input.begin[axis];
    int64_t& end = input.end[axis];
    begin = grid_.starts[axis][static_cast<size_t>(tiles.begin[axis])];
    end = grid_.starts[axis][static_cast<size_t>(tiles.end[axis] - 1)] + grid_.tiling.tile[axis];
    if (end <= n) continue;
    // The mirror image of the padding reaches as far back from the last voxel as the padding sticks
    // out.
    const int64_t mirrored = std::max<int64_t>(n - 1 - (end - n), 0);
    if (grid_.tiling.pad == PadMode::kReflect) begin = std::min(begin, mirrored);
    end = n;
  }
  return input;
}

Box ItemGeometry::unit_cover(int64_t unit) const {
  const Index block = BlockOf(unit);
  Box cover;
  for (int axis = 0; axis < 3; ++axis) {
    const Span span = CoverOf(windows_[axis], cuts_[axis], static_cast<size_t>(block[axis]));
    cover.begin[axis] = span.begin;
    cover.end[axis] = span.end;
  }
  return cover;
}

Box ItemGeometry::interior(int64_t unit) const {
  const Index block = BlockOf(unit);
  Box interior;
  for (int axis = 0; axis < 3; ++axis) {
    const Span span = SoloOf(windows_[axis], cuts_[axis], static_cast<size_t>(block[axis]));
    interior.begin[axis] = span.begin;
    interior.end[axis] = span.end;
  }
  if (interior.empty()) interior.end = interior.begin;
  return interior;
}

std::vector<SeamCell> ItemGeometry::CellsOf(const std::array<IntervalRange, 3>& ranges) const {
  std::vector<SeamCell> cells;
  for (int64_t iz = ranges[0].first; iz < ranges[0].last; ++iz) {
    for (int64_t iy = ranges[1].first; iy < ranges[1].last; ++iy) {
      for (int64_t ix = ranges[2].first; ix < ranges[2].last; ++ix) {
        const Interval& z = intervals_[0][static_cast<size_t>(iz)];
        const Interval& y = intervals_[1][static_cast<size_t>(iy)];
        const Interval& x = intervals_[2][static_cast<size_t>(ix)];
        SeamCell cell;
        cell.box = {{z.begin, y.begin, x.begin}, {z.end, y.end, x.end}};
        for (int64_t bz = z.first_block; bz < z.last_block; ++bz) {
          for (int64_t by = y.first_block; by < y.last_block; ++by) {
            for (int64_t bx = x.first_block; bx < x.last_block; ++bx) {
              const int64_t unit = UnitOf({bz, by, bx});
              if (unit >= 0) cell.units.push_back(unit);
            }
          }
        }
        cell.interior = z.alone() && y.alone() && x.alone() && !cell.units.empty();
        cells.push_back(std::move(cell));
      }
    }
  }
  return cells;
}

std::vector<SeamCell> ItemGeometry::seams(int64_t unit) const {
  const Index block = BlockOf(unit);
  std::array<IntervalRange, 3> ranges;
  for (int axis = 0; axis < 3; ++axis) {
    const auto& all = intervals_[axis];
    const auto first = std::partition_point(
        all.begin(), all.end(), [&](const Interval& i) { return i.last_block <= block[axis]; });
    const auto last = std::partition_point(
        first, all.end(), [&](const Interval& i) { return i.first_block <= block[axis]; });
    ranges[axis] = {first - all.begin(), last - all.begin()};
  }
  std::vector<SeamCell> cells = CellsOf(ranges);
  std::erase_if(cells, [](const SeamCell& cell) { return cell.interior; });
  return cells;
}

std::vector<SeamCell> ItemGeometry::cells(const Box& region) const {
  const Box wanted = Intersect(region, Box::Whole(grid_.output_shape));
  if (wanted.empty()) return {};
  std::array<IntervalRange, 3> ranges;
  for (int axis = 0; axis < 3; ++axis) {
    const auto& all = intervals_[axis];
    const auto first = std::partition_point(
        all.begin(), all.end(), [&](const Interval& i) { return i.end <= wanted.begin[axis]; });
    const auto last = std::partition_point(
        first, all.end(), [&](const Interval& i) { return i.begin < wanted.end[axis]; });
    ranges[axis] = {first - all.begin(), last - all.begin()};
  }
  std::vector<SeamCell> cells = CellsOf(ranges);
  for (SeamCell& cell : cells) cell.box = Intersect(cell.box, wanted);
  return cells;
}

int64_t ItemGeometry::seam_bytes() const {
  if (sparse_) {
    Wide voxels = 0;
    for (int64_t unit = 0; unit < units(); ++unit)
      voxels += unit_cover(unit).voxels() - interior(unit).voxels();
    return static_cast<int64_t>(voxels * sizing_.channels * static_cast<Wide>(sizeof(float)));
  }
  // Units are products of blocks, so sums over units are products of sums over blocks.
  Wide covers = 1;
  Wide solos = 1;
  for (int axis = 0; axis < 3; ++axis) {
    int64_t cover = 0;
    int64_t solo = 0;
    for (size_t block = 0; block + 1 < cuts_[axis].size(); ++block) {
      cover += CoverOf(windows_[axis], cuts_[axis], block).length();
      solo += SoloOf(windows_[axis], cuts_[axis], block).length();
    }
    covers *= cover;
    solos *= solo;
  }
  return static_cast<int64_t>((covers - solos) * sizing_.channels *
                              static_cast<Wide>(sizeof(float)));
}

Box ItemGeometry::tile_cover(const Index& tile) const {
  Box cover;
  for (int axis = 0; axis < 3; ++axis) {
    const TileWindow& window = windows_[axis][static_cast<size_t>(tile[axis])];
    cover.begin[axis] = window.begin;
    cover.end[axis] = window.end();
  }
  return cover;
}

}  // namespace tilery
