#include "pipeline/cuda/device_functions.cuh"
#include "pipeline/cuda/kernels.h"

namespace tilery::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = int64_t{1} << 20;  // kernels step by the whole grid beyond that

int Blocks(int64_t count) {
  const int64_t blocks = (count + kThreads - 1) / kThreads;
  return static_cast<int>(blocks < 1 ? 1 : (blocks > kMaxBlocks ? kMaxBlocks : blocks));
}

__device__ int64_t ThreadIndex() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ int64_t ThreadCount() { return int64_t{gridDim.x} * blockDim.x; }

template <typename Stored, typename Out>
__global__ void GatherKernel(const __grid_constant__ GatherTask t) {
  const int64_t voxels = t.tile[0] * t.tile[1] * t.tile[2];
  for (int64_t v = ThreadIndex(); v < voxels; v += ThreadCount()) {
    const int64_t x = v % t.tile[2], y = v / t.tile[2] % t.tile[1], z = v / t.tile[2] / t.tile[1];
    const int64_t from_z = Source(t.begin[0] + z, t.item[0], t.pad);
    const int64_t from_y = Source(t.begin[1] + y, t.item[1], t.pad);
    const int64_t from_x = Source(t.begin[2] + x, t.item[2], t.pad);
    const bool none = from_z < 0 || from_y < 0 || from_x < 0;
    const char* at = static_cast<const char*>(t.samples) + (from_z - t.origin[0]) * t.stride[1] +
                     (from_y - t.origin[1]) * t.stride[2] + (from_x - t.origin[2]) * t.stride[3];
    for (int c = 0; c < t.channels; ++c) {
      const InputChannel& channel = t.channel[c];
      float value = channel.zero;
      if (!none) {
        const Stored stored = *reinterpret_cast<const Stored*>(at + channel.stored * t.stride[0]);
        value = InputValue(stored, channel);
      }
      if (t.replace_nonfinite && !IsFinite(value)) value = channel.filling;
      const int64_t to = t.layout == ModelLayout::kPlanar ? c * voxels + v : v * t.channels + c;
      Narrow(value, static_cast<Out*>(t.out) + to);
    }
  }
}

// Bits of the exponent in a word of 32 bits: one value of 32 bits or two of 16.
__device__ uint32_t ExponentBits(float) { return 0x7f800000u; }
__device__ uint32_t ExponentBits(__half) { return 0x7c007c00u; }
__device__ uint32_t ExponentBits(__nv_bfloat16) { return 0x7f807f80u; }

template <typename Value>
__device__ bool WordIsFinite(uint32_t word) {
  const uint32_t mask = ExponentBits(Value{});
  if (sizeof(Value) == 4) return (word & mask) != mask;
  const uint32_t missing = (word & mask) ^ mask;  // per half: 0 if all of its exponent is ones
  return (missing & 0xffffu) != 0 && (missing >> 16) != 0;
}

// `blocks` blocks for each slot. `whole`: slots are multiples of 16 bytes, and so is `values`.
template <typename Value>
__global__ void FindNonFiniteKernel(const Value* values, int64_t count, int32_t blocks, bool whole,
                                    int32_t* flags) {
  const int64_t slot = blockIdx.x / blocks, block = blockIdx.x % blocks;
  const Value* const from = values + slot * count;
  const int64_t step = int64_t{blocks} * blockDim.x;
  bool bad = false;
  if (whole) {
    const uint4* const words = reinterpret_cast<const uint4*>(from);
    const int64_t all = count * static_cast<int64_t>(sizeof(Value)) / 16;
    for (int64_t i = block * blockDim.x + threadIdx.x; i < all; i += step) {
      const uint4 w = words[i];
      bad |= !(WordIsFinite<Value>(w.x) && WordIsFinite<Value>(w.y) && WordIsFinite<Value>(w.z) &&
               WordIsFinite<Value>(w.w));
    }
  } else {
    for (int64_t i = block * blockDim.x + threadIdx.x; i < count; i += step)
      bad |= (NonFiniteSign(Widen(from[i])) >> 31) != 0;
  }
  if (__syncthreads_or(bad) && threadIdx.x == 0) flags[slot] = 1;  // all who write, write the same
}

