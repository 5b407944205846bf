#include "pipeline/cuda/context_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "io/error.h"
#include "pipeline/codec/context_network.h"
#include "pipeline/cuda/codec_memory.h"
#include "pipeline/cuda/context_kernels.h"

namespace tilery::cuda {
namespace {

constexpr int64_t kLeaf = 512;

int32_t VoxelsOf(const BlockNumbers& block) {
  int32_t voxels = 0;
  for (const LeafMask& mask : block.masks) voxels += CountOn(mask);
  return voxels;
}

}  // namespace

// What all calls share, on the GPU.
struct ContextDevice::Model {
  GrowingMemory memory{false};
  const ContextTables* tables;
  const ContextWaves* waves;

  Model() {
    constexpr int64_t kTables = (sizeof(ContextTables) + 15) / 16 * 16;
    std::byte* const data = memory.Reserve(kTables + sizeof(ContextWaves));
    CheckCall(cudaMemcpy(data, &ContextModel(), sizeof(ContextTables), cudaMemcpyHostToDevice),
              "cudaMemcpy of the context model");
    CheckCall(
        cudaMemcpy(data + kTables, &ContextOrder(), sizeof(ContextWaves), cudaMemcpyHostToDevice),
        "cudaMemcpy of the context model");
    tables = reinterpret_cast<const ContextTables*>(data);
    waves = reinterpret_cast<const ContextWaves*>(data + kTables);
  }
};

class ContextDevice::Lane {
 public:
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
    EncodeContext(task_, stream_.get());
    stream_.ToHost(host_ + sizes_, device_ + sizes_,
                   static_cast<int64_t>(blocks.size() * sizeof(int64_t)));
    stream_.Wait("EncodeContext");
    const auto* const made = reinterpret_cast<const int64_t*>(host_ + sizes_);
    Layout layout;
    std::vector<int64_t> places;
    for (size_t b = 0; b < blocks.size(); ++b) places.push_back(layout.Add(made[b]));
    std::byte* const packed = streams_memory_.Reserve(layout.size());
    for (size_t b = 0; b < blocks.size(); ++b) {
      stream_.ToHost(packed + places[b], device_ + streams_ + begins_[b], made[b]);
    }
    stream_.Wait("cudaMemcpyAsync");
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
    stream_.ToGpu(device_ + streams_, host_ + streams_, begins_.back());
    DecodeContext(task_, stream_.get());
    stream_.ToHost(host_ + task_values_, device_ + task_values_, values_bytes_);
    stream_.Wait("DecodeContext");
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
    const int64_t symbols =
        layout.Add(encoding ? int64_t{voxels.back()} * parts * kContextSymbolWords *
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
  void Send(int64_t bytes) { stream_.ToGpu(device_, host_, bytes); }

  CodecStream stream_;
  GrowingMemory device_memory_{false}, host_memory_{true}, streams_memory_{true};
  std::byte *device_ = nullptr, *host_ = nullptr;
  std::vector<int32_t> first_;   // [blocks + 1] leaves
  std::vector<int64_t> begins_;  // [blocks + 1] streams
  int64_t sizes_ = 0, task_values_ = 0, values_bytes_ = 0, streams_ = 0;
  ContextTask task_{};
};

ContextDevice::ContextDevice(int device) : gpu_(std::make_unique<CodecGpu<Model, Lane>>(device)) {}
ContextDevice::~ContextDevice() = default;

std::vector<std::vector<std::byte>> ContextDevice::Encode(
    std::span<const BlockNumbers> blocks, std::span<const ContextComponent> components) {
  if (blocks.empty()) return {};
  return gpu_->With(
      [&](const Model& model, Lane& lane) { return lane.Encode(model, blocks, components); });
}

void ContextDevice::Decode(std::span<const std::span<const std::byte>> streams,
                           std::span<const ContextComponent> components,
                           std::span<BlockNumbers> blocks) {
  if (blocks.empty()) return;
  gpu_->With([&](const Model& model, Lane& lane) {
    lane.Decode(model, streams, components, blocks);
    return true;
  });
}

}  // namespace tilery::cuda
