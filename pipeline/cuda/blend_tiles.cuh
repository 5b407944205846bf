// What one lane of a warp does in BlendTiles: no more than arithmetic, so that tests run it on the
// host too.
//
// A warp takes a segment: kLanes * K neighbours along x, K to a lane. A lane keeps N sums for each
// of its voxels in registers. Voxels of a segment that are finished follow one another without
// gaps, since the tiles of a coordinate never descend along x, so they are one run of bytes in the
// output.
#pragma once

#include "pipeline/cuda/device_functions.cuh"
#include "pipeline/cuda/quantise.cuh"
#include "pipeline/cuda/staging.cuh"
#include "pipeline/cuda/tile_kernels.h"

namespace tilery::cuda {

struct BlendLaunch {
  BlendTilesTask task;
  int32_t first, count, slot, step;  // the run
  int64_t slot_voxels, cover_voxels;
  int32_t x_begin;                         // of the first segment: the region's, or a little before
  int32_t region_begin[3], region_end[3];  // in the cover
  int32_t interior_begin[3], interior_end[3];  // likewise
  int32_t tile[3];                             // tile_shape
  bool consecutive;                            // outputs out[0], out[0] + 1, and so on
  int32_t voxel_bytes;  // of a finished voxel, of which the next begins `pitch` bytes further on
  int32_t pitch;
  int32_t staging;  // bytes of shared memory per warp
  bool alpha;       // all sums are, or none is
  Quantiser quantiser;
};

// `Count` values in one access; `from` must be aligned to all of them.
template <int Count, typename Value>
TILERY_HD void LoadTogether(const Value* from, Value (&to)[Count]) {
  constexpr int kBytes = Count * static_cast<int>(sizeof(Value));
#if defined(__CUDA_ARCH__)
  if constexpr (kBytes == 16) {
    const uint4 bits = *reinterpret_cast<const uint4*>(from);
    memcpy(to, &bits, kBytes);
    return;
  } else if constexpr (kBytes == 8) {
    const uint2 bits = *reinterpret_cast<const uint2*>(from);
    memcpy(to, &bits, kBytes);
    return;
  }
#endif
  memcpy(to, from, kBytes);
}
template <int Count, typename Value>
TILERY_HD bool CanLoadTogether(const Value* from) {
  return (reinterpret_cast<uintptr_t>(from) & (Count * sizeof(Value) - 1)) == 0;
}

// Voxels of a lane as bits: voxel i is bit i.
template <int K>
inline constexpr uint32_t kAllVoxels = (uint32_t{1} << K) - 1;

// Outputs of one slot for K neighbours, of which those of `active` exist. `from`: the slot.
// `voxel`: the place of the first in the slot.
template <typename Value, int N, int K>
TILERY_HD void LoadPlanar(const BlendLaunch& t, const Value* from, int64_t voxel, uint32_t active,
                          float (&value)[K][N]) {
  TILERY_UNROLL
  for (int c = 0; c < N; ++c) {
    if (N > 4 && c >= t.task.out_count) continue;
    const Value* row = from + t.task.out[c] * t.slot_voxels + voxel;
    if (K > 1 && active == kAllVoxels<K> && CanLoadTogether<K>(row)) {
      Value together[K];
      LoadTogether(row, together);
      TILERY_UNROLL
      for (int i = 0; i < K; ++i) value[i][c] = Widen(together[i]);
    } else {
      TILERY_UNROLL
      for (int i = 0; i < K; ++i) {
        if (active >> i & 1) value[i][c] = Widen(row[i]);
      }
    }
  }
}

template <typename Value, int N, int K>
TILERY_HD void LoadChannelsLast(const BlendLaunch& t, const Value* from, int64_t voxel,
                                uint32_t active, float (&value)[K][N]) {
  const Value* row = from + voxel * t.task.channels;
  if constexpr (K > 1) {
    if (active == kAllVoxels<K> && t.task.channels == N && CanLoadTogether<K>(row)) {
      Value all[N][K];  // K * N consecutive values, K at a time
      TILERY_UNROLL
      for (int c = 0; c < N; ++c) LoadTogether(row + c * K, all[c]);
      TILERY_UNROLL
      for (int c = 0; c < N; ++c) {
        TILERY_UNROLL
        for (int i = 0; i < K; ++i) {
          // Chosen by comparing, since registers can't be indexed.
          Value chosen = all[i * N / K][i * N % K];
          TILERY_UNROLL
          for (int k = 1; k < N; ++k) {
            if (t.task.out[c] == k) chosen = all[(i * N + k) / K][(i * N + k) % K];
          }
          value[i][c] = Widen(chosen);
        }
      }
      return;
    }
  }
  constexpr int kAtOnce = kWord / static_cast<int>(sizeof(Value));
  if constexpr (K == 1 && N % kAtOnce == 0) {
    row += t.task.out[0];
    if (t.consecutive && t.task.out_count == N && CanLoadTogether<kAtOnce>(row)) {
      if (active == 0) return;
      TILERY_UNROLL
      for (int c = 0; c < N; c += kAtOnce) {
        Value together[kAtOnce];
        LoadTogether(row + c, together);
        TILERY_UNROLL
        for (int k = 0; k < kAtOnce; ++k) value[0][c + k] = Widen(together[k]);
      }
      return;
    }
    row -= t.task.out[0];
  }
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) {
      if ((active >> i & 1) && (N <= 4 || c < t.task.out_count)) {
        value[i][c] = Widen(row[i * t.task.channels + t.task.out[c]]);
      }
    }
  }
}

