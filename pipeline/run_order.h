// The model runs of a unit in the order of blending: tile by tile (z-major, x fastest), and at each
// tile position pass by pass.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/blocks.h"
#include "pipeline/transfer.h"

namespace tilery {

// `geometry` outlives it.
class RunOrder {
 public:
  RunOrder(const ItemGeometry& geometry, int64_t block, const Transfer& transfer);

  struct Position {
    Index tile;  // of the item's grid
    size_t pass;
  };
  int64_t runs() const { return tiles() * passes(); }
  int64_t tiles() const { return tiles_; }
  int64_t passes() const { return static_cast<int64_t>(with_model_.size()); }  // with a model
  Position At(int64_t run) const;
  Index TileAt(int64_t flat) const;
  // Passes without a model that are blended right before this run, and, if it is the last one of
  // its tile, right after it: indices into transfer.passes.
  std::vector<size_t> Before(int64_t run) const;
  std::vector<size_t> After(int64_t run) const;
  // Of tile indices. Tiles of it are left out if not all of it `is_whole`.
  const Box& box() const { return box_; }
  bool is_whole() const { return listed_.empty(); }

 private:
  const TileGrid& grid_;
  Box box_;
  std::span<const int64_t> listed_;  // of a sparse item
  int64_t tiles_;
  size_t all_passes_;
  std::vector<size_t> with_model_;  // indices into transfer.passes
};

}  // namespace tilery
