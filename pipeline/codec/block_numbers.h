// The whole numbers of a block of leaves: values in steps of twice the bound on their error.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/codec/leaf_masks.h"

namespace tilery {

// Leaves are coded in blocks of 4^3, each on its own.
inline constexpr int kBlockLeaves = 4;
// Larger ones have to be coded in another way: sixteenths of them stay within 32 bits.
inline constexpr int32_t kLargestCodedValue = 1 << 26;

struct BlockNumbers {
  using Leaf = std::array<int32_t, 512>;  // in OpenVDB's order; 0 where the mask is off

  std::vector<int> places;  // of the leaves in the block, (x * 4 + y) * 4 + z, ascending
  std::vector<LeafMask> masks;
  std::vector<std::vector<Leaf>> values;  // [component][leaf]

  explicit BlockNumbers(size_t components = 1) : values(components) {}
  void Add(int place, const LeafMask& mask) {
    places.push_back(place);
    masks.push_back(mask);
    for (std::vector<Leaf>& component : values) component.emplace_back();
  }
};

}  // namespace tilery
