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
#pragma once

#include <memory>

#include "io/vdb_tree.h"
#include "pipeline/blocks.h"

namespace tilery {

struct SparseTiles {
  Index origin{0, 0, 0};  // of the item in the grid's coordinates; z,y,x
  Index shape{1, 1, 1};
  std::shared_ptr<const TileSet> tiles;  // at least one
};

inline constexpr int64_t kMostSparseTiles = int64_t{1} << 26;

// Reads the nodes of the grid's tree, not its values. Error(kInput) for a damaged file, and for a
// grid that needs more than kMostSparseTiles or has active tiles of 4096^3 voxels.
SparseTiles FindSparseTiles(const VdbFile& file, const VdbGrid& grid, const Tiling& tiling);

}  // namespace tilery