__device__ uint64_t Mixed(uint64_t x) {  // the finaliser of SplitMix64 (Steele et al., 2014)
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// `blocks` blocks for each slot of `words`. A sum, so that their order does not matter.
__global__ void HashSlotsKernel(const uint16_t* values, int64_t words, int32_t blocks,
                                unsigned long long* hashes) {
  const int64_t slot = blockIdx.x / blocks, block = blockIdx.x % blocks;
  const uint16_t* const from = values + slot * words;
  uint64_t sum = 0;
  for (int64_t i = block * blockDim.x + threadIdx.x; i < words; i += int64_t{blocks} * blockDim.x)
    sum += Mixed(static_cast<uint64_t>(i) << 16 | from[i]);
  if (sum != 0) atomicAdd(hashes + slot, static_cast<unsigned long long>(sum));
}

template <typename Value>
__global__ void BlendKernel(const __grid_constant__ BlendTask t) {
  const int64_t voxels = t.shape[0] * t.shape[1] * t.shape[2];
  const int64_t plane = t.tile_shape[0] * t.tile_shape[1] * t.tile_shape[2];
  const int64_t sums_plane = t.sums_shape[0] * t.sums_shape[1] * t.sums_shape[2];
  const bool planar = t.layout == ModelLayout::kPlanar;
  const Value* output = static_cast<const Value*>(t.output);
  for (int64_t v = ThreadIndex(); v < voxels; v += ThreadCount()) {
    const int64_t x = v % t.shape[2], y = v / t.shape[2] % t.shape[1],
                  z = v / t.shape[2] / t.shape[1];
    const float weight = Weight(t.window[0][z], t.window[1][y], t.window[2][x]);
    const int64_t from =
        ((t.begin[0] + z - t.tile_begin[0]) * t.tile_shape[1] + t.begin[1] + y - t.tile_begin[1]) *
            t.tile_shape[2] +
        t.begin[2] + x - t.tile_begin[2];
    const int64_t to =
        ((t.begin[0] + z - t.sums_begin[0]) * t.sums_shape[1] + t.begin[1] + y - t.sums_begin[1]) *
            t.sums_shape[2] +
        t.begin[2] + x - t.sums_begin[2];
    const auto read = [&](int c) {
      return Widen(output[planar ? c * plane + from : from * t.channels + c]);
    };
    for (int k = 0; k < t.out_count; ++k) {
      float value;
      if (t.mean) {
        double sum = 0;  // MeanOf()
        for (int c = 0; c < t.channels; ++c) sum += static_cast<double>(read(c));
        value = static_cast<float>(sum / t.channels);
      } else {
        value = read(t.out[k]);
      }
      t.sums[(t.out_begin + k) * sums_plane + to] += weight * value;
    }
  }
}

template <typename Stored>
__device__ void Store(float v, const QuantiseTerms& terms, Stored* to, int32_t*) {
  *to = static_cast<Stored>(Quantise(v, terms));
}
__device__ void Store(float v, const QuantiseTerms&, float* to, int32_t*) { *to = v; }
__device__ void Store(float v, const QuantiseTerms&, double* to, int32_t*) { *to = v; }
__device__ void Store(float v, const QuantiseTerms&, __half* to, int32_t* overflow) {
  StoreHalf(v, to, overflow);
}

// `Most`: colours. Few keep the memory small that a GPU sets apart for all threads it can hold.
template <typename Stored, int Most>
__global__ void FinalizeKernel(const __grid_constant__ FinalizeTask t) {
  const int64_t voxels = t.shape[0] * t.shape[1] * t.shape[2];
  const int64_t plane = t.sums_shape[0] * t.sums_shape[1] * t.sums_shape[2];
  for (int64_t i = ThreadIndex(); i < voxels; i += ThreadCount()) {
    const int64_t x = i % t.shape[2], y = i / t.shape[2] % t.shape[1],
                  z = i / t.shape[2] / t.shape[1];
    const int64_t from =
        ((t.begin[0] + z - t.sums_begin[0]) * t.sums_shape[1] + t.begin[1] + y - t.sums_begin[1]) *
            t.sums_shape[2] +
        t.begin[2] + x - t.sums_begin[2];
    float v[Most];
    for (int c = 0; c < t.colours; ++c) v[c] = t.sums[t.accumulator[c] * plane + from];
    const int colours = ApplyPost(t, 0, t.colours, v);
    Stored* to = static_cast<Stored*>(t.out) + i * t.out_channels;
    for (int c = 0; c < colours; ++c) Store(v[c], t.colour_terms, to + c, t.overflow);
    for (int c = 0; c < t.alphas; ++c) {
      const float alpha = t.sums[t.accumulator[t.colours + c] * plane + from];
      Store(Clamp(alpha, t.range_lo, t.range_hi), t.alpha_terms, to + colours + c, t.overflow);
    }
  }
}

struct InterleaveTask {
  const float* sums;
  int64_t sums_begin[3], sums_shape[3], begin[3], shape[3];
  int32_t accumulators;
  float* out;
};

__global__ void InterleaveKernel(const __grid_constant__ InterleaveTask t) {
  const int64_t voxels = t.shape[0] * t.shape[1] * t.shape[2];
  const int64_t plane = t.sums_shape[0] * t.sums_shape[1] * t.sums_shape[2];
  for (int64_t i = ThreadIndex(); i < voxels; i += ThreadCount()) {
    const int64_t x = i % t.shape[2], y = i / t.shape[2] % t.shape[1],
                  z = i / t.shape[2] / t.shape[1];
    const int64_t from =
        ((t.begin[0] + z - t.sums_begin[0]) * t.sums_shape[1] + t.begin[1] + y - t.sums_begin[1]) *
            t.sums_shape[2] +
        t.begin[2] + x - t.sums_begin[2];
    for (int c = 0; c < t.accumulators; ++c)
      t.out[i * t.accumulators + c] = t.sums[c * plane + from];
  }
}

// Some 2,000 blocks over all slots fill any GPU; a block has at least a few values a thread.
int64_t BlocksOfSlot(int64_t count, int32_t slots) {
  const int64_t most = (count + 8 * kThreads - 1) / (8 * kThreads);
  int64_t blocks = (2048 + slots - 1) / slots;
  if (blocks > most) blocks = most;
  return blocks < 1 ? 1 : blocks;
}

void SetToZero(void* data, size_t bytes, Stream stream) {
  const auto status = cudaMemsetAsync(data, 0, bytes, stream);
  if (status == cudaSuccess) return;
  throw Error(Fault::kInternal, std::string("cudaMemsetAsync: ") + cudaGetErrorString(status));
}

}  // namespace

