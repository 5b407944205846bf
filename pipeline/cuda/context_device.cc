#include "pipeline/cuda/context_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "io/error.h"
#include "pipeline/codec/context_network.h"
#include "pipeline/cuda/context_kernels.h"

namespace tilery::cuda {
namespace {

constexpr int64_t kLeaf = 512;

void Check(cudaError_t status, const char* call, int64_t bytes = 0) {
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // this one is told here
  const std::string said = std::string(call) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation)
    throw Error(Fault::kTransient, said + " (" + std::to_string(bytes) + " bytes asked)");
  throw Error(Fault::kInternal, "CUDA: " + said);
}

// Memory that grows and never shrinks; what it held is lost when it grows.
class Memory {
 public:
  explicit Memory(bool host) : host_(host) {}
  ~Memory() { Free(); }
  Memory(const Memory&) = delete;
  std::byte* Reserve(int64_t bytes) {
    if (bytes <= size_) return data_;
    Free();
    void* data = nullptr;
    Check(host_ ? cudaMallocHost(&data, static_cast<size_t>(bytes))
                : cudaMalloc(&data, static_cast<size_t>(bytes)),
          host_ ? "cudaMallocHost" : "cudaMalloc", bytes);
    data_ = static_cast<std::byte*>(data);
    size_ = bytes;
    return data_;
  }

 private:
  void Free() {
    host_ ? cudaFreeHost(data_) : cudaFree(data_);
    data_ = nullptr;
    size_ = 0;
  }
  const bool host_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// Where parts lie in one piece of memory, each aligned to 16 bytes.
class Layout {
 public:
  int64_t Add(int64_t bytes) {
    const int64_t at = size_;
    size_ += (bytes + 15) / 16 * 16;
    return at;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

int32_t VoxelsOf(const BlockNumbers& block) {
  int32_t voxels = 0;
  for (const LeafMask& mask : block.masks) voxels += CountOn(mask);
  return voxels;
}

}  // namespace

// What all calls share, on the GPU.
struct ContextDevice::Model {
  Memory memory{false};
  const ContextTables* tables;
  const ContextWaves* waves;

