#include "pipeline/codec/range_core.h"
#include "pipeline/cuda/context_kernels.h"
#include "pipeline/cuda/device_functions.cuh"

namespace tilery::cuda {
namespace {

constexpr int kThreads = kContextWaveMost, kWarps = kThreads / 32;
constexpr int64_t kActiveBytes = (kContextVoxels + 15) / 16 * 16;
constexpr int kRow = kContextSymbols + 2;  // so that rows begin in different banks

struct Shared {
  int32_t first[kContextHidden][kContextInputs / 2];  // pairs of int16
  int16_t second[kContextSecond][kContextHidden];
  int16_t last[kContextOutputs][kContextSecond];
  uint32_t logistic[2 * ContextTables::kFarthest + 2];
  ContextDistribution all[kThreads];  // of a wave's active voxels
  int32_t values[kThreads];
  int32_t count[kWarps];
  union {
    uint16_t below[kThreads][kRow];
    ContextSymbol symbols[kThreads];
  };
};

struct Out {
  uint8_t* bytes;
  int64_t size, capacity;
  __host__ __device__ void Put(uint8_t byte) {
    if (size < capacity) bytes[size++] = byte;
  }
  __host__ __device__ void Trim() {
    while (size > 0 && bytes[size - 1] == 0) --size;
  }
};
struct In {
  const uint8_t* bytes;
  int64_t size, at;
  __host__ __device__ uint8_t Next() { return at < size ? bytes[at++] : uint8_t{0}; }
};

// One block of leaves in memory.
class Block {
 public:
  __device__ Block(const ContextTask& task, Shared& shared)
      : task_(task),
        shared_(shared),
        leaf_(task.leaves[blockIdx.x]),
        leaves_(task.leaves[blockIdx.x + 1] - leaf_) {
    active_ = task.memory + blockIdx.x * Bytes(task.count);
    view_.active = active_;
    auto* numbers = reinterpret_cast<int32_t*>(active_ + kActiveBytes);
    for (int c = 0; c < task.count; ++c, numbers += 2 * kContextVoxels) {
      view_.values[c] = numbers;
      view_.errors[c] = numbers + kContextVoxels;
    }
  }
  __host__ __device__ static int64_t Bytes(int components) {
    return kActiveBytes + (int64_t{components} * 2 * kContextVoxels * 4 + 15) / 16 * 16;
  }

  // Copies what many threads read, and what is known of the block before its values.
  __device__ void Begin() {
    const ContextTables& tables = *task_.tables;
    const auto* first = reinterpret_cast<const int32_t*>(tables.first);
    const auto* second = reinterpret_cast<const int16_t*>(tables.second);
    const auto* last = reinterpret_cast<const int16_t*>(tables.last);
    for (int i = threadIdx.x; i < kContextHidden * kContextInputs / 2; i += kThreads)
      (&shared_.first[0][0])[i] = first[i];
    for (int i = threadIdx.x; i < kContextSecond * kContextHidden; i += kThreads)
      (&shared_.second[0][0])[i] = second[i];
    for (int i = threadIdx.x; i < kContextOutputs * kContextSecond; i += kThreads)
      (&shared_.last[0][0])[i] = last[i];
    for (int i = threadIdx.x; i < 2 * ContextTables::kFarthest + 2; i += kThreads)
      shared_.logistic[i] = tables.logistic[i];
    auto* words = reinterpret_cast<int4*>(active_);
    for (int64_t i = threadIdx.x; i < Bytes(task_.count) / 16; i += kThreads)
      words[i] = make_int4(0, 0, 0, 0);
    __syncthreads();
    ForVoxels([&](int, int, int at) { active_[at] = 1; });
    __syncthreads();
  }
  __device__ void SetValues(int component) {
    const int32_t* const from = Values(component);
    auto* const to = const_cast<int32_t*>(view_.values[component]);
    ForVoxels([&](int leaf, int voxel, int at) { to[at] = from[leaf * 512 + voxel]; });
    __syncthreads();
  }
  __device__ void GetValues(int component) {
    int32_t* const to = Values(component);
    const int32_t* const from = view_.values[component];
    __syncthreads();
    ForVoxels([&](int leaf, int voxel, int at) { to[leaf * 512 + voxel] = from[at]; });
  }