void Gather(const GatherTask& task, Stream stream) {
  Require(task.channels >= 1 && task.channels <= kMaxInputs, "1 to 32 input channels");
  OnStored(task.dtype, [&](auto stored) {
    OnModelType(task.type, [&](auto out) {
      GatherKernel<decltype(stored), decltype(out)>
          <<<Blocks(Voxels(task.tile)), kThreads, 0, stream>>>(task);
    });
  });
  CheckLaunch("gather");
}

void FindNonFinite(const void* values, ModelType type, int64_t count, int32_t slots, int32_t* flags,
                   Stream stream) {
  if (slots == 0) return;
  SetToZero(flags, slots * sizeof(int32_t), stream);
  OnModelType(type, [&](auto value) {
    using Value = decltype(value);
    const bool whole = count * static_cast<int64_t>(sizeof(Value)) % 16 == 0 &&
                       reinterpret_cast<uintptr_t>(values) % 16 == 0;
    const int64_t blocks = BlocksOfSlot(count, slots);
    FindNonFiniteKernel<Value><<<static_cast<unsigned>(blocks * slots), kThreads, 0, stream>>>(
        static_cast<const Value*>(values), count, static_cast<int32_t>(blocks), whole, flags);
  });
  CheckLaunch("find non-finite");
}

void HashSlots(const void* values, int64_t slot_bytes, int32_t slots, uint64_t* hashes,
               Stream stream) {
  Require(slot_bytes % 2 == 0, "slots of whole 16-bit words");
  if (slots == 0) return;
  SetToZero(hashes, slots * sizeof(uint64_t), stream);
  static_assert(sizeof(uint64_t) == sizeof(unsigned long long));
  const int64_t words = slot_bytes / 2, blocks = BlocksOfSlot(words, slots);
  HashSlotsKernel<<<static_cast<unsigned>(blocks * slots), kThreads, 0, stream>>>(
      static_cast<const uint16_t*>(values), words, static_cast<int32_t>(blocks),
      reinterpret_cast<unsigned long long*>(hashes));
  CheckLaunch("hash slots");
}

void Blend(const BlendTask& task, Stream stream) {
  Require(task.out_count >= 1 && task.out_count <= kMaxSums, "1 to 256 output channels");
  if (Voxels(task.shape) == 0) return;
  OnModelType(task.type, [&](auto value) {
    BlendKernel<decltype(value)><<<Blocks(Voxels(task.shape)), kThreads, 0, stream>>>(task);
  });
  CheckLaunch("blend");
}

void Finalize(const FinalizeTask& task, Stream stream) {
  Require(task.colours + task.alphas <= kMaxSums, "at most 256 accumulator channels");
  Require(task.posts <= kMaxPost, "at most 8 post operations");
  if (Voxels(task.shape) == 0) return;
  OnStored(task.dtype, [&](auto stored) {
    constexpr int kFew = 32;
    const auto kernel = task.colours <= kFew ? &FinalizeKernel<decltype(stored), kFew>
                                             : &FinalizeKernel<decltype(stored), kMaxSums>;
    kernel<<<Blocks(Voxels(task.shape)), kThreads, 0, stream>>>(task);
  });
  CheckLaunch("finalize");
}

void Interleave(const float* sums, const int64_t sums_begin[3], const int64_t sums_shape[3],
                int32_t accumulators, const int64_t begin[3], const int64_t shape[3], float* out,
                Stream stream) {
  if (Voxels(shape) == 0) return;
  InterleaveTask task{};
  task.sums = sums;
  for (int a = 0; a < 3; ++a) {
    task.sums_begin[a] = sums_begin[a];
    task.sums_shape[a] = sums_shape[a];
    task.begin[a] = begin[a];
    task.shape[a] = shape[a];
  }
  task.accumulators = accumulators;
  task.out = out;
  InterleaveKernel<<<Blocks(Voxels(shape)), kThreads, 0, stream>>>(task);
  CheckLaunch("interleave");
}

}  // namespace tilery::cuda
