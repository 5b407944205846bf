// Where tiles lie. Pure functions of numbers; no I/O.
//
// Per axis with n voxels, tile T, overlap V, stride S = T - V: starts 0, S, 2S, ... while start + T
// < n; the last tile starts at n - T, so that every tile is full size. n <= T: one tile, padded at
// its end.
//
//   n = 13, T = 6, V = 2     0     4     7            starts (the last one moved back from 8 to 7)
//                            |=====|                  tile 0
//                                |=====|              tile 1
//                                   |=====|           tile 2
//
// An item is first padded at its end to max(T, the next multiple of lcm(q, k)) where the model's
// scale is p/q and it needs multiples of k; the output has ceil(n * p / q) voxels. Axes: z,y,x.
// Pictures have z extent, tile and scale 1 and overlap 0. A 2-D model on a volume has tile 1 along
// z: slices.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "io/box.h"

namespace tilery {

enum class PadMode : uint8_t { kReflect, kEdge, kZero };
enum class WindowKind : uint8_t { kLinear, kCosine, kCrop, kHann, kGaussian };

const char* PadModeName(PadMode mode);        // "reflect", ...
const char* WindowKindName(WindowKind kind);  // "linear", ...

// All that decides the tile grid of an item beside its shape. Values are checked by CheckTiling.
struct Tiling {
  Index tile{1, 1, 1};      // input voxels
  Index overlap{0, 0, 0};   // input voxels, < tile
  Index trim{0, 0, 0};      // input voxels, <= overlap / 2: weightless at sides with a neighbour
  Index multiple{1, 1, 1};  // of voxels the model needs
  Scale scale;              // output voxels per input voxel
  WindowKind window = WindowKind::kCosine;
  PadMode pad = PadMode::kReflect;
  bool operator==(const Tiling&) const = default;
};

// Error(kUsage) naming axis, value, limit and the next valid values if: tile < 1; overlap < 0 or >=
// tile; trim < 0 or > overlap / 2; tile or overlap no multiple of lcm(q, multiple); trim no
// multiple of q.
void CheckTiling(const Tiling& tiling);

int64_t RoundUp(int64_t n, int64_t multiple);
int64_t PaddedExtent(int64_t n, int64_t tile, int64_t multiple);
std::vector<int64_t> TileStarts(int64_t padded, int64_t tile, int64_t overlap);

// Source coordinate of position i >= 0 on an axis of n >= 1 voxels: i itself inside; reflect folds
// with period 2(n-1) (n = 1: 0); edge gives n-1; zero gives -1 (no source).
int64_t PadSource(int64_t i, int64_t n, PadMode mode);

// The tile grid of one item.
struct TileGrid {
  TileGrid(const Index& shape,
           const Tiling& tiling);  // shape >= 1 per axis; CheckTiling has passed

  Index shape;         // item voxels
  Index padded;        // voxels that tiles cover
  Index output_shape;  // ceil(shape * scale)
  Tiling tiling;
  std::array<std::vector<int64_t>, 3> starts;  // input voxels

  Index counts() const;
  int64_t tiles() const;
  Index tile_at(int64_t flat) const;        // z-major order, x fastest: the tile order of blending
  Box input_box(const Index& tile) const;   // may reach past `shape`: padding
  Box output_box(const Index& tile) const;  // whole tile at output resolution; may reach past
  Index output_tile() const;                // tile * scale
};

}  // namespace tilery
