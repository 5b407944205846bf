// Kernels that work on many tiles of a unit in one launch: gathering them into the slots of a
// batch, and turning the model's outputs into finished samples without passing through memory more
// often than needed. The bits are those of pipeline/ops.h, tile by tile in tile order.
//
// Tiles of a unit are numbered by their place in the unit's box of tiles, z-major, x fastest: the
// order of blending. A batch holds `count` consecutive ones, tile `first + k` in slot `slot + k *
// step`. All pointers are device memory. Nothing is allocated and nothing waits; see
// pipeline/cuda/kernels.h for errors.
#pragma once

#include <cstdint>

#include "pipeline/cuda/kernels.h"

namespace tilery::cuda {

struct TileRun {
  int64_t first;  // of the unit's tiles
  int32_t count;
  int32_t slot, step;
};

// Where a unit's tiles begin, along each axis (z, y, x): `count[a]` entries.
struct TileStarts {
  const int64_t* begin[3];  // input voxels of the item
  int32_t count[3];         // the unit's box of tiles
};

// `task.out` is slot 0, and slots follow each other without gaps; `task.begin` is not looked at.
void GatherTiles(const GatherTask& task, const TileStarts& starts, const TileRun& run,
                 Stream stream);

// A box in coordinates of a unit's cover.
struct CoverBox {
  int64_t begin[3], shape[3];
};

// Where a unit's tiles have weight, along each axis: host memory, `count[a]` entries, coordinates
// of the cover. Neither begins nor ends descend.
struct TileCovers {
  const int64_t* begin[3];
  const int64_t* end[3];
  int32_t count[3];  // the unit's box of tiles
};

// The smallest box around all that the tiles of a run cover; shape 0 if nothing. Touches host
// memory only. Exact for tiles of one row; several rows count from their first tile to their last,
// several layers as whole layers.
CoverBox CoverOf(const TileCovers& covers, const TileRun& run);

// Windows of a unit's tiles along one axis. Output coordinates count from the begin of the unit's
// cover; tiles from the unit's first. `first` and `first + tiles` never descend. Where `tiles` is 1
// between the interior's borders along the axis, the weight is 1, and `weights` is not read.
struct AxisWindows {
  const int32_t* first;  // [cover extent] first tile that has weight at the coordinate
  const int32_t* tiles;  // [cover extent] how many follow one another there, at least 1
  const int64_t* begin;  // [unit tiles] coordinate of the tile's first voxel (negative: before)
  const float* weights;  // [unit tiles][tile extent] by the voxel's place in the tile
};

// One pass with the model, and no other: every voxel is summed, over the tiles of this batch, and
// by who has the last tile finished into its sample. Sums of voxels whose tiles lie in several
// batches wait in `sums`; those outside the interior stay there (seams). Tiles of a unit come in
// ascending order, so what `sums` holds of a voxel before its first tile was added is never read:
// it need not be cleared.
inline constexpr int kMaxFused = 32;  // sums of a voxel that a launch has registers for

struct BlendTilesTask {
  const void* output;  // slot 0; slots follow each other without gaps
  ModelType type;
  ModelLayout layout;
  int32_t channels;       // of a slot
  int64_t tile_shape[3];  // of a slot, output voxels
  bool mean;              // as BlendTask; out_begin is 0
  int32_t out_count;
  int32_t out[kMaxSums];
  AxisWindows axis[3];
  int32_t tile_count[3];   // the unit's box of tiles
  int64_t cover_shape[3];  // of sums
  CoverBox region;         // CoverOf() the run, or more: where the kernel looks for work
  int64_t interior_begin[3], interior_shape[3];  // in the cover; shape 0: all is seam
  float* sums;                                   // planar [out_count, cover]
  // All sums stay, for Finalize(), and `finalize` is not looked at. Needed for more than kMaxFused
  // of them unless FinishesInParts().
  bool keep;
  // Accumulators (0, 1, 2, ..., all of them), posts, terms, dtype, out (dense over the interior),
  // overflow; its sums and region are not looked at.
  FinalizeTask finalize;
  // Of a part of more than kMaxFused sums, else 0: all channels of a stored voxel, of which
  // `finalize` makes some. `finalize.out` is where the first of those goes.
  int32_t stored_channels;
};
// Whether each channel can be finished without the others, so that more than kMaxFused sums can be,
// some at a time: they are colours, and no post operation looks at several.
bool FinishesInParts(const FinalizeTask& task);
void BlendTiles(const BlendTilesTask& task, const TileRun& run, Stream stream);

}  // namespace tilery::cuda
