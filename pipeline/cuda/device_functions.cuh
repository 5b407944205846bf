// What kernels share: formulas over one value or one voxel, and how a launch is chosen and checked.
//
// For .cu files of this folder, and for tests that run the functions of single voxels on the host:
// those are TILERY_HD, and free of anything that only a GPU has.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "io/error.h"
#include "pipeline/cuda/kernels.h"

#if defined(__CUDACC__)
#define TILERY_NOINLINE __noinline__
#define TILERY_UNROLL _Pragma("unroll")
#define TILERY_ROLLED _Pragma("unroll 1")
#else
#define TILERY_NOINLINE
#define TILERY_UNROLL
#define TILERY_ROLLED
#endif

namespace tilery::cuda {

TILERY_HD float Widen(float v) { return v; }
TILERY_HD float Widen(__half v) { return __half2float(v); }
TILERY_HD float Widen(__nv_bfloat16 v) { return __bfloat162float(v); }

TILERY_HD void Narrow(float v, float* to) { *to = v; }
TILERY_HD void Narrow(float v, __half* to) { *to = __float2half_rn(v); }
TILERY_HD void Narrow(float v, __nv_bfloat16* to) { *to = __float2bfloat16_rn(v); }

// PadSource() of pipeline/geometry.h.
TILERY_HD int64_t Source(int64_t i, int64_t n, Pad pad) {
  if (i < n) return i;
  if (pad == Pad::kZero) return -1;
  if (pad == Pad::kEdge || n == 1) return n - 1;
  const int64_t period = 2 * (n - 1), at = i % period;
  return at < n ? at : period - at;
}

template <typename Stored>
TILERY_HD double AsDouble(Stored v) {
  return static_cast<double>(v);
}
TILERY_HD double AsDouble(__half v) { return static_cast<double>(__half2float(v)); }

template <typename Stored>
TILERY_HD float AsFloat(Stored v) {
  return static_cast<float>(v);
}
TILERY_HD float AsFloat(__half v) { return __half2float(v); }

// The model's input of a stored value. Tables exist for integers of one or two bytes only.
template <typename Stored>
TILERY_HD float InputValue(Stored stored, const InputChannel& channel) {
  if constexpr (std::is_integral_v<Stored> && sizeof(Stored) <= 2) {
    constexpr int kLowest = std::is_signed_v<Stored> ? (sizeof(Stored) == 1 ? -128 : -32768) : 0;
    if (channel.values != nullptr) return channel.values[static_cast<int>(stored) - kLowest];
  }
  // What Normalise() gives, without a detour through double, which is slow on most GPUs.
  if (channel.terms.as_is && !channel.terms.centred) return AsFloat(stored);
  return Normalise(AsDouble(stored), channel.terms);
}

// Post operations from number `first` on over the `channels` colours of one voxel. Returns how many
// are left. Kept out of line: most outputs need none, and the formulas are long.
TILERY_HD TILERY_NOINLINE int ApplyPost(const FinalizeTask& t, int first, int channels, float* v) {
  for (int p = first; p < t.posts; ++p) {
    const PostStep& step = t.post[p];
    const float a = static_cast<float>(step.a), b = static_cast<float>(step.b);
    switch (step.kind) {
      case PostKind::kClamp:
        for (int c = 0; c < channels; ++c) v[c] = Clamp(v[c], a, b);
        break;
      case PostKind::kSigmoid:
        for (int c = 0; c < channels; ++c) v[c] = Sigmoid(v[c]);
        break;
      case PostKind::kThreshold:
        for (int c = 0; c < channels; ++c) v[c] = Threshold(v[c], a);
        break;
      case PostKind::kScale:
        for (int c = 0; c < channels; ++c) v[c] = ScaleBy(v[c], step.a, step.b);
        break;
      case PostKind::kLabels:
        for (int c = 0; c < channels; ++c) {
          const float last = static_cast<float>(t.label_count - 1);
          v[c] = static_cast<float>(
              t.labels[static_cast<int>(v[c] > 0 ? (v[c] < last ? v[c] : last) : 0)]);
        }
        break;
      case PostKind::kSoftmax:
        if (channels > 0) Softmax(v, channels, 1);
        break;
      case PostKind::kArgmax:
        if (channels > 0) {
          v[0] = static_cast<float>(Argmax(v, channels, 1));
          channels = 1;
        }
        break;
    }
  }
  return channels;
}

TILERY_HD void StoreHalf(float v, __half* to, int32_t* overflow) {
  const __half half = __float2half_rn(v);
  if (IsFinite(v) && !IsFinite(__half2float(half))) *overflow = 1;
  *to = half;
}

inline void CheckLaunch(const char* what) {
  const cudaError_t status = cudaGetLastError();
  if (status == cudaSuccess) return;
  throw Error(Fault::kInternal,
              std::string("CUDA kernel ") + what + ": " + cudaGetErrorString(status));
}

inline void Require(bool holds, const char* what) {
  if (!holds) throw Error(Fault::kInternal, std::string("CUDA device: ") + what);
}

// Calls `launch` with a value of the type that stands for `dtype`.
template <typename Launch>
void OnStored(DType dtype, const Launch& launch) {
  switch (dtype) {
    case DType::kU8:
      return launch(uint8_t{});
    case DType::kI8:
      return launch(int8_t{});
    case DType::kU16:
      return launch(uint16_t{});
    case DType::kI16:
      return launch(int16_t{});
    case DType::kU32:
      return launch(uint32_t{});
    case DType::kI32:
      return launch(int32_t{});
    case DType::kF16:
      return launch(__half{});
    case DType::kF32:
      return launch(float{});
    case DType::kF64:
      return launch(double{});
  }
}

template <typename Launch>
void OnModelType(ModelType type, const Launch& launch) {
  switch (type) {
    case ModelType::kF32:
      return launch(float{});
    case ModelType::kF16:
      return launch(__half{});
    case ModelType::kBf16:
      return launch(__nv_bfloat16{});
  }
}

inline int64_t Voxels(const int64_t shape[3]) { return shape[0] * shape[1] * shape[2]; }

}  // namespace tilery::cuda