  Model() {
    constexpr int64_t kTables = (sizeof(ContextTables) + 15) / 16 * 16;
    std::byte* const data = memory.Reserve(kTables + sizeof(ContextWaves));
    Check(cudaMemcpy(data, &ContextModel(), sizeof(ContextTables), cudaMemcpyHostToDevice),
          "cudaMemcpy of the context model");
    Check(cudaMemcpy(data + kTables, &ContextOrder(), sizeof(ContextWaves), cudaMemcpyHostToDevice),
          "cudaMemcpy of the context model");
    tables = reinterpret_cast<const ContextTables*>(data);
    waves = reinterpret_cast<const ContextWaves*>(data + kTables);
  }
};

class ContextDevice::Lane {
 public:
  Lane() { Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Lane() { cudaStreamDestroy(stream_); }
  Lane(const Lane&) = delete;

  std::vector<std::vector<std::byte>> Encode(const Model& model,
                                             std::span<const BlockNumbers> blocks,
                                             std::span<const ContextComponent> components) {
    std::vector<int64_t> sizes;
    for (const BlockNumbers& block : blocks) {
      const int64_t parts = static_cast<int64_t>(components.size());
      sizes.push_back(ContextStreamBytes(VoxelsOf(block) * parts));
    }
    Place(model, blocks, components, sizes, true);
    for (size_t b = 0; b < blocks.size(); ++b) {
      int32_t* to = Values(b, components.size());
      for (const auto& component : blocks[b].values) {
        std::memcpy(to, component.data(), component.size() * sizeof component[0]);
        to += component.size() * kLeaf;
      }
    }
    Send(task_values_ + values_bytes_);
    EncodeContext(task_, stream_);
    Check(cudaMemcpyAsync(host_ + sizes_, device_ + sizes_, blocks.size() * sizeof(int64_t),
                          cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync");
    Wait("EncodeContext");
    const auto* const made = reinterpret_cast<const int64_t*>(host_ + sizes_);
    Layout layout;
    std::vector<int64_t> places;
    for (size_t b = 0; b < blocks.size(); ++b) places.push_back(layout.Add(made[b]));
    std::byte* const packed = streams_memory_.Reserve(layout.size());
    for (size_t b = 0; b < blocks.size(); ++b) {
      Check(cudaMemcpyAsync(packed + places[b], device_ + streams_ + begins_[b],
                            static_cast<size_t>(made[b]), cudaMemcpyDeviceToHost, stream_),
            "cudaMemcpyAsync");
    }
    Wait("cudaMemcpyAsync");
    std::vector<std::vector<std::byte>> all;
    for (size_t b = 0; b < blocks.size(); ++b)
      all.emplace_back(packed + places[b], packed + places[b] + made[b]);
    return all;
  }

  void Decode(const Model& model, std::span<const std::span<const std::byte>> streams,
              std::span<const ContextComponent> components, std::span<BlockNumbers> blocks) {
    std::vector<int64_t> sizes;
    for (const auto& stream : streams) sizes.push_back(static_cast<int64_t>(stream.size()));
    Place(model, blocks, components, sizes, false);
    for (size_t b = 0; b < blocks.size(); ++b) {
      // Beyond its end a stream reads as zeros.
      std::byte* const to = host_ + streams_ + begins_[b];
      std::copy(streams[b].begin(), streams[b].end(), to);
      std::fill(to + streams[b].size(), host_ + streams_ + begins_[b + 1], std::byte{0});
    }
    // All but the values, which lie between.
    Send(task_values_);
    Check(cudaMemcpyAsync(device_ + streams_, host_ + streams_, static_cast<size_t>(begins_.back()),
                          cudaMemcpyHostToDevice, stream_),
          "cudaMemcpyAsync");
    DecodeContext(task_, stream_);
    Check(cudaMemcpyAsync(host_ + task_values_, device_ + task_values_,
                          static_cast<size_t>(values_bytes_), cudaMemcpyDeviceToHost, stream_),
          "cudaMemcpyAsync");
    Wait("DecodeContext");
    for (size_t b = 0; b < blocks.size(); ++b) {
      const int32_t* from = Values(b, components.size());
      for (auto& component : blocks[b].values) {
        // Inactive voxels are 0 on both sides: the GPU leaves them alone.
        for (size_t leaf = 0; leaf < component.size(); ++leaf, from += kLeaf) {
          ForOn(blocks[b].masks[leaf], [&](size_t voxel) { component[leaf][voxel] = from[voxel]; });
        }
      }
    }
  }

 private:
  int32_t* Values(size_t block, size_t components) {
    return reinterpret_cast<int32_t*>(host_ + task_values_) +
           first_[block] * static_cast<int64_t>(components) * kLeaf;
  }

  // Lays out a call's memory, the same on both sides, and fills in what is told of the leaves.
  // `sizes`: of the streams.
  template <typename Blocks>
  void Place(const Model& model, const Blocks& blocks, std::span<const ContextComponent> components,
             const std::vector<int64_t>& sizes, bool encoding) {
    first_.assign(1, 0);
    std::vector<int32_t> voxels{0};
    begins_.assign(1, 0);
    for (size_t b = 0; b < blocks.size(); ++b) {
      first_.push_back(first_.back() + static_cast<int32_t>(blocks[b].places.size()));
      voxels.push_back(voxels.back() + VoxelsOf(blocks[b]));
      begins_.push_back(begins_.back() + (sizes[b] + 15) / 16 * 16);
    }
    const auto count = static_cast<int64_t>(blocks.size()), leaves = int64_t{first_.back()};
    const auto parts = static_cast<int64_t>(components.size());
    values_bytes_ = leaves * parts * kLeaf * static_cast<int64_t>(sizeof(int32_t));
    Layout layout;
    const int64_t of_components = layout.Add(static_cast<int64_t>(components.size_bytes()));
    const int64_t firsts = layout.Add((count + 1) * static_cast<int64_t>(sizeof(int32_t)));
    const int64_t voxel_firsts = layout.Add((count + 1) * static_cast<int64_t>(sizeof(int32_t)));
    const int64_t begins = layout.Add((count + 1) * static_cast<int64_t>(sizeof(int64_t)));
    const int64_t places = layout.Add(leaves);
    const int64_t masks = layout.Add(leaves * static_cast<int64_t>(sizeof(LeafMask)));
    sizes_ = layout.Add(count * static_cast<int64_t>(sizeof(int64_t)));
    task_values_ = layout.Add(values_bytes_);
    streams_ = layout.Add(begins_.back());
    const int64_t told = layout.size();
    const int64_t order =
        layout.Add(int64_t{voxels.back()} * static_cast<int64_t>(sizeof(int32_t)));
    const int64_t symbols = layout.Add(encoding ? int64_t{voxels.back()} * kContextSymbolWords *
                                                      static_cast<int64_t>(sizeof(uint32_t))
                                                : 0);
    const int64_t memory = layout.Add(count * ContextMemoryBytes(static_cast<int>(parts)));
    host_ = host_memory_.Reserve(told);
    device_ = device_memory_.Reserve(layout.size());
    std::memcpy(host_ + of_components, components.data(), components.size_bytes());
    std::memcpy(host_ + firsts, first_.data(), first_.size() * sizeof first_[0]);
    std::memcpy(host_ + voxel_firsts, voxels.data(), voxels.size() * sizeof voxels[0]);
    std::memcpy(host_ + begins, begins_.data(), begins_.size() * sizeof begins_[0]);
    std::byte* place = host_ + places;
    std::byte* mask = host_ + masks;
    for (const auto& block : blocks) {
      for (const int of : block.places) *place++ = static_cast<std::byte>(of);
      std::memcpy(mask, block.masks.data(), block.masks.size() * sizeof(LeafMask));
      mask += block.masks.size() * sizeof(LeafMask);
    }
    task_ = {model.tables,
             model.waves,
             reinterpret_cast<const ContextComponent*>(device_ + of_components),
             static_cast<int32_t>(parts),
             static_cast<int32_t>(count),
             reinterpret_cast<const int32_t*>(device_ + firsts),
             reinterpret_cast<const int32_t*>(device_ + voxel_firsts),
             reinterpret_cast<const uint8_t*>(device_ + places),
             reinterpret_cast<const uint64_t*>(device_ + masks),
             reinterpret_cast<int32_t*>(device_ + task_values_),
             reinterpret_cast<uint8_t*>(device_ + streams_),
             reinterpret_cast<const int64_t*>(device_ + begins),
             reinterpret_cast<int64_t*>(device_ + sizes_),
             reinterpret_cast<int32_t*>(device_ + order),
             reinterpret_cast<uint32_t*>(device_ + symbols),
             reinterpret_cast<uint8_t*>(device_ + memory)};
  }
  void Send(int64_t bytes) {
    Check(cudaMemcpyAsync(device_, host_, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                          stream_),
          "cudaMemcpyAsync");
  }
  void Wait(const char* what) { Check(cudaStreamSynchronize(stream_), what); }

  cudaStream_t stream_ = nullptr;
  Memory device_memory_{false}, host_memory_{true}, streams_memory_{true};
  std::byte *device_ = nullptr, *host_ = nullptr;
  std::vector<int32_t> first_;   // [blocks + 1] leaves
  std::vector<int64_t> begins_;  // [blocks + 1] streams
  int64_t sizes_ = 0, task_values_ = 0, values_bytes_ = 0, streams_ = 0;
  ContextTask task_{};
};

class ContextDevice::Borrowed {
 public:
  explicit Borrowed(ContextDevice& device) : device_(device) {
    Check(cudaSetDevice(device.device_), "cudaSetDevice");
    const std::scoped_lock lock(device.mutex_);
    if (!device.model_) device.model_ = std::make_unique<Model>();
    if (device.idle_.empty()) return;
    lane_ = std::move(device.idle_.back());
    device.idle_.pop_back();
  }
  // One that failed is not used again.
  ~Borrowed() {
    const std::scoped_lock lock(device_.mutex_);
    if (lane_ && done_) device_.idle_.push_back(std::move(lane_));
  }
  Lane& lane() {
    if (!lane_) lane_ = std::make_unique<Lane>();
    return *lane_;
  }
  void Done() { done_ = true; }

 private:
  ContextDevice& device_;
  std::unique_ptr<Lane> lane_;
  bool done_ = false;
};

ContextDevice::ContextDevice(int device) : device_(device) {}
ContextDevice::~ContextDevice() = default;

std::vector<std::vector<std::byte>> ContextDevice::Encode(
    std::span<const BlockNumbers> blocks, std::span<const ContextComponent> components) {
  if (blocks.empty()) return {};
  Borrowed borrowed(*this);
  auto streams = borrowed.lane().Encode(*model_, blocks, components);
  borrowed.Done();
  return streams;
}

void ContextDevice::Decode(std::span<const std::span<const std::byte>> streams,
                           std::span<const ContextComponent> components,
                           std::span<BlockNumbers> blocks) {
  if (blocks.empty()) return;
  Borrowed borrowed(*this);
  borrowed.lane().Decode(*model_, streams, components, blocks);
  borrowed.Done();
}

}  // namespace tilery::cuda
