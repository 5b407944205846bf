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
  int64_t x_begin;        // of the first segment: the region's, or a little before
  int64_t region_end[3];  // in the cover
  int32_t voxel_bytes;    // of a finished voxel
  int32_t staging;        // bytes of shared memory per warp
  Quantiser colour, alpha;
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

// Which voxels of a lane got a share of this run, and which of those are complete and go to the
// interior.
struct Blended {
  uint32_t touched = 0, finished = 0;
};

// Sums of the run's tiles over the voxels (z, y, x + i), i < K, of those that lie in the region.
// What other runs added before is taken from t.task.sums.
template <typename Value, int N, int K>
TILERY_HD Blended BlendVoxels(const BlendLaunch& t, int64_t z, int64_t y, int64_t x,
                              float (&sum)[K][N]) {
  const BlendTilesTask& task = t.task;
  const AxisWindows &wz = task.axis[0], &wy = task.axis[1], &wx = task.axis[2];
  const int low = static_cast<int>(x < task.region.begin[2] ? task.region.begin[2] - x : 0);
  const int high = static_cast<int>(t.region_end[2] - x < K ? t.region_end[2] - x : K) - 1;
  if (low > high) return {};

  // Tiles of each voxel along x: [first, end). If both ends of the lane agree, so do all between.
  int32_t first_x[K], end_x[K];
  const int32_t least_x = wx.first[x + low], most_x = wx.first[x + high] + wx.tiles[x + high];
  const bool same =
      K == 1 || (wx.first[x + high] == least_x && least_x + wx.tiles[x + low] == most_x);
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    first_x[i] = least_x;
    end_x[i] = most_x;
    if (i < low || i > high) {
      end_x[i] = least_x;  // none
    } else if (!same) {
      first_x[i] = wx.first[x + i];
      end_x[i] = first_x[i] + wx.tiles[x + i];
    }
  }
  const int32_t first_z = wz.first[z], end_z = first_z + wz.tiles[z];
  const int32_t first_y = wy.first[y], end_y = first_y + wy.tiles[y];
  // Numbers of tiles that count from the run's first.
  const int32_t rows = task.tile_count[1], columns = task.tile_count[2];
  const int32_t first_row = (first_z * rows + first_y) * columns - t.first;
  const int32_t last_row = ((end_z - 1) * rows + end_y - 1) * columns - t.first;
  if (first_row + least_x >= t.count || last_row + most_x - 1 < 0) return {};

  const int64_t inside_z = z - task.interior_begin[0], inside_y = y - task.interior_begin[1];
  const int64_t inside_x = x - task.interior_begin[2];
  const bool in_z = inside_z >= 0 && inside_z < task.interior_shape[0];
  const bool in_y = inside_y >= 0 && inside_y < task.interior_shape[1];
  uint32_t in_x = 0, alone_x = 0;
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    if (inside_x + i < 0 || inside_x + i >= task.interior_shape[2]) continue;
    in_x |= uint32_t{1} << i;
    if (end_x[i] - first_x[i] == 1) alone_x |= uint32_t{1} << i;
  }
  const bool alone_z = in_z && end_z - first_z == 1, alone_y = in_y && end_y - first_y == 1;

  const int64_t at = (z * task.cover_shape[1] + y) * task.cover_shape[2] + x;  // in the sums
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) sum[i][c] = 0;
  }
  Blended done;
  for (int32_t tile_z = first_z; tile_z < end_z; ++tile_z) {
    const int64_t place_z = z - wz.begin[tile_z];
    const float weight_z = alone_z ? 1.0f : wz.weights[tile_z * task.tile_shape[0] + place_z];
    for (int32_t tile_y = first_y; tile_y < end_y; ++tile_y) {
      const int32_t row = (tile_z * rows + tile_y) * columns - t.first;
      const int32_t begin = least_x > -row ? least_x : -row;
      const int32_t end = most_x < t.count - row ? most_x : t.count - row;
      if (begin >= end) continue;
      const int64_t place_y = y - wy.begin[tile_y];
      const float weight_y = alone_y ? 1.0f : wy.weights[tile_y * task.tile_shape[1] + place_y];
      const int64_t line = (place_z * task.tile_shape[1] + place_y) * task.tile_shape[2];
      for (int32_t tile_x = begin; tile_x < end; ++tile_x) {
        uint32_t active = 0;
        TILERY_UNROLL
        for (int i = 0; i < K; ++i) {
          if (tile_x >= first_x[i] && tile_x < end_x[i]) active |= uint32_t{1} << i;
        }
        const int64_t slot = t.slot + int64_t{row + tile_x} * t.step;
        const int64_t place_x = x - wx.begin[tile_x];
        const Value* from =
            static_cast<const Value*>(task.output) + slot * task.channels * t.slot_voxels;
        float value[K][N];
        if (task.mean) {
          LoadMean<Value>(t, from, line + place_x, active, value);
        } else if (task.layout == ModelLayout::kPlanar) {
          LoadPlanar<Value>(t, from, line + place_x, active, value);
        } else {
          LoadChannelsLast<Value>(t, from, line + place_x, active, value);
        }
        const float* weights = wx.weights + tile_x * task.tile_shape[2] + place_x;
        TILERY_UNROLL
        for (int i = 0; i < K; ++i) {
          if (!(active >> i & 1)) continue;
          if (!(done.touched >> i & 1) && first_row + first_x[i] < 0) {
            TILERY_UNROLL
            for (int c = 0; c < N; ++c) {
              if (N <= 4 || c < task.out_count) sum[i][c] = task.sums[c * t.cover_voxels + at + i];
            }
          }
          done.touched |= uint32_t{1} << i;
          const float weight = Weight(weight_z, weight_y, alone_x >> i & 1 ? 1.0f : weights[i]);
          TILERY_UNROLL
          for (int c = 0; c < N; ++c) {
            if (N <= 4 || c < task.out_count) sum[i][c] += weight * value[i][c];
          }
        }
      }
    }
  }
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    const int32_t last = last_row + end_x[i] - 1;
    if (in_z && in_y && last < t.count) done.finished |= done.touched & in_x & uint32_t{1} << i;
  }
  return done;
}

