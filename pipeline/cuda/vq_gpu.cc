#include "pipeline/cuda/vq_gpu.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "pipeline/cuda/codec_memory.h"
#include "pipeline/cuda/vq_kernels.h"

namespace tilery::cuda {

using Leaf = BlockNumbers::Leaf;

struct VqGpu::Model {
  GrowingMemory memory{false};
  const VqWords* words;

  Model() {
    const auto packed = std::make_unique<VqWords>();
    FillVqWords(VqModel(), packed.get());
    std::byte* const data = memory.Reserve(sizeof(VqWords));
    CheckCall(cudaMemcpy(data, packed.get(), sizeof(VqWords), cudaMemcpyHostToDevice),
              "cudaMemcpy of the codes' nets");
    words = reinterpret_cast<const VqWords*>(data);
  }
};

class VqGpu::Lane {
 public:
  void Encode(const Model& model, std::span<const LeafMask* const> masks,
              std::span<const Leaf* const> numbers, const VqGoal& goal,
              std::span<Leaf* const> restored, std::span<VqLeaf> leaves) {
    Place(model, masks);
    task_.goal = goal.square;
    task_.most_stages = goal.most_stages;
    for (size_t i = 0; i < numbers.size(); ++i)
      std::memcpy(At<Leaf>(numbers_) + i, numbers[i], sizeof(Leaf));
    // Inputs lie first, what is made of them behind.
    stream_.ToGpu(device_, host_, about_);
    EncodeVqLeaves(task_, stream_.get());
    stream_.ToHost(host_ + about_, device_ + about_, end_ - about_);
    stream_.Wait("EncodeVqLeaves");
    for (size_t i = 0; i < leaves.size(); ++i) {
      VqLeaf& leaf = leaves[i];
      leaf.place = {At<int32_t>(offsets_)[i], At<uint8_t>(scales_)[i]};
      leaf.stages = At<uint8_t>(stages_)[i];
      const auto* const codes = At<std::array<uint8_t, kVqCells>>(codes_) + i * kVqStages;
      std::copy_n(codes, leaf.stages, leaf.codes.begin());
      std::memcpy(restored[i], At<Leaf>(restored_) + i, sizeof(Leaf));
      for (size_t cell = 0; cell < kVqCells; ++cell) {
        if (VqActive(masks[i]->data(), static_cast<int>(cell)) != 0) continue;
        for (size_t stage = 0; stage < leaf.stages; ++stage) leaf.codes[stage][cell] = 0;
      }
    }
  }

  void Decode(const Model& model, std::span<const LeafMask* const> masks,
              std::span<const VqLeaf> leaves, std::span<Leaf* const> numbers) {
    Place(model, masks);
    for (size_t i = 0; i < leaves.size(); ++i) {
      At<int32_t>(offsets_)[i] = leaves[i].place.offset;
      At<uint8_t>(scales_)[i] = leaves[i].place.scale;
      At<uint8_t>(stages_)[i] = leaves[i].stages;
      std::memcpy(At<uint8_t>(codes_) + i * sizeof leaves[i].codes, &leaves[i].codes,
                  sizeof leaves[i].codes);
    }
    stream_.ToGpu(device_, host_, numbers_);
    stream_.ToGpu(device_ + about_, host_ + about_, restored_ - about_);
    DecodeVqLeaves(task_, stream_.get());
    stream_.ToHost(host_ + numbers_, device_ + numbers_, about_ - numbers_);
    stream_.Wait("DecodeVqLeaves");
    for (size_t i = 0; i < leaves.size(); ++i)
      std::memcpy(numbers[i], At<Leaf>(numbers_) + i, sizeof(Leaf));
  }

 private:
  template <typename T>
  T* At(int64_t place) {
    return reinterpret_cast<T*>(host_ + place);
  }

  // Lays out a call's memory, the same on both sides, and fills in the masks.
  void Place(const Model& model, std::span<const LeafMask* const> masks) {
    const auto count = static_cast<int64_t>(masks.size());
    Layout layout;
    const int64_t at_masks = layout.Add<LeafMask>(count);
    numbers_ = layout.Add<Leaf>(count);
    about_ = offsets_ = layout.Add<int32_t>(count);
    scales_ = layout.Add(count);
    stages_ = layout.Add(count);
    codes_ = layout.Add(count * kVqStages * kVqCells);
    restored_ = layout.Add<Leaf>(count);
    end_ = layout.size();
    host_ = host_memory_.Reserve(end_);
    device_ = device_memory_.Reserve(end_);
    for (size_t i = 0; i < masks.size(); ++i)
      std::memcpy(At<LeafMask>(at_masks) + i, masks[i], sizeof(LeafMask));
    const auto on_device = [this]<typename T>(int64_t place, T) {
      return reinterpret_cast<T*>(device_ + place);
    };
    task_ = {};
    task_.words = model.words;
    task_.leaves = static_cast<int32_t>(count);
    task_.masks = on_device(at_masks, uint64_t{});
    task_.numbers = on_device(numbers_, int32_t{});
    task_.restored = on_device(restored_, int32_t{});
    task_.offsets = on_device(offsets_, int32_t{});
    task_.scales = on_device(scales_, uint8_t{});
    task_.stages = on_device(stages_, uint8_t{});
    task_.codes = on_device(codes_, uint8_t{});
  }

  CodecStream stream_;
  GrowingMemory device_memory_{false}, host_memory_{true};
  std::byte *device_ = nullptr, *host_ = nullptr;
  // Where parts lie; `about_` is what codes tell of a leaf, `end_` that of all.
  int64_t numbers_ = 0, about_ = 0, offsets_ = 0, scales_ = 0, stages_ = 0, codes_ = 0,
          restored_ = 0, end_ = 0;
  VqTask task_{};
};

VqGpu::VqGpu(int device) : gpu_(std::make_unique<CodecGpu<Model, Lane>>(device)) {}
VqGpu::~VqGpu() = default;

std::vector<VqLeaf> VqGpu::Encode(std::span<const LeafMask* const> masks,
                                  std::span<const Leaf* const> numbers, const VqGoal& goal,
                                  std::span<Leaf* const> restored) {
  std::vector<VqLeaf> leaves(masks.size());
  gpu_->With([&](const Model& model, Lane& lane) {
    for (size_t first = 0; first < masks.size(); first += kVqBatch) {
      const size_t count = std::min<size_t>(kVqBatch, masks.size() - first);
      lane.Encode(model, masks.subspan(first, count), numbers.subspan(first, count), goal,
                  restored.subspan(first, count), std::span(leaves).subspan(first, count));
    }
    return true;
  });
  return leaves;
}

void VqGpu::Decode(std::span<const LeafMask* const> masks, std::span<const VqLeaf> leaves,
                   std::span<Leaf* const> numbers) {
  gpu_->With([&](const Model& model, Lane& lane) {
    for (size_t first = 0; first < masks.size(); first += kVqBatch) {
      const size_t count = std::min<size_t>(kVqBatch, masks.size() - first);
      lane.Decode(model, masks.subspan(first, count), leaves.subspan(first, count),
                  numbers.subspan(first, count));
    }
    return true;
  });
}

}  // namespace tilery::cuda
