// Codes inner nodes of a grid's tree: which places have a node below, which tiles are active, and
// the tiles' values, all of it exactly.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "io/vdb_tree.h"
#include "pipeline/codec/range_coder.h"

namespace tilery {

// For the nodes of one level of one grid. Encoder and decoder have to be told of the same nodes in
// the same order. Not thread-safe.
class InnerNodeModel {
 public:
  // `background`: of the grid, as bytes; most inactive tiles have it.
  InnerNodeModel(VdbLevel level, const std::string& background);
  void Encode(RangeEncoder* coder, const VdbNode& node);  // of that level
  // Fills all but the origin. Damaged bytes give a wrong node, but one that is sound in itself.
  void Decode(RangeDecoder* coder, VdbNode* node);

 private:
  template <typename Coder>
  void Run(Coder& coder, VdbNode* node);

  const VdbLevel level_;
  const std::vector<std::byte> background_;
  std::vector<std::byte> other_;  // the last value that was not the background
  // By the neighbours one place before along each axis.
  std::array<AdaptiveBit, 8> child_, active_;
  // By whether the place is active, and what the last one of its kind was.
  std::array<std::array<AdaptiveBit, 2>, 2> is_background_;
  std::array<AdaptiveBit, 2> is_other_;
};

}  // namespace tilery