  // The voxel of this thread in a wave. False for a wave that has none, for all threads.
  __device__ bool Enter(int component, int wave) {
    view_.component = component;
    const int32_t begin = task_.waves->begin[wave];
    const bool there = begin + static_cast<int>(threadIdx.x) < task_.waves->begin[wave + 1];
    at_ = there ? task_.waves->at[begin + threadIdx.x] : 0;
    on_ = there && active_[at_] != 0;
    const uint32_t lanes = __ballot_sync(~0u, on_);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (lane == 0) shared_.count[warp] = __popc(lanes);
    __syncthreads();
    rank_ = __popc(lanes & ((1u << lane) - 1));
    count_ = 0;
    for (int i = 0; i < kWarps; ++i) {
      if (i < warp) rank_ += shared_.count[i];
      count_ += shared_.count[i];
    }
    return count_ > 0;
  }
  __device__ bool on() const { return on_; }
  __device__ int rank() const { return rank_; }
  __device__ int count() const { return count_; }

  __device__ ContextDistribution Look() {
    const ContextComponent& component = task_.components[view_.component];
    prediction_ = Predict(*task_.tables, component, view_, at_);
    union {
      int8_t inputs[kContextInputs];
      int32_t words[kContextInputs / 4];
    };
    const int shift = ContextInputs(*task_.tables, component, view_, at_, prediction_, inputs);
    int32_t outputs[kContextOutputs];
    Network(words, outputs);
    return Distribution(*task_.tables, outputs, prediction_.value, shift);
  }
  __device__ int32_t value() const { return view_.values[view_.component][at_]; }
  __device__ void Know(int32_t value) {
    const_cast<int32_t*>(view_.values[view_.component])[at_] = value;
    const_cast<int32_t*>(view_.errors[view_.component])[at_] = ContextError(value, prediction_);
  }

 private:
  __device__ int32_t* Values(int component) const {
    return task_.values + (int64_t{leaf_} * task_.count + int64_t{component} * leaves_) * 512;
  }
  template <typename Use>
  __device__ void ForVoxels(const Use& use) const {
    for (int i = threadIdx.x; i < leaves_ * 512; i += kThreads) {
      const int leaf = i / 512, voxel = i % 512;
      if ((task_.masks[(leaf_ + leaf) * 8 + voxel / 64] >> (voxel % 64) & 1) != 0)
        use(leaf, voxel, ContextLeaf(task_.places[leaf_ + leaf]) + ContextVoxel(voxel));
    }
  }

  __device__ void Network(const int32_t* inputs, int32_t* outputs) const {
    const ContextTables& tables = *task_.tables;
    int32_t first[kContextHidden], second[kContextSecond];
#pragma unroll 4
    for (int out = 0; out < kContextHidden; ++out) {
      int32_t sum = tables.first_bias[out];
#pragma unroll
      for (int word = 0; word < kContextInputs / 4; ++word) {
        sum = __dp2a_lo(shared_.first[out][2 * word], inputs[word], sum);
        sum = __dp2a_hi(shared_.first[out][2 * word + 1], inputs[word], sum);
      }
      first[out] = ContextHidden(sum, true);
    }
#pragma unroll 4
    for (int out = 0; out < kContextSecond; ++out) {
      int32_t sum = tables.second_bias[out];
#pragma unroll
      for (int in = 0; in < kContextHidden; ++in) sum += shared_.second[out][in] * first[in];
      second[out] = ContextHidden(sum, false);
    }
#pragma unroll
    for (int out = 0; out < kContextOutputs; ++out) {
      int32_t sum = tables.last_bias[out];
#pragma unroll
      for (int in = 0; in < kContextSecond; ++in) sum += shared_.last[out][in] * second[in];
      outputs[out] = ContextOutput(sum);
    }
  }