// The mean of all channels, for every accumulator: MeanOf().
template <typename Value, int N, int K>
TILERY_HD void LoadMean(const BlendLaunch& t, const Value* from, int64_t voxel, uint32_t active,
                        float (&value)[K][N]) {
  const bool planar = t.task.layout == ModelLayout::kPlanar;
  const int64_t step = planar ? t.slot_voxels : 1, next = planar ? 1 : t.task.channels;
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    if (!(active >> i & 1)) continue;
    const Value* at = from + (voxel + i) * next;
    double sum = 0;
    for (int c = 0; c < t.task.channels; ++c) sum += static_cast<double>(Widen(at[c * step]));
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) value[i][c] = static_cast<float>(sum / t.task.channels);
  }
}

template <typename Value, int N, int K>
TILERY_HD void LoadVoxels(const BlendLaunch& t, const Value* from, int64_t voxel, uint32_t active,
                          float (&value)[K][N]) {
  if (t.task.mean) {
    LoadMean(t, from, voxel, active, value);
  } else if (t.task.layout == ModelLayout::kPlanar) {
    LoadPlanar(t, from, voxel, active, value);
  } else {
    LoadChannelsLast(t, from, voxel, active, value);
  }
}

// Which voxels of a lane got a share of this run, and which of those are complete and go to the
// interior.
struct Blended {
  uint32_t touched = 0, finished = 0;
};

// The tiles of voxels along an axis: [first, end).
struct TileRange {
  int32_t first, end;
};
TILERY_HD TileRange TilesAt(const AxisWindows& axis, int32_t at) {
  const int32_t first = axis.first[at];
  return {first, first + axis.tiles[at]};
}

// Goes on with the sums of those voxels of `wanted` whose first tile came before this run.
template <int N, int K, typename OfVoxel>
TILERY_HD void TakeSums(const BlendLaunch& t, int32_t z, int32_t y, int32_t x, uint32_t wanted,
                        const OfVoxel& of_voxel, int32_t first_row, float (&sum)[K][N]) {
  const int64_t at = (z * t.task.cover_shape[1] + y) * t.task.cover_shape[2] + x;
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    if (!(wanted >> i & 1) || first_row + of_voxel(i).first >= 0) continue;
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) {
      if (N <= 4 || c < t.task.out_count) sum[i][c] = t.task.sums[c * t.cover_voxels + at + i];
    }
  }
}

