// Which tiles a sparse grid needs.
//
// Tiles begin at multiples of the stride in the grid's own coordinates, whatever is active. The
// item is the box from the first to the last of the tiles that have weight at an active voxel, so
// no tile is moved and none is padded; what active voxels get is what the endless grid would give
// them.
//
//   stride 4, tile 6       |--4--|     |=====|     |=====|--16-|       starts ... 4, 8, 12, 16 ...
//   active voxels               ....                 ..
//   item                   [begin                            end)
//
// Where along an axis no tile is needed for long, the item has none of that: the tiles behind
// follow those before, just so far from them that none of either has a voxel in common. So what an
// item costs does not depend on how far apart its voxels are.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "io/vdb_tree.h"
#include "pipeline/blocks.h"

namespace tilery {

struct SparseTiles {
  // From here on, up to the next, voxels of item and grid lie equally far from each other.
  struct Run {
    int64_t item = 0, grid = 0;  // coordinate of the first
    bool operator==(const Run&) const = default;
  };
  // Of voxels that are active: what their coordinates in the item are more than in the grid.
  // `first`: the least along each axis of voxels that lie side by side, z,y,x.
  Index ToItem(const Index& first) const;
  // Visits the parts of a box of item voxels that are boxes of the grid: `part` in the item.
  void VisitParts(const Box& box,
                  const std::function<void(const Box& part, const Box& in_grid)>& visit) const;

  std::array<std::vector<Run>, 3> runs;  // z,y,x; ascending, at least one
  Index shape{1, 1, 1};
  std::shared_ptr<const TileSet> tiles;  // at least one
};

inline constexpr int64_t kMostSparseTiles = int64_t{1} << 26;

// Reads the nodes of the grid's tree, not its values. Error(kInput) for a damaged file, and for a
// grid that needs more than kMostSparseTiles or has active tiles of 4096^3 voxels.
SparseTiles FindSparseTiles(const VdbFile& file, const VdbGrid& grid, const Tiling& tiling);

}  // namespace tilery
