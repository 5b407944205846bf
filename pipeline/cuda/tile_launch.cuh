// What the kernels of tile_kernels.h are given beside their task: checked and prepared once for a
// launch, on the host.
#pragma once

#include "pipeline/cuda/blend_tiles.cuh"
#include "pipeline/cuda/gather_tiles.cuh"

namespace tilery::cuda {

GatherLaunch MakeGatherLaunch(const GatherTask& task, const TileStarts& starts, const TileRun& run);

// The sums from `first` on of a task with more than kMaxFused, as many as one launch takes.
BlendTilesTask PartOf(const BlendTilesTask& task, int32_t first);

// `voxels_per_lane`: K of BlendVoxels.
BlendLaunch MakeBlendLaunch(const BlendTilesTask& task, const TileRun& run, int voxels_per_lane);

}  // namespace tilery::cuda
