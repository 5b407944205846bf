// The model runs of a unit in the order of blending: tile by tile (z-major, x fastest), and at each
// tile position pass by pass.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/blocks.h"
#include "pipeline/transfer.h"

namespace tilery {

class RunOrder {
 public:
  RunOrder(const ItemGeometry& geometry, int64_t block, const Transfer& transfer);

  struct Position {
    Index tile;  // of the item's grid
    size_t pass;
  };
  int64_t runs() const { return tiles() * passes(); }
  int64_t tiles() const { return box_.voxels(); }
  int64_t passes() const { return static_cast<int64_t>(with_model_.size()); }  // with a model
  Position At(int64_t run) const;
  Index TileAt(int64_t flat) const;
  // Passes without a model that are blended right before this run, and, if it is the last one of
  // its tile, right after it: indices into transfer.passes.
  std::vector<size_t> Before(int64_t run) const;
  std::vector<size_t> After(int64_t run) const;
  const Box& box() const { return box_; }  // of tile indices

 private:
  Box box_;
  size_t all_passes_;
  std::vector<size_t> with_model_;  // indices into transfer.passes
};

}  // namespace tilery