// BlendVoxels() where one or more tiles lie over each voxel. Out of line, and so apart from what
// most voxels need: its many registers must not be theirs.
template <typename Value, int N, int K>
TILERY_HD TILERY_NOINLINE Blended BlendMany(const BlendLaunch& t, int32_t z, int32_t y, int32_t x,
                                            float (&sum)[K][N]) {
  const BlendTilesTask& task = t.task;
  const int32_t low = x < t.region_begin[2] ? t.region_begin[2] - x : 0;
  const int32_t high = (t.region_end[2] - x < K ? t.region_end[2] - x : K) - 1;
  if (low > high) return {};
  const uint32_t valid = (kAllVoxels<K> >> (K - 1 - high)) & (kAllVoxels<K> << low);

  // If both ends of the lane have the same tiles, so have all between. Other lanes look each of
  // their voxels up when they need it: they are few.
  const TileRange on_z = TilesAt(task.axis[0], z), on_y = TilesAt(task.axis[1], y);
  TileRange on_x = TilesAt(task.axis[2], x + low);
  bool same = true;
  if (K > 1) {
    const TileRange at_high = TilesAt(task.axis[2], x + high);
    same = at_high.first == on_x.first && at_high.end == on_x.end;
    on_x.end = at_high.end;
  }
  const auto of_voxel = [&](int i) { return same ? on_x : TilesAt(task.axis[2], x + i); };
  // Numbers of tiles that count from the run's first.
  const int32_t rows = task.tile_count[1], columns = task.tile_count[2];
  const int32_t first_row = (on_z.first * rows + on_y.first) * columns - t.first;
  const int32_t last_row = ((on_z.end - 1) * rows + on_y.end - 1) * columns - t.first;
  if (first_row + on_x.first >= t.count || last_row + on_x.end - 1 < 0) return {};

  const bool in_z = z >= t.interior_begin[0] && z < t.interior_end[0];
  const bool in_y = y >= t.interior_begin[1] && y < t.interior_end[1];
  uint32_t in_x = 0;
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    if (x + i >= t.interior_begin[2] && x + i < t.interior_end[2]) in_x |= uint32_t{1} << i;
  }
  const bool alone_z = in_z && on_z.end - on_z.first == 1;
  const bool alone_y = in_y && on_y.end - on_y.first == 1;
  const bool alone_x = on_x.end - on_x.first == 1;

  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) sum[i][c] = 0;
  }
  Blended done;
  for (int32_t tile_z = on_z.first; tile_z < on_z.end; ++tile_z) {
    const auto place_z = static_cast<int32_t>(z - task.axis[0].begin[tile_z]);
    const float weight_z =
        alone_z ? 1.0f : task.axis[0].weights[int64_t{tile_z} * t.tile[0] + place_z];
    for (int32_t tile_y = on_y.first; tile_y < on_y.end; ++tile_y) {
      const int32_t row = (tile_z * rows + tile_y) * columns - t.first;
      const int32_t begin = on_x.first > -row ? on_x.first : -row;
      const int32_t end = on_x.end < t.count - row ? on_x.end : t.count - row;
      if (begin >= end) continue;
      const auto place_y = static_cast<int32_t>(y - task.axis[1].begin[tile_y]);
      const float weight_y =
          alone_y ? 1.0f : task.axis[1].weights[int64_t{tile_y} * t.tile[1] + place_y];
      const int64_t line = (int64_t{place_z} * t.tile[1] + place_y) * t.tile[2];
      for (int32_t tile_x = begin; tile_x < end; ++tile_x) {
        uint32_t active = valid;
        if (!same) {
          TILERY_UNROLL
          for (int i = 0; i < K; ++i) {
            if (!(valid >> i & 1)) continue;
            const TileRange own = TilesAt(task.axis[2], x + i);
            if (tile_x < own.first || tile_x >= own.end) active &= ~(uint32_t{1} << i);
          }
        }
        const int64_t slot = t.slot + int64_t{row + tile_x} * t.step;
        const auto place_x = static_cast<int32_t>(x - task.axis[2].begin[tile_x]);
        const Value* from =
            static_cast<const Value*>(task.output) + slot * task.channels * t.slot_voxels;
        float value[K][N];
        LoadVoxels(t, from, line + place_x, active, value);
        if (first_row + on_x.first < 0) {  // runs before this one may have begun these sums
          TakeSums(t, z, y, x, active & ~done.touched, of_voxel, first_row, sum);
        }
        done.touched |= active;
        const float* weights = task.axis[2].weights + int64_t{tile_x} * t.tile[2] + place_x;
        TILERY_UNROLL
        for (int i = 0; i < K; ++i) {
          if (!(active >> i & 1)) continue;
          bool alone = same && alone_x;
          if (!same) {
            const TileRange own = TilesAt(task.axis[2], x + i);
            alone = own.end - own.first == 1;
          }
          const float weight_x = alone && (in_x >> i & 1) ? 1.0f : weights[i];
          const float weight = Weight(weight_z, weight_y, weight_x);
          TILERY_UNROLL
          for (int c = 0; c < N; ++c) {
            if (N <= 4 || c < task.out_count) sum[i][c] += weight * value[i][c];
          }
        }
      }
    }
  }
  if (in_z && in_y) {
    TILERY_UNROLL
    for (int i = 0; i < K; ++i) {
      const uint32_t bit = uint32_t{1} << i;
      if ((done.touched & in_x & bit) == 0) continue;
      if (last_row + of_voxel(i).end - 1 < t.count) done.finished |= bit;
    }
  }
  return done;
}

