#include "pipeline/cuda/tile_launch.cuh"

#include <algorithm>
#include <limits>

#include "pipeline/cuda/device_functions.cuh"
#include "pipeline/cuda/tile_kernels.h"

namespace tilery::cuda {
namespace {

constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // kernels count tiles in 32 bits

void RequireRun(const int32_t counts[3], const TileRun& run) {
  // Each product fits, since what it is multiplied with was found to fit 32 bits.
  const int64_t layer = int64_t{counts[1]} * counts[2];
  Require(counts[0] >= 1 && counts[1] >= 1 && counts[2] >= 1 && layer <= kMost &&
              counts[0] * layer <= kMost,
          "a unit has 1 to 2^31 - 1 tiles");
  Require(run.first >= 0 && run.count >= 0 && run.first + run.count <= counts[0] * layer,
          "a run lies inside the unit's tiles");
}

// What a run of one pass asks of its end.
void RequireFinish(const BlendTilesTask& task) {
  const FinalizeTask& finalize = task.finalize;
  Require(finalize.posts >= 0 && finalize.posts <= kMaxPost, "at most 8 post operations");
  Require(finalize.colours + finalize.alphas == task.out_count &&
              (finalize.colours == 0 || finalize.alphas == 0),
          "all sums are finished, as those of one pass");
  int left = finalize.colours;
  for (int p = 0; p < finalize.posts; ++p) {
    if (finalize.post[p].kind == PostKind::kArgmax) left = std::min(left, 1);
  }
  Require(left + finalize.alphas == finalize.out_channels, "what post operations leave is put out");
  for (int c = 0; c < task.out_count; ++c)
    Require(finalize.accumulator[c] == c, "sums are finished in their order");
}

}  // namespace

bool FinishesInParts(const FinalizeTask& task) {
  for (int p = 0; p < task.posts; ++p) {
    if (task.post[p].kind == PostKind::kSoftmax || task.post[p].kind == PostKind::kArgmax)
      return false;
  }
  return task.alphas == 0;
}

GatherLaunch MakeGatherLaunch(const GatherTask& task, const TileStarts& starts,
                              const TileRun& run) {
  RequireRun(starts.count, run);
  Require(task.channels >= 1 && task.channels <= kMaxInputs, "1 to 32 input channels");
  Require(task.tile[0] >= 1 && task.tile[1] >= 1 && task.tile[2] >= 1 && task.tile[0] <= kMost &&
              task.tile[1] <= kMost && task.tile[2] <= kMost &&
              task.tile[1] * task.tile[2] <= kMost && Voxels(task.tile) <= kMost,
          "a tile has 1 to 2^31 - 1 voxels");
  GatherLaunch launch{};
  launch.task = task;
  if (task.channels == 1) launch.task.layout = ModelLayout::kPlanar;  // both are the same
  launch.starts = starts;
  launch.run = run;
  launch.voxels = static_cast<uint32_t>(Voxels(task.tile));
  launch.tile_y = MakeDivisor(static_cast<uint32_t>(task.tile[1]));
  launch.tile_x = MakeDivisor(static_cast<uint32_t>(task.tile[2]));
  launch.count_y = MakeDivisor(static_cast<uint32_t>(starts.count[1]));
  launch.count_x = MakeDivisor(static_cast<uint32_t>(starts.count[2]));
  launch.staging = launch.task.layout == ModelLayout::kPlanar
                       ? 0
                       : static_cast<int32_t>(StagingBytes(kLanes * GatheredBytes(launch)));
  return launch;
}

CoverBox CoverOf(const TileCovers& covers, const TileRun& run) {
  RequireRun(covers.count, run);
  if (run.count == 0) return {};
  // The run's first and last tile, then whole rows and layers where it goes from one to another.
  const int64_t columns = covers.count[2], rows = covers.count[1];
  const int64_t ends[2] = {run.first, run.first + run.count - 1};
  int64_t tiles[3][2];
  for (int i = 0; i < 2; ++i) {
    tiles[0][i] = ends[i] / columns / rows;
    tiles[1][i] = ends[i] / columns % rows;
    tiles[2][i] = ends[i] % columns;
  }
  if (tiles[0][0] != tiles[0][1]) {
    tiles[1][0] = 0;
    tiles[1][1] = rows - 1;
  }
  if (ends[0] / columns != ends[1] / columns) {
    tiles[2][0] = 0;
    tiles[2][1] = columns - 1;
  }
  CoverBox box{};
  for (int a = 0; a < 3; ++a) {
    box.begin[a] = covers.begin[a][tiles[a][0]];
    box.shape[a] = std::max<int64_t>(covers.end[a][tiles[a][1]] - box.begin[a], 0);
  }
  return box;
}

BlendTilesTask PartOf(const BlendTilesTask& task, int32_t first) {
  Require(!task.mean && task.out_count <= kMaxSums,
          "33 to 256 sums of a voxel are channels of the model");
  BlendTilesTask part = task;
  part.out_count = std::min(task.out_count - first, kMaxFused);
  std::copy_n(task.out + first, part.out_count, part.out);
  part.sums = task.sums + first * Voxels(task.cover_shape);
  if (task.keep) return part;
  RequireFinish(task);
  Require(FinishesInParts(task.finalize),
          "33 to 256 sums of a voxel are kept if they can't be finished one by one");
  FinalizeTask& finalize = part.finalize;
  part.stored_channels = finalize.out_channels;
  finalize.out =
      static_cast<char*>(finalize.out) + first * static_cast<int64_t>(DTypeSize(finalize.dtype));
  finalize.colours = finalize.out_channels = part.out_count;
  return part;
}

BlendLaunch MakeBlendLaunch(const BlendTilesTask& task, const TileRun& run, int voxels_per_lane) {
  RequireRun(task.tile_count, run);
  Require(task.out_count >= 1 && task.out_count <= kMaxFused, "1 to 32 sums in registers");
  for (int c = 0; c < task.out_count; ++c) {
    Require(task.mean || (task.out[c] >= 0 && task.out[c] < task.channels),
            "outputs are channels of the model");
  }
  if (!task.keep) RequireFinish(task);
  const FinalizeTask& finalize = task.finalize;
  BlendLaunch launch{};
  launch.task = task;
  launch.first = static_cast<int32_t>(run.first);
  launch.count = run.count;
  launch.slot = run.slot;
  launch.step = run.step;
  launch.slot_voxels = Voxels(task.tile_shape);
  launch.cover_voxels = Voxels(task.cover_shape);
  for (int a = 0; a < 3; ++a) {
    Require(task.cover_shape[a] <= kMost - 256 && task.tile_shape[a] <= kMost,
            "extents fit 32 bits");
    const int64_t region_end = task.region.begin[a] + task.region.shape[a];
    Require(task.region.begin[a] >= 0 && region_end <= task.cover_shape[a],
            "the region lies inside the cover");
    const int64_t interior_end = task.interior_begin[a] + task.interior_shape[a];
    Require(task.interior_begin[a] >= 0 && interior_end <= task.cover_shape[a],
            "the interior lies inside the cover");
    launch.region_begin[a] = static_cast<int32_t>(task.region.begin[a]);
    launch.region_end[a] = static_cast<int32_t>(region_end);
    launch.interior_begin[a] = static_cast<int32_t>(task.interior_begin[a]);
    launch.interior_end[a] = static_cast<int32_t>(interior_end);
    launch.tile[a] = static_cast<int32_t>(task.tile_shape[a]);
  }
  launch.consecutive = !task.mean;
  for (int c = 1; c < task.out_count; ++c)
    launch.consecutive = launch.consecutive && task.out[c] == task.out[0] + c;
  // Groups of voxels begin at multiples in the cover, so that sums can be written together.
  launch.x_begin = launch.region_begin[2] / kLanes * kLanes;
  if (task.keep) return launch;
  const auto size = static_cast<int32_t>(DTypeSize(finalize.dtype));
  launch.voxel_bytes = finalize.out_channels * size;
  launch.pitch = task.stored_channels > 0 ? task.stored_channels * size : launch.voxel_bytes;
  launch.staging =
      static_cast<int32_t>(StagingBytes(int64_t{kLanes} * voxels_per_lane * launch.voxel_bytes));
  launch.alpha = finalize.alphas > 0;
  launch.quantiser = MakeQuantiser(launch.alpha ? finalize.alpha_terms : finalize.colour_terms);
  return launch;
}

}  // namespace tilery::cuda
