// How an item's tiles are dealt out to units, and which units meet where.
//
// Units are the blocks of a partition of the tile grid by cuts per axis (a product partition). A
// unit's cover is where its tiles have weight. Output voxels under one unit's cover only are its
// interior (one box, maybe empty); all others lie in seam cells, boxes with the list of units that
// cover them (any length), in plan order. Cells are the products of the elementary intervals of the
// covers per axis.
//
//   units along one axis:   |-------A-------|
//                                       |-------B-------|
//   elementary intervals:   |  A alone  |A,B|  B alone  |       interior | seam | interior
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "pipeline/geometry.h"
#include "pipeline/window.h"

namespace tilery {

// How large units of an item may be. The last fifth of the plan uses smaller ones, for balance:
// from tile number `tail_begin` of the item on (counted along its outermost tiled axis, rounded
// to whole layers), blocks are cut four times as fine along that axis where it allows.
struct UnitSizing {
  int64_t tiles = 16;                   // upper bound of tiles per unit (at least one)
  int64_t accumulator_bytes = 1 << 30;  // upper bound of the f32 accumulator over a unit's cover
  int32_t channels = 1;                 // of the accumulator
  int64_t tail_begin = INT64_MAX;
  bool operator==(const UnitSizing&) const = default;
};

struct SeamCell {
  Box box;                     // output voxels
  std::vector<int64_t> units;  // all that have weight there, ascending
  bool interior = false;       // of the one unit; else a seam, also if it has one unit or none,
                               // since others of the partition have no tiles
};

// The tiles of a sparse item: all others are left out. Flat indices of the tile grid, ascending,
// each once. Output voxels count only where all tiles with weight are in it.
using TileSet = std::vector<int64_t>;

// Everything geometric about one item. Immutable, hence thread-safe. Costs memory in proportion to
// the sum (not the product) of tiles per axis.
class ItemGeometry {
 public:
  // `tiles`: of a sparse item; null: all. Then blocks without tiles are no units, and memory is in
  // proportion to the tiles. Error(kUsage) if a single tile breaks sizing.accumulator_bytes (both
  // numbers named).
  ItemGeometry(const Index& shape, const Tiling& tiling, const UnitSizing& sizing,
               std::shared_ptr<const TileSet> tiles = nullptr);

  const TileGrid& grid() const { return grid_; }
  const std::vector<TileWindow>& windows(int axis) const { return windows_[axis]; }

  int64_t units() const;
  Box unit_tiles(int64_t unit) const;  // half-open box of tile indices, those left out among them
  int64_t tiles_of(int64_t unit) const;
  // The unit's tiles in tile order, flat indices; empty if it has all of its box.
  std::span<const int64_t> listed_tiles(int64_t unit) const;
  Box unit_input(int64_t unit) const;  // item voxels its tiles read, cut to the item, padding's
                                       // sources included
  Box unit_cover(int64_t unit) const;  // output voxels where it has weight
  Box interior(int64_t unit) const;    // part of cover that no other unit touches; may be empty
  std::vector<SeamCell> seams(int64_t unit) const;  // cells of its cover beside the interior
  std::vector<SeamCell> cells(
      const Box& region) const;  // interiors (one unit) and seams, cut to region
  int64_t seam_bytes() const;    // of all units' f32 partial sums
  // Output box where the tile has weight (product of its windows).
  Box tile_cover(const Index& tile) const;

 private:
  struct Interval {
    int64_t begin, end;
    int64_t first_block, last_block;  // blocks [first, last)
    bool alone() const { return last_block - first_block == 1; }
  };
  struct IntervalRange {
    int64_t first, last;
  };  // intervals_[axis][first, last)
  Index BlockOf(int64_t unit) const;
  int64_t BlockNumber(const Index& block) const;
  int64_t UnitOf(const Index& block) const;  // -1: it has no tiles
  std::vector<SeamCell> CellsOf(const std::array<IntervalRange, 3>& ranges) const;
  void ListUnits(const TileSet& tiles);

  TileGrid grid_;
  UnitSizing sizing_;
  std::array<std::vector<TileWindow>, 3> windows_;
  std::array<std::vector<int64_t>, 3> cuts_;        // tile indices, first 0, last = counts
  std::array<std::vector<Interval>, 3> intervals_;  // elementary, ascending
  // Of a sparse item:
  bool sparse_ = false;
  std::vector<int64_t> blocks_;  // [unit]: number of its block, ascending
  std::vector<size_t> begins_;   // [unit]: of its tiles in listed_; and the end
  std::vector<int64_t> listed_;  // tiles, unit by unit
};

}  // namespace tilery