// BlendVoxels() where all voxels of the lane lie in the interior and under one tile alone, whose
// weight is 1. Returns whether that is so.
template <typename Value, int N, int K>
TILERY_HD bool BlendAlone(const BlendLaunch& t, int32_t z, int32_t y, int32_t x, float (&sum)[K][N],
                          Blended* done) {
  const BlendTilesTask& task = t.task;
  if (z < t.interior_begin[0] || z >= t.interior_end[0]) return false;
  if (y < t.interior_begin[1] || y >= t.interior_end[1]) return false;
  const int32_t low = x < t.region_begin[2] ? t.region_begin[2] - x : 0;
  const int32_t high = (t.region_end[2] - x < K ? t.region_end[2] - x : K) - 1;
  if (low > high) return true;  // and nothing to do
  if (x + low < t.interior_begin[2] || x + high >= t.interior_end[2]) return false;
  const int32_t tile_z = task.axis[0].first[z], tile_y = task.axis[1].first[y];
  const int32_t tile_x = task.axis[2].first[x + low];
  if (task.axis[0].tiles[z] != 1 || task.axis[1].tiles[y] != 1 ||
      task.axis[2].tiles[x + low] != 1) {
    return false;
  }
  if (K > 1 && (task.axis[2].first[x + high] != tile_x || task.axis[2].tiles[x + high] != 1)) {
    return false;
  }
  const int32_t tile =
      (tile_z * task.tile_count[1] + tile_y) * task.tile_count[2] + tile_x - t.first;
  if (tile < 0 || tile >= t.count) return true;  // another run's
  const auto place_z = static_cast<int32_t>(z - task.axis[0].begin[tile_z]);
  const auto place_y = static_cast<int32_t>(y - task.axis[1].begin[tile_y]);
  const auto place_x = static_cast<int32_t>(x - task.axis[2].begin[tile_x]);
  const int64_t voxel = (int64_t{place_z} * t.tile[1] + place_y) * t.tile[2] + place_x;
  const int64_t slot = t.slot + int64_t{tile} * t.step;
  const Value* from = static_cast<const Value*>(task.output) + slot * task.channels * t.slot_voxels;
  done->touched = done->finished = (kAllVoxels<K> >> (K - 1 - high)) & (kAllVoxels<K> << low);
  LoadVoxels(t, from, voxel, done->touched, sum);
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) sum[i][c] = 0.0f + sum[i][c];  // as a sum: -0 becomes 0
  }
  return true;
}

// Sums of the run's tiles over the voxels (z, y, x + i), i < K, of those that lie in the region.
// What other runs added before is taken from t.task.sums.
template <typename Value, int N, int K>
TILERY_HD Blended BlendVoxels(const BlendLaunch& t, int32_t z, int32_t y, int32_t x,
                              float (&sum)[K][N]) {
  Blended done;
  if (BlendAlone<Value>(t, z, y, x, sum, &done)) {
    if (t.task.keep) done.finished = 0;
    return done;
  }
  float memory[K][N];
  done = BlendMany<Value>(t, z, y, x, memory);
  if (t.task.keep) done.finished = 0;
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) sum[i][c] = memory[i][c];
  }
  return done;
}

// Keeps the sums of voxels that are not finished: more tiles follow, or other units do.
template <int N, int K>
TILERY_HD void KeepSums(const BlendLaunch& t, int32_t z, int32_t y, int32_t x, const Blended& done,
                        const float (&sum)[K][N]) {
  const uint32_t kept = done.touched & ~done.finished;
  if (kept == 0) return;
  const int64_t at = (z * t.task.cover_shape[1] + y) * t.task.cover_shape[2] + x;
  TILERY_UNROLL
  for (int c = 0; c < N; ++c) {
    if (N > 4 && c >= t.task.out_count) continue;
    float* to = t.task.sums + c * t.cover_voxels + at;
#if defined(__CUDA_ARCH__)
    if constexpr (K == 4) {
      if (kept == kAllVoxels<K> && CanLoadTogether<K>(to)) {
        *reinterpret_cast<float4*>(to) = {sum[0][c], sum[1][c], sum[2][c], sum[3][c]};
        continue;
      }
    }
#endif
    TILERY_UNROLL
    for (int i = 0; i < K; ++i) {
      if (kept >> i & 1) to[i] = sum[i][c];
    }
  }
}

}  // namespace tilery::cuda
