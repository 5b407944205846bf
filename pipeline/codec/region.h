// A region of a grid as bytes: one lower node (128^3 voxels) with its leaves, on its own.
//
//   u32 bytes of the first stream
//   stream: the node (InnerNodeModel), then the masks of its leaves (LeafMaskModel)
//   for each block of 4^3 leaves that has some, ascending: u32 bytes, stream: its leaves' values
//
// Streams are range coded. Blocks share no state, so they can be decoded side by side.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/vdb_tree.h"
#include "pipeline/codec/leaf_values.h"

namespace tilery {

// What all regions of a grid are coded by.
struct RegionCoding {
  VdbNumbers numbers;
  bool half = false;       // numbers are rounded to 16 bits before they count
  std::string background;  // numbers.bytes()
  // Largest error of an active value, and the step in which they are told; 0: all exact.
  double bound = 0, step = 0;
  std::vector<ValueWeights> weights;  // one for each component
};

struct Region {
  VdbNode node;
  std::vector<LeafMask> masks;    // of the leaves, by ascending place
  std::vector<std::byte> values;  // 512 of each leaf
};

// How far the values that come back are from those that went in.
struct CodingError {
  double most = 0, squares = 0;
  int64_t numbers = 0;
  void Add(const CodingError& other);
};

// The whole number that tells a value, as exactly as `coding` says; nullopt if none does, since it
// is too large, not finite, or would come back beyond the bound.
std::optional<int32_t> Quantised(double value, const RegionCoding& coding);

// The whole numbers of one component of a leaf's active values, as they are coded; 0 for those that
// none tells. `leaf`: its index among the region's.
void WholeNumbers(const Region& region, size_t leaf, size_t component, const RegionCoding& coding,
                  std::span<int32_t, 512> numbers);

// `other`: a region at the same place of another grid, null if there is none. `error`: added to, if
// there is one.
std::vector<std::byte> EncodeRegion(const Region& region, const Region* other,
                                    const RegionCoding& coding, CodingError* error);
// `origin` of the node. With `masks_only` values stay empty. Error(kInput), without a path, for
// bytes that can be no region; damage is for checksums to find.
Region DecodeRegion(std::span<const std::byte> bytes, const VdbCoord& origin, const Region* other,
                    const RegionCoding& coding, bool masks_only);

// Blocks of leaves of a region: for each, the leaves' indices in it and their places in the block.
struct RegionBlock {
  std::vector<size_t> leaves;
  std::vector<int> places;
};
std::vector<RegionBlock> BlocksOf(const VdbNode& node);

}  // namespace tilery
