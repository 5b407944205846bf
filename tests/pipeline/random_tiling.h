// Random tilings that CheckTiling accepts, small enough for brute force.
#pragma once

#include <numeric>
#include <random>

#include "pipeline/geometry.h"

namespace tilery {

class RandomTiling {
 public:
  explicit RandomTiling(uint32_t seed) : random_(seed) {}

  int64_t Pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }

  // Along the axes from `first_axis` on; the others keep tile 1 and overlap 0.
  Tiling Next(int first_axis, int64_t largest_tile) {
    Tiling tiling;
    tiling.window = static_cast<WindowKind>(Pick(0, 4));
    tiling.pad = static_cast<PadMode>(Pick(0, 2));
    for (int axis = first_axis; axis < 3; ++axis) {
      static constexpr Rational kScales[] = {{1, 1}, {1, 1}, {2, 1}, {3, 1},
                                             {1, 2}, {3, 2}, {1, 4}};
      tiling.scale[axis] = kScales[Pick(0, 6)];
      tiling.multiple[axis] = Pick(0, 2) == 0 ? Pick(1, 3) : 1;
      const int64_t step = std::lcm(tiling.scale[axis].den, tiling.multiple[axis]);
      const int64_t tile = Pick(1, std::max<int64_t>(largest_tile / step, 1));
      const int64_t overlap = Pick(0, tile - 1);
      tiling.tile[axis] = tile * step;
      tiling.overlap[axis] = overlap * step;
      const int64_t den = tiling.scale[axis].den;
      tiling.trim[axis] = Pick(0, tiling.overlap[axis] / 2 / den) * den;
    }
    CheckTiling(tiling);
    return tiling;
  }

 private:
  std::mt19937 random_;
};

}  // namespace tilery
