// What one lane of a warp does in GatherTiles: no more than arithmetic, so that tests run it on the
// host too.
//
// A warp takes kGatherVoxels consecutive voxels of one tile, z, y, x flattened.
#pragma once

#include "pipeline/cuda/device_functions.cuh"
#include "pipeline/cuda/staging.cuh"
#include "pipeline/cuda/tile_kernels.h"

namespace tilery::cuda {

inline constexpr int kGatherRounds = 4;
inline constexpr int kGatherVoxels = kGatherRounds * kLanes;

// Division by a number that all threads share: a multiplication and a shift, exact for n < 2^31.
struct Divisor {
  uint32_t divisor, multiplier;
  int shift;
};
inline Divisor MakeDivisor(uint32_t d) {
  int shift = 0;
  while ((uint64_t{1} << shift) < d) ++shift;
  const uint64_t power = uint64_t{1} << shift;
  return {d, static_cast<uint32_t>(((power - d) << 32) / d + 1), shift};
}
TILERY_HD uint32_t Divide(uint32_t n, const Divisor& d) {
  return (static_cast<uint32_t>((uint64_t{n} * d.multiplier) >> 32) + n) >> d.shift;
}

struct GatherLaunch {
  GatherTask task;
  TileStarts starts;
  TileRun run;
  uint32_t voxels;  // of a tile
  Divisor tile_y, tile_x, count_y, count_x;
  int32_t staging;  // bytes of shared memory per warp
};

// A tile of the run, and its slot.
struct GatherPlace {
  int64_t begin[3];
  int64_t slot;
};
TILERY_HD GatherPlace PlaceOf(const GatherLaunch& t, uint32_t k) {
  const auto tile = static_cast<uint32_t>(t.run.first) + k;
  const uint32_t row = Divide(tile, t.count_x), layer = Divide(row, t.count_y);
  return {{t.starts.begin[0][layer], t.starts.begin[1][row - layer * t.count_y.divisor],
           t.starts.begin[2][tile - row * t.count_x.divisor]},
          t.run.slot + static_cast<int64_t>(k) * t.run.step};
}

// Where the samples of a tile's voxel lie; null for padding with zero.
TILERY_HD const char* SamplesOf(const GatherLaunch& t, const GatherPlace& place, uint32_t voxel) {
  const uint32_t row = Divide(voxel, t.tile_x), layer = Divide(row, t.tile_y);
  const uint32_t at[3] = {layer, row - layer * t.tile_y.divisor, voxel - row * t.tile_x.divisor};
  const char* samples = static_cast<const char*>(t.task.samples);
  bool none = false;
  TILERY_UNROLL
  for (int a = 0; a < 3; ++a) {
    const int64_t from = Source(place.begin[a] + at[a], t.task.item[a], t.task.pad);
    none = none || from < 0;
    samples += (from - t.task.origin[a]) * t.task.stride[a + 1];
  }
  return none ? nullptr : samples;
}

template <typename Stored>
TILERY_HD Stored LoadStored(const GatherLaunch& t, const char* samples,
                            const InputChannel& channel) {
  if (samples == nullptr) return Stored{};
  return *reinterpret_cast<const Stored*>(samples + channel.stored * t.task.stride[0]);
}

template <typename Stored>
TILERY_HD float ModelValue(const GatherLaunch& t, const char* samples, Stored stored,
                           const InputChannel& channel) {
  const float value = samples == nullptr ? channel.zero : InputValue(stored, channel);
  return t.task.replace_nonfinite && !IsFinite(value) ? channel.filling : value;
}

// Planar slots: lane `lane` of the warp whose first voxel is `begin`.
template <typename Stored>
TILERY_HD void GatherPlanar(const GatherLaunch& t, const GatherPlace& place, uint32_t begin,
                            int lane) {
  const char* samples[kGatherRounds];
  TILERY_UNROLL
  for (int i = 0; i < kGatherRounds; ++i) {
    const uint32_t voxel = begin + lane + i * kLanes;
    samples[i] = voxel < t.voxels ? SamplesOf(t, place, voxel) : nullptr;
  }
  const int64_t slot = place.slot * t.task.channels * t.voxels;
  for (int c = 0; c < t.task.channels; ++c) {
    const InputChannel& channel = t.task.channel[c];
    Stored stored[kGatherRounds];
    TILERY_UNROLL
    for (int i = 0; i < kGatherRounds; ++i) stored[i] = LoadStored<Stored>(t, samples[i], channel);
    const int64_t plane = slot + static_cast<int64_t>(c) * t.voxels;
    TILERY_UNROLL
    for (int i = 0; i < kGatherRounds; ++i) {
      const uint32_t voxel = begin + lane + i * kLanes;
      if (voxel >= t.voxels) continue;
      const float value = ModelValue(t, samples[i], stored[i], channel);
      if (t.task.type == ModelType::kF32) {
        Narrow(value, static_cast<float*>(t.task.out) + plane + voxel);
      } else if (t.task.type == ModelType::kF16) {
        Narrow(value, static_cast<__half*>(t.task.out) + plane + voxel);
      } else {
        Narrow(value, static_cast<__nv_bfloat16*>(t.task.out) + plane + voxel);
      }
    }
  }
}

// Channels-last slots: a warp stages the channels of kLanes voxels, then copies them. Bytes of a
// voxel, how many voxels there are from `begin` on, and where they go.
TILERY_HD int GatheredBytes(const GatherLaunch& t) {
  return t.task.channels * (t.task.type == ModelType::kF32 ? 4 : 2);
}
TILERY_HD int GatheredCount(const GatherLaunch& t, uint32_t begin) {
  return t.voxels - begin < kLanes ? static_cast<int>(t.voxels - begin) : kLanes;
}
TILERY_HD char* GatheredAt(const GatherLaunch& t, const GatherPlace& place, uint32_t begin) {
  return static_cast<char*>(t.task.out) + (place.slot * t.voxels + begin) * GatheredBytes(t);
}

template <typename Stored>
TILERY_HD void StageVoxel(const GatherLaunch& t, const GatherPlace& place, uint32_t begin, int lane,
                          int offset, char* staged) {
  constexpr int kAtOnce = 4;  // loads on their way together
  const uint32_t voxel = begin + lane;
  if (voxel >= t.voxels) return;
  const char* samples = SamplesOf(t, place, voxel);
  const int size = t.task.type == ModelType::kF32 ? 4 : 2;
  int byte = offset + lane * GatheredBytes(t);
  for (int c = 0; c < t.task.channels; c += kAtOnce) {
    Stored stored[kAtOnce];
    TILERY_UNROLL
    for (int i = 0; i < kAtOnce; ++i) {
      if (c + i < t.task.channels) {
        stored[i] = LoadStored<Stored>(t, samples, t.task.channel[c + i]);
      }
    }
    TILERY_UNROLL
    for (int i = 0; i < kAtOnce; ++i, byte += size) {
      if (c + i >= t.task.channels) continue;
      const float value = ModelValue(t, samples, stored[i], t.task.channel[c + i]);
      if (t.task.type == ModelType::kF32) {
        Stage(staged, byte, value);
      } else if (t.task.type == ModelType::kF16) {
        __half half;
        Narrow(value, &half);
        Stage(staged, byte, half);
      } else {
        __nv_bfloat16 half;
        Narrow(value, &half);
        Stage(staged, byte, half);
      }
    }
  }
}

}  // namespace tilery::cuda
