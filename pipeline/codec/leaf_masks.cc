#include "pipeline/codec/leaf_masks.h"

#include <algorithm>
#include <cstddef>

namespace tilery {
namespace {

constexpr int kSide = 16, kPlaces = kSide * kSide * kSide;

// One plane of constant x with a border of one voxel: bit z + 1 of row y + 1.
using Plane = std::array<uint32_t, 10>;

uint32_t RowOf(const LeafMask* leaf, int x, int y) {
  return leaf == nullptr ? 0
                         : static_cast<uint32_t>((*leaf)[static_cast<size_t>(x)] >> (8 * y) & 0xff);
}

// Of nine leaves side by side, all in one layer of x: [1 + y][1 + z] around the middle one.
using Layer = std::array<std::array<const LeafMask*, 3>, 3>;

Plane PlaneOf(const Layer& leaves, int x) {
  Plane plane;
  for (int y = -1; y <= 8; ++y) {
    const auto& row = leaves[y < 0 ? 0 : y > 7 ? 2 : 1];
    const int at = y & 7;
    plane[static_cast<size_t>(y + 1)] =
        RowOf(row[0], x, at) >> 7 | RowOf(row[1], x, at) << 1 | (RowOf(row[2], x, at) & 1) << 9;
  }
  return plane;
}

}  // namespace

LeafMaskModel::LeafMaskModel() : models_(kAlone + kBesideOther), known_(kPlaces, -1) {}

void LeafMaskModel::BeginNode() {
  std::fill(known_.begin(), known_.end(), int16_t{-1});
  masks_.clear();
}

const LeafMask* LeafMaskModel::Known(int x, int y, int z) const {
  if (x < 0 || y < 0 || z < 0 || x >= kSide || y >= kSide || z >= kSide) return nullptr;
  const int16_t index = known_[static_cast<size_t>((x * kSide + y) * kSide + z)];
  return index < 0 ? nullptr : &masks_[static_cast<size_t>(index)];
}

template <typename Code>
LeafMask LeafMaskModel::Run(int place, const LeafMask* other, const Code& code) {
  const int lx = place / (kSide * kSide), ly = place / kSide % kSide, lz = place % kSide;
  Layer before{}, here{};
  for (int y = -1; y <= 1; ++y) {
    for (int z = -1; z <= 1; ++z) {
      before[static_cast<size_t>(y + 1)][static_cast<size_t>(z + 1)] =
          Known(lx - 1, ly + y, lz + z);
      // Those after this one are not known yet, whatever the node says of them.
      here[static_cast<size_t>(y + 1)][static_cast<size_t>(z + 1)] = Known(lx, ly + y, lz + z);
    }
  }
  LeafMask mask{};
  Plane back = PlaneOf(before, 7);
  for (int x = 0; x < 8; ++x) {
    Plane plane = PlaneOf(here, x);
    for (size_t y = 0; y < 8; ++y) {
      uint32_t& row = plane[y + 1];
      for (int z = 0; z < 8; ++z) {
        // Bits z - 1, z and z + 1 of a row are its bits z, z + 1 and z + 2 here.
        const uint32_t before_it = row >> z & 1, above = plane[y] >> z & 7,
                       behind = back[y + 1] >> z & 7;
        const int bit = static_cast<int>(8 * y) + z;
        uint32_t context;
        if (other == nullptr) {
          context = above | behind << 3 | before_it << 6 | (back[y] >> (z + 1) & 1) << 7 |
                    (back[y + 2] >> (z + 1) & 1) << 8 | (back[y] >> z & 1) << 9;
        } else {
          // Says more than all neighbours: few of them, which are learnt soon.
          context = kAlone | static_cast<uint32_t>((*other)[static_cast<size_t>(x)] >> bit & 1) |
                    before_it << 1 | (above >> 1 & 1) << 2 | (behind >> 1 & 1) << 3;
        }
        const bool on = code(&models_[context], x, bit);
        if (on) {
          row |= 2u << z;
          mask[static_cast<size_t>(x)] |= uint64_t{1} << bit;
        }
      }
    }
    back = plane;
  }
  known_[static_cast<size_t>(place)] = static_cast<int16_t>(masks_.size());
  masks_.push_back(mask);
  return mask;
}

void LeafMaskModel::Encode(RangeEncoder* coder, int place, const LeafMask& mask,
                           const LeafMask* other) {
  Run(place, other, [&](AdaptiveBit* model, int x, int bit) {
    const bool on = mask[static_cast<size_t>(x)] >> bit & 1;
    coder->Encode(model, on);
    return on;
  });
}

LeafMask LeafMaskModel::Decode(RangeDecoder* coder, int place, const LeafMask* other) {
  return Run(place, other, [&](AdaptiveBit* model, int, int) { return coder->Decode(model); });
}

}  // namespace tilery