  const ContextTask& task_;
  Shared& shared_;
  const int leaf_, leaves_;
  uint8_t* active_;
  ContextBlock view_;
  int at_ = 0, rank_ = 0, count_ = 0;
  bool on_ = false;
  ContextPrediction prediction_;
};

__global__ void __launch_bounds__(kThreads) Encode(const ContextTask task) {
  extern __shared__ int4 bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  Block block(task, shared);
  block.Begin();
  const int64_t begin = task.begins[blockIdx.x];
  RangeWriter<Out> writer({task.streams + begin, 0, task.begins[blockIdx.x + 1] - begin});
  for (int component = 0; component < task.count; ++component) {
    block.SetValues(component);
    for (int wave = 0; wave < kContextWaves; ++wave) {
      if (!block.Enter(component, wave)) continue;
      if (block.on()) {
        const int32_t value = block.value();
        shared.symbols[block.rank()] = SymbolOf(*task.tables, block.Look(), value);
        block.Know(value);
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        for (int i = 0; i < block.count(); ++i) WriteSymbol(shared.symbols[i], writer);
      }
      __syncthreads();
    }
  }
  if (threadIdx.x == 0) {
    writer.Finish();
    task.sizes[blockIdx.x] = writer.out().size;
  }
}

__global__ void __launch_bounds__(kThreads) Decode(const ContextTask task) {
  extern __shared__ int4 bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  Block block(task, shared);
  block.Begin();
  const int64_t begin = task.begins[blockIdx.x];
  // All lanes of the first warp read the same.
  RangeReader<In> reader({task.streams + begin, task.begins[blockIdx.x + 1] - begin, 0});
  for (int component = 0; component < task.count; ++component) {
    for (int wave = 0; wave < kContextWaves; ++wave) {
      if (!block.Enter(component, wave)) continue;
      if (block.on()) shared.all[block.rank()] = block.Look();
      __syncthreads();
      for (int i = threadIdx.x; i < block.count() * kContextSymbols; i += kThreads) {
        const int voxel = i / kContextSymbols, symbol = i % kContextSymbols;
        shared.below[voxel][symbol] =
            static_cast<uint16_t>(Below(shared.logistic, shared.all[voxel], symbol));
      }
      __syncthreads();
      if (threadIdx.x < 32) {
        const int lane = static_cast<int>(threadIdx.x);
        for (int i = 0; i < block.count(); ++i) {
          const uint16_t* const below = shared.below[i];
          const int symbol = __popc(__ballot_sync(~0u, reader.Reaches(below[lane]))) +
                             __popc(__ballot_sync(~0u, reader.Reaches(below[lane + 32]))) - 1;
          const uint32_t here = below[symbol];
          const uint32_t next =
              symbol + 1 < kContextSymbols ? uint32_t{below[symbol + 1]} : kContextWhole;
          reader.Take(here, next - here);
          const int32_t value = ReadRest(shared.all[i], symbol, reader);
          if (lane == 0) shared.values[i] = value;
        }
      }
      __syncthreads();
      if (block.on()) block.Know(shared.values[block.rank()]);
      __syncthreads();
    }
    block.GetValues(component);
  }
}

void Launch(void (*kernel)(ContextTask), const ContextTask& task, Stream stream) {
  Require(task.count >= 1 && task.count <= kContextComponents, "components of the context model");
  if (task.blocks == 0) return;
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Shared)));
  Require(status == cudaSuccess, "shared memory of the context model");
  kernel<<<static_cast<unsigned>(task.blocks), kThreads, sizeof(Shared), stream>>>(task);
}

}  // namespace

int64_t ContextMemoryBytes(int components) { return Block::Bytes(components); }

void EncodeContext(const ContextTask& task, Stream stream) {
  Launch(Encode, task, stream);
  CheckLaunch("EncodeContext");
}

void DecodeContext(const ContextTask& task, Stream stream) {
  Launch(Decode, task, stream);
  CheckLaunch("DecodeContext");
}

}  // namespace tilery::cuda
