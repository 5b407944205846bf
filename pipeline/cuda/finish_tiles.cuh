// What one lane of a warp does in BlendTiles once voxels are summed: post operations, conversion,
// and where the samples go. Arithmetic alone, as in blend_tiles.cuh.
#pragma once

#include <type_traits>

#include "pipeline/cuda/blend_tiles.cuh"
#include "pipeline/cuda/device_functions.cuh"
#include "pipeline/cuda/quantise.cuh"
#include "pipeline/cuda/staging.cuh"

namespace tilery::cuda {

// Post operations on the colours of a lane's voxels. Returns how many channels are left.
template <int N, int K>
TILERY_HD int PostVoxels(const FinalizeTask& t, float (&v)[K][N]) {
  if (t.posts == 0 || t.colours == 0) return t.colours + t.alphas;
  int left = t.colours, first = 0;
  if (t.post[0].kind == PostKind::kArgmax) {  // often the only one: Argmax(), in registers
    TILERY_UNROLL
    for (int i = 0; i < K; ++i) {
      float top = v[i][0], best = 0;
      TILERY_UNROLL
      for (int c = 1; c < N; ++c) {
        if (c < t.colours && v[i][c] > top) {
          top = v[i][c];
          best = static_cast<float>(c);
        }
      }
      v[i][0] = best;
    }
    left = first = 1;
    if (t.posts == 1) return left;
  }
  float memory[K][N];  // apart from `v`, which stays in registers where there is nothing to do
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) memory[i][c] = v[i][c];
  }
  int after = left;
  TILERY_ROLLED
  for (int i = 0; i < K; ++i) after = ApplyPost(t, first, left, memory[i]);
  TILERY_UNROLL
  for (int i = 0; i < K; ++i) {
    TILERY_UNROLL
    for (int c = 0; c < N; ++c) v[i][c] = memory[i][c];
  }
  return after;
}

// Converts one lane's finished voxels and stages them, voxel by voxel. `byte`: of its first voxel,
// as if that were finished too.
template <int N, int K>
TILERY_HD void StageFinished(const BlendLaunch& t, uint32_t finished, float (&sum)[K][N], int byte,
                             char* staged) {
  const FinalizeTask& finalize = t.task.finalize;
  const int channels = PostVoxels(finalize, sum);
  if (t.alpha) {
    TILERY_UNROLL
    for (int i = 0; i < K; ++i) {
      TILERY_UNROLL
      for (int c = 0; c < N; ++c) {
        sum[i][c] = Clamp(sum[i][c], finalize.range_lo, finalize.range_hi);
      }
    }
  }
  // `encode` gives a stored value, or takes back that it is sure.
  const auto each = [&](auto encode) {
    bool certain = true;
    using Stored = decltype(encode(0.0f, &certain));
    constexpr int kSize = static_cast<int>(sizeof(Stored));
    uint32_t doubtful = 0;
    TILERY_UNROLL
    for (int i = 0; i < K; ++i) {
      if (!(finished >> i & 1)) continue;
      TILERY_UNROLL
      for (int c = 0; c < N; ++c) {
        if (c >= channels) continue;
        bool sure = true;
        Stage(staged, byte + i * t.voxel_bytes + c * kSize, encode(sum[i][c], &sure));
        if (!sure) doubtful |= uint32_t{1} << (i * N + c);
      }
    }
    if constexpr (std::is_integral_v<Stored>) {
      // Rare, hence apart: one copy of the formula instead of one for each value.
      TILERY_ROLLED
      for (int number = 0; doubtful != 0; ++number, doubtful >>= 1) {
        if (!(doubtful & 1)) continue;
        float value = sum[0][0];
        TILERY_UNROLL
        for (int k = 1; k < K * N; ++k) {
          if (k == number) value = sum[k / N][k % N];
        }
        const double whole = Quantise(value, t.quantiser.terms);
        Stage(staged, byte + number / N * t.voxel_bytes + number % N * kSize,
              static_cast<Stored>(static_cast<int64_t>(whole)));
      }
    }
  };
  switch (finalize.dtype) {
    case DType::kU8:
    case DType::kI8:
      return each([&](float v, bool* sure) {
        return static_cast<uint8_t>(QuantiseInteger(v, t.quantiser, sure));
      });
    case DType::kU16:
    case DType::kI16:
      return each([&](float v, bool* sure) {
        return static_cast<uint16_t>(QuantiseInteger(v, t.quantiser, sure));
      });
    case DType::kU32:
    case DType::kI32:
      return each([](float, bool* sure) {
        *sure = false;
        return uint32_t{0};
      });
    case DType::kF16:
      return each([&](float v, bool*) {
        __half half;
        StoreHalf(v, &half, finalize.overflow);
        return half;
      });
    case DType::kF32:
      return each([](float v, bool*) { return v; });
    case DType::kF64:
      return each([](float v, bool*) { return static_cast<double>(v); });
  }
}

// Where the finished voxel (z, y, x) goes.
TILERY_HD char* FinishedAt(const BlendLaunch& t, int32_t z, int32_t y, int32_t x) {
  const int64_t row =
      int64_t{z - t.interior_begin[0]} * t.task.interior_shape[1] + y - t.interior_begin[1];
  const int64_t voxel = row * t.task.interior_shape[2] + x - t.interior_begin[2];
  return static_cast<char*>(t.task.finalize.out) + voxel * t.pitch;
}

// Where in the staging memory a run of finished voxels begins that goes to `to`, and one lane's
// share of copying all `count` of them there.
TILERY_HD int FinishedOffset(const BlendLaunch& t, const char* to) {
  return t.pitch == t.voxel_bytes ? StagingOffset(to) : 0;
}
TILERY_HD void CopyFinished(const BlendLaunch& t, const char* staged, int offset, int count,
                            char* to, int lane) {
  if (t.pitch == t.voxel_bytes) {
    CopyStaged(staged, offset, count * t.voxel_bytes, to, lane);
  } else {
    CopyStagedRows(staged, t.voxel_bytes, count, to, t.pitch, lane);
  }
}

}  // namespace tilery::cuda
