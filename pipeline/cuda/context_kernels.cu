#include <algorithm>

#include "pipeline/codec/context_symbols.h"
#include "pipeline/codec/range_core.h"
#include "pipeline/cuda/context_kernels.h"
#include "pipeline/cuda/device_functions.cuh"

namespace tilery::cuda {
namespace {

constexpr int kThreads = kContextWaveMost, kWarps = kThreads / 32;
constexpr int64_t kActiveBytes = (kContextVoxels + 15) / 16 * 16;
constexpr int kRow = kContextSymbols + 2;  // so that rows begin in different banks
constexpr int kWords = kContextInputs / 4;
// Voxels that go through the network at once.
constexpr int kBatch = 64;

// Layers are laid out so that threads of neighbouring outputs read neighbouring words.
struct Shared {
  int32_t first[2 * kWords][kContextHidden];  // pairs of int16
  int32_t second[kContextHidden][kContextSecond];
  int32_t last[kContextSecond][kContextSecond];
  uint32_t logistic[2 * ContextTables::kFarthest + 2];
  int32_t inputs[kBatch][kWords + 1];
  int32_t hidden[kBatch][kContextHidden + 1];
  int32_t seconds[kBatch][kContextSecond + 1];
  int32_t outputs[kBatch][kContextSecond + 1];
  ContextDistribution all[kBatch];
  int32_t values[kBatch];
  int32_t waves[kContextWaves + 1];  // where they begin in the order
  int32_t count[kWarps];
  uint16_t below[kBatch][kRow];
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

// A symbol in kContextSymbolWords words. `part` is at least 1, `below` less than all.
__device__ void Pack(const ContextSymbol& symbol, uint32_t* words) {
  words[0] = symbol.below | (symbol.part - 1) << 16;
  words[1] = symbol.low | static_cast<uint32_t>(symbol.shift) << 24 |
             (symbol.escape ? uint32_t{1} << 31 : 0);
  words[2] = symbol.beyond;
}
__device__ ContextSymbol Unpack(const uint32_t* words) {
  ContextSymbol symbol;
  symbol.below = words[0] & 0xffff;
  symbol.part = (words[0] >> 16) + 1;
  symbol.low = words[1] & 0xffffff;
  symbol.shift = static_cast<int>(words[1] >> 24 & 31);
  symbol.escape = words[1] >> 31 != 0;
  symbol.beyond = words[2];
  return symbol;
}

// One block of leaves in memory.
class Block {
 public:
  __device__ Block(const ContextTask& task, Shared& shared)
      : task_(task),
        shared_(shared),
        leaf_(task.leaves[blockIdx.x]),
        leaves_(task.leaves[blockIdx.x + 1] - leaf_),
        order_(task.order + task.voxels[blockIdx.x]) {
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

  // Copies what many threads read.
  __device__ void LoadTables() {
    const ContextTables& tables = *task_.tables;
    for (int i = Thread(); i < 2 * kWords * kContextHidden; i += kThreads) {
      const int out = i % kContextHidden, pair = i / kContextHidden;
      shared_.first[pair][out] = static_cast<int32_t>(
          static_cast<uint16_t>(tables.first[out][2 * pair]) |
          static_cast<uint32_t>(static_cast<uint16_t>(tables.first[out][2 * pair + 1])) << 16);
    }
    for (int i = Thread(); i < kContextHidden * kContextSecond; i += kThreads)
      shared_.second[i / kContextSecond][i % kContextSecond] =
          tables.second[i % kContextSecond][i / kContextSecond];
    for (int i = Thread(); i < kContextSecond * kContextSecond; i += kThreads) {
      const int out = i % kContextSecond, in = i / kContextSecond;
      shared_.last[in][out] = out < kContextOutputs ? tables.last[out][in] : 0;
    }
    for (int i = Thread(); i < 2 * ContextTables::kFarthest + 2; i += kThreads)
      shared_.logistic[i] = tables.logistic[i];
    __syncthreads();
  }
  // What is known of the block before its values.
  __device__ void Begin() {
    auto* words = reinterpret_cast<int4*>(active_);
    for (int64_t i = Thread(); i < Bytes(task_.count) / 16; i += kThreads)
      words[i] = make_int4(0, 0, 0, 0);
    __syncthreads();
    ForVoxels([&](int, int, int at) { active_[at] = 1; });
    __syncthreads();
    Order();
  }
  __device__ void SetValues(int component) {
    view_.component = component;
    const int32_t* const from = Values();
    auto* const to = const_cast<int32_t*>(view_.values[component]);
    ForVoxels([&](int leaf, int voxel, int at) { to[at] = from[leaf * 512 + voxel]; });
    __syncthreads();
  }
  __device__ void SetComponent(int component) { view_.component = component; }
  __device__ void GetValues() {
    int32_t* const to = Values();
    const int32_t* const from = view_.values[view_.component];
    ForVoxels([&](int leaf, int voxel, int at) { to[leaf * 512 + voxel] = from[at]; });
  }
  __device__ int voxels() const { return task_.voxels[blockIdx.x + 1] - task_.voxels[blockIdx.x]; }
  __device__ int at(int voxel) const { return order_[voxel]; }
  __device__ const ContextComponent& component() const { return task_.components[view_.component]; }

  // What follows from voxels that are known: for voxels first to first + count of the order, at
  // most kBatch; `shared.all` has it. To be called by all threads.
  __device__ void Look(int first, int count) {
    ContextPrediction prediction;
    int shift = 0;
    const int mine = Thread();
    if (mine < count) {
      const int place = at(first + mine);
      prediction = Predict(component(), view_, place);
      union {
        int8_t inputs[kContextInputs];
        int32_t words[kWords];
      };
      shift = ContextInputs(*task_.tables, component(), view_, place, prediction, inputs);
#pragma unroll
      for (int i = 0; i < kWords; ++i) shared_.inputs[mine][i] = words[i];
    }
    __syncthreads();
    Network(count);
    if (mine < count)
      shared_.all[mine] =
          Distribution(*task_.tables, shared_.outputs[mine], prediction.value, shift);
    prediction_ = prediction;
    __syncthreads();
  }
  // After Look, for the voxel of this thread.
  __device__ void Know(int first, int32_t value) {
    const int place = at(first + Thread());
    const_cast<int32_t*>(view_.values[view_.component])[place] = value;
    const_cast<int32_t*>(view_.errors[view_.component])[place] = ContextError(value, prediction_);
  }
  // Of all voxels, whose values are known.
  __device__ void FindErrors() {
    auto* const errors = const_cast<int32_t*>(view_.errors[view_.component]);
    for (int i = Thread(); i < voxels(); i += kThreads) {
      const int place = at(i);
      errors[place] =
          ContextError(view_.values[view_.component][place], Predict(component(), view_, place));
    }
    __syncthreads();
  }
  __device__ int32_t value(int voxel) const { return view_.values[view_.component][at(voxel)]; }

 private:
  __device__ static int Thread() { return static_cast<int>(threadIdx.x); }
  __device__ int32_t* Values() const {
    return task_.values + (int64_t{leaf_} * task_.count + int64_t{view_.component} * leaves_) * 512;
  }
  template <typename Use>
  __device__ void ForVoxels(const Use& use) const {
    for (int i = Thread(); i < leaves_ * 512; i += kThreads) {
      const int leaf = i / 512, voxel = i % 512;
      if ((task_.masks[(leaf_ + leaf) * 8 + voxel / 64] >> (voxel % 64) & 1) != 0)
        use(leaf, voxel, ContextLeaf(task_.places[leaf_ + leaf]) + ContextVoxel(voxel));
    }
  }

  // The active voxels, wave by wave: no wave has more voxels than there are threads.
  __device__ void Order() {
    const int warp = Thread() / 32, lane = Thread() % 32;
    int first = 0;
    for (int wave = 0; wave < kContextWaves; ++wave) {
      const int32_t begin = task_.waves->begin[wave];
      const bool there = begin + Thread() < task_.waves->begin[wave + 1];
      const int place = there ? task_.waves->at[begin + Thread()] : 0;
      const bool on = there && active_[place] != 0;
      const uint32_t lanes = __ballot_sync(~0u, on);
      if (lane == 0) shared_.count[warp] = __popc(lanes);
      if (Thread() == 0) shared_.waves[wave] = first;
      __syncthreads();
      int rank = first + __popc(lanes & ((1u << lane) - 1));
      for (int i = 0; i < kWarps; ++i) {
        if (i < warp) rank += shared_.count[i];
        first += shared_.count[i];
      }
      if (on) order_[rank] = place;
      __syncthreads();
    }
    if (Thread() == 0) shared_.waves[kContextWaves] = first;
    __syncthreads();
  }

  // Each thread computes some outputs of some voxels, layer by layer.
  __device__ void Network(int count) {
    const ContextTables& tables = *task_.tables;
    for (int i = Thread(); i < count * kContextHidden; i += kThreads) {
      const int voxel = i / kContextHidden, out = i % kContextHidden;
      int32_t sum = tables.first_bias[out];
#pragma unroll
      for (int word = 0; word < kWords; ++word) {
        const int32_t four = shared_.inputs[voxel][word];
        sum = __dp2a_lo(shared_.first[2 * word][out], four, sum);
        sum = __dp2a_hi(shared_.first[2 * word + 1][out], four, sum);
      }
      shared_.hidden[voxel][out] = ContextHidden(sum, true);
    }
    __syncthreads();
    for (int i = Thread(); i < count * kContextSecond; i += kThreads) {
      const int voxel = i / kContextSecond, out = i % kContextSecond;
      int32_t sum = tables.second_bias[out];
#pragma unroll
      for (int in = 0; in < kContextHidden; ++in)
        sum += shared_.second[in][out] * shared_.hidden[voxel][in];
      shared_.seconds[voxel][out] = ContextHidden(sum, false);
    }
    __syncthreads();
    for (int i = Thread(); i < count * kContextSecond; i += kThreads) {
      const int voxel = i / kContextSecond, out = i % kContextSecond;
      if (out >= kContextOutputs) continue;
      int32_t sum = tables.last_bias[out];
#pragma unroll
      for (int in = 0; in < kContextSecond; ++in)
        sum += shared_.last[in][out] * shared_.seconds[voxel][in];
      shared_.outputs[voxel][out] = ContextOutput(sum);
    }
    __syncthreads();
  }

  const ContextTask& task_;
  Shared& shared_;
  const int leaf_, leaves_;
  int32_t* const order_;
  uint8_t* active_;
  ContextBlock view_;
  ContextPrediction prediction_;
};

// Encoding knows all values: what follows from them is found for all voxels side by side, and only
// then one symbol after the other is written.

__global__ void __launch_bounds__(kThreads) Prepare(const ContextTask task) {
  extern __shared__ int4 bytes[];
  Block block(task, *reinterpret_cast<Shared*>(bytes));
  block.Begin();
  for (int component = 0; component < task.count; ++component) {
    block.SetValues(component);
    block.FindErrors();
  }
}

// [component][voxel] of a block.
__device__ uint32_t* SymbolsOf(const ContextTask& task) {
  return task.symbols + int64_t{task.voxels[blockIdx.x]} * task.count * kContextSymbolWords;
}

__global__ void __launch_bounds__(kThreads) FindSymbols(const ContextTask task) {
  extern __shared__ int4 bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  Block block(task, shared);
  const int begin = static_cast<int>(blockIdx.y) * kBatch,
            step = static_cast<int>(gridDim.y) * kBatch;
  if (begin >= block.voxels()) return;
  block.LoadTables();
  const int thread = static_cast<int>(threadIdx.x);
  uint32_t* to = SymbolsOf(task);
  for (int component = 0; component < task.count; ++component) {
    block.SetComponent(component);
    for (int first = begin; first < block.voxels(); first += step) {
      const int count = min(kBatch, block.voxels() - first);
      block.Look(first, count);
      if (thread < count)
        Pack(SymbolOf(*task.tables, shared.all[thread], block.value(first + thread)),
             to + (first + thread) * kContextSymbolWords);
      __syncthreads();
    }
    to += block.voxels() * kContextSymbolWords;
  }
}

// A warp for each block: it reads, its first thread writes.
constexpr int kWarp = 32;
__global__ void __launch_bounds__(kWarp) WriteSymbols(const ContextTask task) {
  __shared__ uint32_t symbols[2][kWarp][kContextSymbolWords];
  const int64_t begin = task.begins[blockIdx.x];
  RangeWriter<Out> writer({task.streams + begin, 0, task.begins[blockIdx.x + 1] - begin});
  const uint32_t* const from = SymbolsOf(task);
  const int all = (task.voxels[blockIdx.x + 1] - task.voxels[blockIdx.x]) * task.count;
  const int thread = static_cast<int>(threadIdx.x);
  for (int first = -kWarp; first < all; first += kWarp) {
    // Reads what is written next time.
    uint32_t next[kContextSymbolWords];
    const int mine = first + kWarp + thread;
#pragma unroll
    for (int w = 0; w < kContextSymbolWords; ++w)
      next[w] = mine < all ? from[mine * kContextSymbolWords + w] : 0;
    const int half = first / kWarp & 1;
    if (thread == 0 && first >= 0) {
      const int count = min(kWarp, all - first);
      for (int i = 0; i < count; ++i) WriteSymbol(Unpack(symbols[half][i]), writer);
    }
#pragma unroll
    for (int w = 0; w < kContextSymbolWords; ++w) symbols[half ^ 1][thread][w] = next[w];
    __syncwarp();
  }
  if (thread == 0) {
    writer.Finish();
    task.sizes[blockIdx.x] = writer.out().size;
  }
}

__global__ void __launch_bounds__(kThreads) Decode(const ContextTask task) {
  extern __shared__ int4 bytes[];
  Shared& shared = *reinterpret_cast<Shared*>(bytes);
  Block block(task, shared);
  block.LoadTables();
  block.Begin();
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t begin = task.begins[blockIdx.x];
  // All lanes of the first warp read the same.
  RangeReader<In> reader({task.streams + begin, task.begins[blockIdx.x + 1] - begin, 0});
  for (int component = 0; component < task.count; ++component) {
    block.SetComponent(component);
    for (int wave = 0; wave < kContextWaves; ++wave) {
      const int end = shared.waves[wave + 1];
      for (int first = shared.waves[wave]; first < end; first += kBatch) {
        const int count = min(kBatch, end - first);
        block.Look(first, count);
        for (int i = thread; i < count * kContextSymbols; i += kThreads) {
          const int voxel = i / kContextSymbols, symbol = i % kContextSymbols;
          shared.below[voxel][symbol] =
              static_cast<uint16_t>(Below(shared.logistic, shared.all[voxel], symbol));
        }
        __syncthreads();
        if (thread < 32) {
          for (int i = 0; i < count; ++i) {
            const uint16_t* const below = shared.below[i];
            const int symbol = __popc(__ballot_sync(~0u, reader.Reaches(below[thread]))) +
                               __popc(__ballot_sync(~0u, reader.Reaches(below[thread + 32]))) - 1;
            const uint32_t here = below[symbol];
            const uint32_t next =
                symbol + 1 < kContextSymbols ? uint32_t{below[symbol + 1]} : kContextWhole;
            reader.Take(here, next - here);
            const int32_t value = ReadRest(shared.all[i], symbol, reader);
            if (thread == 0) shared.values[i] = value;
          }
        }
        __syncthreads();
        if (thread < count) block.Know(first, shared.values[thread]);
        __syncthreads();
      }
    }
    block.GetValues();
  }
}

void Launch(void (*kernel)(ContextTask), const ContextTask& task, unsigned parts, Stream stream) {
  const cudaError_t status = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(sizeof(Shared)));
  Require(status == cudaSuccess, "shared memory of the context model");
  kernel<<<dim3(static_cast<unsigned>(task.blocks), parts), kThreads, sizeof(Shared), stream>>>(
      task);
}

bool Any(const ContextTask& task) {
  Require(task.count >= 1 && task.count <= kContextComponents, "components of the context model");
  return task.blocks > 0;
}

}  // namespace

static_assert(sizeof(Shared) <= 64 << 10, "what the smallest GPU has");

int64_t ContextMemoryBytes(int components) { return Block::Bytes(components); }

void EncodeContext(const ContextTask& task, Stream stream) {
  if (!Any(task)) return;
  Launch(Prepare, task, 1, stream);
  // A few blocks are split, so that they fill a GPU.
  constexpr int kParts = 1024, kMostParts = 64;
  const int parts = std::clamp(kParts / task.blocks, 1, kMostParts);
  Launch(FindSymbols, task, static_cast<unsigned>(parts), stream);
  WriteSymbols<<<static_cast<unsigned>(task.blocks), kWarp, 0, stream>>>(task);
  CheckLaunch("EncodeContext");
}

void DecodeContext(const ContextTask& task, Stream stream) {
  if (!Any(task)) return;
  Launch(Decode, task, 1, stream);
  CheckLaunch("DecodeContext");
}

}  // namespace tilery::cuda
