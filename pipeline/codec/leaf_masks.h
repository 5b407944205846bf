// Codes which voxels of leaves are active, leaf after leaf of one lower node.
//
// Each bit is predicted from ten neighbours that are known already (of this leaf and of those
// before it, beyond the node's border taken as off), and from the same voxel of another grid where
// there is one: the grids of a simulation mostly share their masks.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <vector>

#include "pipeline/codec/range_coder.h"

namespace tilery {

// Of 8^3 voxels: bit (y * 8 + z) of word x.
using LeafMask = std::array<uint64_t, 8>;

inline int CountOn(const LeafMask& mask) {
  int count = 0;
  for (const uint64_t word : mask) count += std::popcount(word);
  return count;
}

// Calls use(voxel), a size_t, for each that is on, ascending.
template <typename Use>
void ForOn(const LeafMask& mask, const Use& use) {
  for (size_t x = 0; x < mask.size(); ++x) {
    for (uint64_t bits = mask[x]; bits != 0; bits &= bits - 1)
      use(64 * x + static_cast<size_t>(std::countr_zero(bits)));
  }
}

// Encoder and decoder have to be told of the same leaves in the same order. Not thread-safe.
class LeafMaskModel {
 public:
  LeafMaskModel();
  // Another lower node follows: what was learnt stays, but none of its leaves is known.
  void BeginNode();
  // `place`: of the leaf in its node, (x * 16 + y) * 16 + z, ascending within a node. `other`: the
  // mask of the same leaf in another grid, null if there is none.
  void Encode(RangeEncoder* coder, int place, const LeafMask& mask, const LeafMask* other);
  LeafMask Decode(RangeDecoder* coder, int place, const LeafMask* other);

 private:
  template <typename Code>
  LeafMask Run(int place, const LeafMask* other, const Code& code);
  const LeafMask* Known(int x, int y,
                        int z) const;  // null if there is no such leaf before this one

  static constexpr uint32_t kAlone = 1 << 10, kBesideOther = 1 << 4;  // models
  std::vector<AdaptiveBit> models_;
  std::vector<int16_t> known_;   // by place; -1: none
  std::vector<LeafMask> masks_;  // of the node so far
};

}  // namespace tilery