// Keeps the sums of voxels that are not finished: more tiles follow, or other units do.
template <int N, int K>
TILERY_HD void KeepSums(const BlendLaunch& t, int64_t z, int64_t y, int64_t x, const Blended& done,
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

// Post operations on one voxel's colours. Returns how many are left.
template <int N>
TILERY_HD int PostOf(const FinalizeTask& t, float (&v)[N]) {
  if (t.posts == 0 || t.colours == 0) return t.colours;
  if (t.post[0].kind == PostKind::kArgmax) {  // often the only one: Argmax(), in registers
    float top = v[0], best = 0;
    TILERY_UNROLL
    for (int c = 1; c < N; ++c) {
      if (c < t.colours && v[c] > top) {
        top = v[c];
        best = static_cast<float>(c);
      }
    }
    ApplyPost(t, 1, 1, &best);
    v[0] = best;
    return 1;
  }
  float memory[N];  // apart from `v`, which stays in registers where no operation is asked for
  TILERY_UNROLL
  for (int c = 0; c < N; ++c) memory[c] = v[c];
  const int colours = ApplyPost(t, 0, t.colours, memory);
  TILERY_UNROLL
  for (int c = 0; c < N; ++c) v[c] = memory[c];
  return colours;
}

// Calls `store` with each output value of a voxel, its number and its quantiser.
template <int N, typename Store>
TILERY_HD void EachOutput(const BlendLaunch& t, const float (&v)[N], int colours,
                          const Store& store) {
  const FinalizeTask& finalize = t.task.finalize;
  TILERY_UNROLL
  for (int c = 0; c < N; ++c) {
    if (c < finalize.colours) {
      if (c < colours) store(v[c], c, t.colour);
    } else if (c < finalize.colours + finalize.alphas) {
      store(Clamp(v[c], finalize.range_lo, finalize.range_hi), colours + c - finalize.colours,
            t.alpha);
    }
  }
}

// Converts one lane's finished voxels and stages them from `byte` on, voxel by voxel.
template <int N, int K>
TILERY_HD void StageFinished(const BlendLaunch& t, uint32_t finished, float (&sum)[K][N], int byte,
                             char* staged) {
  const FinalizeTask& finalize = t.task.finalize;
  const auto each = [&](auto encode) {
    using Stored = decltype(encode(0.0f, t.colour));
    TILERY_UNROLL
    for (int i = 0; i < K; ++i) {
      if (!(finished >> i & 1)) continue;
      const int colours = PostOf(finalize, sum[i]);
      EachOutput(t, sum[i], colours, [&](float value, int number, const Quantiser& quantiser) {
        Stage(staged, byte + number * static_cast<int>(sizeof(Stored)), encode(value, quantiser));
      });
      byte += t.voxel_bytes;
    }
  };
  switch (finalize.dtype) {
    case DType::kU8:
    case DType::kI8:
      return each(
          [](float v, const Quantiser& q) { return static_cast<uint8_t>(QuantiseInteger(v, q)); });
    case DType::kU16:
    case DType::kI16:
      return each(
          [](float v, const Quantiser& q) { return static_cast<uint16_t>(QuantiseInteger(v, q)); });
    case DType::kU32:
    case DType::kI32:
      return each([](float v, const Quantiser& q) {
        return static_cast<uint32_t>(static_cast<int64_t>(Quantise(v, q.terms)));
      });
    case DType::kF16:
      return each([&](float v, const Quantiser&) {
        __half half;
        StoreHalf(v, &half, finalize.overflow);
        return half;
      });
    case DType::kF32:
      return each([](float v, const Quantiser&) { return v; });
    case DType::kF64:
      return each([](float v, const Quantiser&) { return static_cast<double>(v); });
  }
}

// Where the finished voxel (z, y, x) goes.
TILERY_HD char* FinishedAt(const BlendLaunch& t, int64_t z, int64_t y, int64_t x) {
  const BlendTilesTask& task = t.task;
  const int64_t voxel =
      ((z - task.interior_begin[0]) * task.interior_shape[1] + y - task.interior_begin[1]) *
          task.interior_shape[2] +
      x - task.interior_begin[2];
  return static_cast<char*>(task.finalize.out) + voxel * t.voxel_bytes;
}

}  // namespace tilery::cuda
