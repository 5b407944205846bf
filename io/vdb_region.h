// Boxes of voxels of a sparse grid, read at random.
//
// Axes are z,y,x as everywhere but in io/vdb_tree.h; coordinates are the grid's own, which may be
// negative.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/box.h"
#include "io/vdb_tree.h"
#include "io/view.h"

namespace tilery {

// Of a tree whose type VdbNumbersOf knows. Making it reads the tree's nodes and passes over the
// values of its leaves; memory: some 600 bytes for each lower node (128^3 voxels), and the tiles
// that differ from the background. Thread-safe afterwards; `file` and `grid` outlive it.
// Error(kInput) as VdbTreeReader's.
class VdbRegions {
 public:
  VdbRegions(const VdbFile& file, const VdbGrid& grid);

  const VdbNumbers& numbers() const { return numbers_; }
  const std::string& background() const { return background_; }
  // The value of each voxel, active or not: `out` has the shape of `box` and the grid's components
  // as channels; its dtype is kF32, to which f64 are rounded.
  void Read(const Box& box, const View& out) const;

 private:
  struct Tile {
    VdbCoord origin;
    int32_t edge;
    std::string value;
  };
  struct Lower {
    VdbMask leaves{0};
    int64_t values = 0;       // byte of the file where those of the first leaf stand
    std::vector<Tile> tiles;  // of another value than the background
  };

  void AddTiles(const VdbNode& node, std::vector<Tile>* tiles) const;
  void Fill(const Box& cube, const std::string& value, const Box& box, const View& out) const;
  void ReadLower(const VdbCoord& origin, const Lower& lower, const Box& box, const View& out) const;

  const VdbFile& file_;
  const VdbGrid& grid_;
  const VdbNumbers numbers_;
  std::string background_;
  std::vector<Tile> tiles_;  // of the root and of upper nodes
  std::map<VdbCoord, Lower> lowers_;
};

}  // namespace tilery
