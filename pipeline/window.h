// Blending windows: separable, at output resolution, normalised per axis in float64 so that the
// weights over every coordinate sum to one, also where the last tile moved back. The weight of a
// voxel is (wz * wy) * wx in float32.
//
// With R = trim * scale, V' = overlap * scale - 2R, T = tile * scale, i the position inside the
// tile from a side that has a neighbour (a side has one if any tile lies there):
//   linear:   0 for i < R; (i - R + 0.5) / V' for R <= i < R + V'; 1 beyond. V' = 0: a switch
//             half-way.  cosine: 0.5 - 0.5 cos(pi * linear).  Ramps of both sides multiply.
//   crop:     1 where this tile's centre is the nearest of all tiles' centres (ties: lower), else
//   0. hann:     0.5 - 0.5 cos(2 pi (i + 0.5) / T) over the tile; 0 in the trim of sides with a
//   neighbour. gaussian: exp(-0.5 ((i - (T-1)/2) / (T/8))^2); 0 in the trim likewise.
#pragma once

#include <vector>

#include "pipeline/geometry.h"

namespace tilery {

// Normalised weights of one tile along one axis, cut to where they are not zero and to the item.
struct TileWindow {
  int64_t begin = 0;           // output coordinate of weights[0]
  std::vector<float> weights;  // never empty for a grid that CheckTiling accepts
  int64_t end() const { return begin + static_cast<int64_t>(weights.size()); }
};

// One entry per tile along `axis`. Error(kInternal) if any coordinate of the item would have no
// weight.
std::vector<TileWindow> MakeWindows(const TileGrid& grid, int axis);

}  // namespace tilery
