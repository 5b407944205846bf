// A box of voxels of a sparse grid as arrays, filled node by node. Coordinates are x, y, z.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "io/vdb_tree.h"
#include "pipeline/codec/leaf_masks.h"

namespace tilery {

// Half-open. 64 bits, since the end of the last voxel does not fit into 32.
struct VdbBox {
  std::array<int64_t, 3> begin{}, end{};
  bool empty() const { return begin[0] >= end[0] || begin[1] >= end[1] || begin[2] >= end[2]; }
};

inline VdbBox CubeAt(const VdbCoord& origin, int64_t edge) {
  VdbBox cube;
  for (size_t axis = 0; axis < 3; ++axis) {
    cube.begin[axis] = origin[axis];
    cube.end[axis] = origin[axis] + edge;
  }
  return cube;
}

inline VdbBox Overlap(const VdbBox& a, const VdbBox& b) {
  VdbBox both;
  for (size_t axis = 0; axis < 3; ++axis) {
    both.begin[axis] = std::max(a.begin[axis], b.begin[axis]);
    both.end[axis] = std::min(a.end[axis], b.end[axis]);
  }
  return both;
}

// Calls use(place) for the places of an inner node that have voxels in `box`, ascending.
template <typename Use>
void ForPlaces(const VdbNode& node, const VdbBox& box, const Use& use) {
  const VdbBox part = Overlap(CubeAt(node.origin, VdbEdge(node.level)), box);
  if (part.empty()) return;
  const int64_t edge = VdbPlaceEdge(node.level), side = VdbEdge(node.level) / edge;
  std::array<int64_t, 3> first, last;
  for (size_t axis = 0; axis < 3; ++axis) {
    first[axis] = (part.begin[axis] - node.origin[axis]) / edge;
    last[axis] = (part.end[axis] - 1 - node.origin[axis]) / edge;
  }
  for (int64_t x = first[0]; x <= last[0]; ++x) {
    for (int64_t y = first[1]; y <= last[1]; ++y) {
      for (int64_t z = first[2]; z <= last[2]; ++z)
        use(static_cast<int>((x * side + y) * side + z));
    }
  }
}

// Writes into memory of the caller: [x][y][z][component], and [x][y][z] for what is active, if that
// is not null.
template <typename Number>
class DenseBox {
 public:
  DenseBox(const VdbBox& box, const VdbNumbers& numbers, Number* values, uint8_t* active)
      : box_(box), numbers_(numbers), values_(values), active_(active) {}

  // One value for all voxels of `cube` that lie in the box.
  void Fill(const VdbBox& cube, const std::byte* value, bool on) {
    const VdbBox part = Overlap(cube, box_);
    if (part.empty()) return;
    const std::array<Number, 3> numbers = NumbersAt(value);
    const auto count = static_cast<size_t>(part.end[2] - part.begin[2]);
    ForRows(part, [&](int64_t, int64_t, size_t at) {
      if (components() == 1) {
        std::fill_n(values_ + at, count, numbers[0]);
      } else {
        for (size_t i = 0; i < count; ++i)
          std::copy_n(numbers.data(), components(), values_ + (at + i) * components());
      }
      if (active_ != nullptr) std::fill_n(active_ + at, count, static_cast<uint8_t>(on ? 1 : 0));
    });
  }

  // `values`: 512.
  void AddLeaf(const VdbCoord& origin, const LeafMask& mask, std::span<const std::byte> values) {
    const VdbBox part = Overlap(CubeAt(origin, VdbEdge(VdbLevel::kLeaf)), box_);
    if (part.empty()) return;
    ForRows(part, [&](int64_t x, int64_t y, size_t at) {
      const auto column = static_cast<size_t>(x - origin[0]);
      for (int64_t z = part.begin[2]; z < part.end[2]; ++z, ++at) {
        const auto bit = static_cast<size_t>((y - origin[1]) * 8 + z - origin[2]);
        const std::array<Number, 3> numbers =
            NumbersAt(&values[(64 * column + bit) * numbers_.bytes()]);
        std::copy_n(numbers.data(), components(), values_ + at * components());
        if (active_ != nullptr) active_[at] = static_cast<uint8_t>(mask[column] >> bit & 1);
      }
    });
  }

 private:
  size_t components() const { return static_cast<size_t>(numbers_.components); }

  std::array<Number, 3> NumbersAt(const std::byte* at) const {
    std::array<Number, 3> numbers{};
    if (DTypeSize(numbers_.dtype) == sizeof(Number)) {
      std::memcpy(numbers.data(), at, numbers_.bytes());  // also the bits of what is no number
      return numbers;
    }
    for (size_t c = 0; c < components(); ++c, at += DTypeSize(numbers_.dtype))
      numbers[c] = static_cast<Number>(VdbNumberAt(at, numbers_.dtype));
    return numbers;
  }

  // Calls use(x, y, index of the row's first voxel) for each row along z.
  template <typename Use>
  void ForRows(const VdbBox& part, const Use& use) const {
    const auto extent = [&](size_t axis) {
      return static_cast<size_t>(box_.end[axis] - box_.begin[axis]);
    };
    const auto from = [&](size_t axis, int64_t at) {
      return static_cast<size_t>(at - box_.begin[axis]);
    };
    for (int64_t x = part.begin[0]; x < part.end[0]; ++x) {
      for (int64_t y = part.begin[1]; y < part.end[1]; ++y)
        use(x, y, (from(0, x) * extent(1) + from(1, y)) * extent(2) + from(2, part.begin[2]));
    }
  }

  const VdbBox box_;
  const VdbNumbers numbers_;
  Number* const values_;
  uint8_t* const active_;
};

}  // namespace tilery
