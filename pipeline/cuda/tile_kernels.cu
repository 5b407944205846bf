#include <algorithm>

#include "pipeline/cuda/blend_tiles.cuh"
#include "pipeline/cuda/device_functions.cuh"
#include "pipeline/cuda/finish_tiles.cuh"
#include "pipeline/cuda/gather_tiles.cuh"
#include "pipeline/cuda/staging.cuh"
#include "pipeline/cuda/tile_kernels.h"
#include "pipeline/cuda/tile_launch.cuh"

namespace tilery::cuda {
namespace {

constexpr int kWarps = 8;               // of a block, at most
constexpr int64_t kGridLimit = 65535;   // of y and z; kernels step by the whole grid beyond that
constexpr int kSharedBytes = 48 << 10;  // that every GPU gives without being asked

// Blocks: x: voxels of a tile; y: tiles.
template <typename Stored>
__global__ void __launch_bounds__(kWarps* kLanes)
    GatherTilesKernel(const __grid_constant__ GatherLaunch t) {
  extern __shared__ uint4 shared[];
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int warps = blockDim.x / kLanes;
  const uint32_t begin = (blockIdx.x * warps + warp) * kGatherVoxels;
  if (begin >= t.voxels) return;
  for (int k = blockIdx.y; k < t.run.count; k += gridDim.y) {
    const GatherPlace place = PlaceOf(t, k);
    if (t.task.layout == ModelLayout::kPlanar) {
      GatherPlanar<Stored>(t, place, begin, lane);
      continue;
    }
    char* staged = reinterpret_cast<char*>(shared) + warp * t.staging;
    for (int i = 0; i < kGatherRounds; ++i) {
      const uint32_t first = begin + i * kLanes;
      if (first >= t.voxels) break;
      char* to = GatheredAt(t, place, first);
      const int offset = StagingOffset(to);
      StageVoxel<Stored>(t, place, first, lane, offset, staged);
      __syncwarp();
      CopyStaged(staged, offset, GatheredBytes(t) * GatheredCount(t, first), to, lane);
      __syncwarp();
    }
  }
}

// Blocks: x: segments, blockDim.x / kLanes each; y: rows, blockDim.y each; z: layers.
template <typename Value, int N, int K>
__global__ void __launch_bounds__(kWarps* kLanes, N <= 8 ? 3 : 2)
    BlendTilesKernel(const __grid_constant__ BlendLaunch t) {
  extern __shared__ uint4 shared[];
  const int lane = threadIdx.x % kLanes, column = threadIdx.x / kLanes;
  const int columns = blockDim.x / kLanes;
  // In 64 bits: the last block may begin far beyond the region.
  const int64_t begin = t.x_begin + (int64_t{blockIdx.x} * columns + column) * (kLanes * K);
  if (begin >= t.region_end[2]) return;
  char* staged = reinterpret_cast<char*>(shared) + (threadIdx.y * columns + column) * t.staging;
  const auto segment = static_cast<int32_t>(begin);
  const int32_t x = segment + lane * K;
  for (int32_t z = t.region_begin[0] + blockIdx.z; z < t.region_end[0]; z += gridDim.z) {
    for (int32_t y = t.region_begin[1] + blockIdx.y * blockDim.y + threadIdx.y; y < t.region_end[1];
         y += gridDim.y * blockDim.y) {
      float sum[K][N];
      const Blended done = BlendVoxels<Value>(t, z, y, x, sum);
      KeepSums(t, z, y, x, done, sum);
      // Finished voxels of the segment: [first, first + count).
      int first = kLanes * K, count = 0;
#pragma unroll
      for (int i = 0; i < K; ++i) {
        const uint32_t lanes = __ballot_sync(~0u, done.finished >> i & 1);
        if (lanes == 0) continue;
        count += __popc(lanes);
        first = min(first, (__ffs(static_cast<int>(lanes)) - 1) * K + i);
      }
      if (count == 0) continue;
      char* to = FinishedAt(t, z, y, segment + first);
      const int offset = FinishedOffset(t, to);
      if (done.finished != 0) {
        StageFinished(t, done.finished, sum, offset + (lane * K - first) * t.voxel_bytes, staged);
      }
      __syncwarp();
      CopyFinished(t, staged, offset, count, to, lane);
      __syncwarp();
    }
  }
}

static_assert(sizeof(BlendLaunch) <= 4096, "a kernel's parameters, on every driver");

template <typename Value, int N, int K>
void LaunchBlend(const BlendTilesTask& task, const TileRun& run, Stream stream) {
  const BlendLaunch launch = MakeBlendLaunch(task, run, K);
  const CoverBox& region = task.region;
  int warps = kWarps;
  while (warps > 1 && warps * launch.staging > kSharedBytes) warps /= 2;
  const int64_t segments = (launch.region_end[2] - launch.x_begin + kLanes * K - 1) / (kLanes * K);
  int columns = 1;
  while (columns * 2 <= std::min<int64_t>(warps, segments)) columns *= 2;
  const int rows = warps / columns;
  const dim3 block(columns * kLanes, rows);
  const dim3 grid(static_cast<unsigned>((segments + columns - 1) / columns),
                  static_cast<unsigned>(std::min((region.shape[1] + rows - 1) / rows, kGridLimit)),
                  static_cast<unsigned>(std::min(region.shape[0], kGridLimit)));
  BlendTilesKernel<Value, N, K><<<grid, block, warps * launch.staging, stream>>>(launch);
}

}  // namespace

void GatherTiles(const GatherTask& task, const TileStarts& starts, const TileRun& run,
                 Stream stream) {
  if (run.count == 0) return;
  const GatherLaunch launch = MakeGatherLaunch(task, starts, run);
  const int64_t chunks = (int64_t{launch.voxels} + kGatherVoxels - 1) / kGatherVoxels;
  const int warps = static_cast<int>(std::min<int64_t>(chunks, kWarps));
  const dim3 grid(static_cast<unsigned>((chunks + warps - 1) / warps),
                  static_cast<unsigned>(std::min<int64_t>(run.count, kGridLimit)));
  OnStored(task.dtype, [&](auto stored) {
    GatherTilesKernel<decltype(stored)>
        <<<grid, warps * kLanes, warps * launch.staging, stream>>>(launch);
  });
  CheckLaunch("gather tiles");
}

void BlendTiles(const BlendTilesTask& task, const TileRun& run, Stream stream) {
  if (run.count == 0 || Voxels(task.region.shape) == 0) return;
  if (task.out_count > kMaxFused) {
    for (int32_t first = 0; first < task.out_count; first += kMaxFused)
      BlendTiles(PartOf(task, first), run, stream);
    return;
  }
  OnModelType(task.type, [&](auto value) {
    using Value = decltype(value);
    switch (task.out_count) {
      case 1:
        return LaunchBlend<Value, 1, 4>(task, run, stream);
      case 2:
        return LaunchBlend<Value, 2, 4>(task, run, stream);
      case 3:
        return LaunchBlend<Value, 3, 4>(task, run, stream);
      case 4:
        return LaunchBlend<Value, 4, 4>(task, run, stream);
      default:
        return task.out_count <= 8 ? LaunchBlend<Value, 8, 1>(task, run, stream)
                                   : LaunchBlend<Value, kMaxFused, 1>(task, run, stream);
    }
  });
  CheckLaunch("blend tiles");
}

}  // namespace tilery::cuda
