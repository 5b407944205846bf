// Codes leaves on an NVIDIA GPU. Host code without Torch.
#pragma once

#include <memory>
#include <vector>

#include "pipeline/codec/vq_nets.h"

namespace tilery::cuda {

template <typename Model, typename Lane>
class CodecGpu;

// Calls of several threads run side by side, each on a stream and with memory of its own, which
// stay for the next one: of kVqBatch leaves at most, 5 KB each, of the GPU and pinned. Larger calls
// go batch by batch. Error(kTransient) where memory runs out, else Error(kInternal) with CUDA's
// text.
inline constexpr int64_t kVqBatch = 16384;
class VqGpu final : public VqDevice {
 public:
  explicit VqGpu(int device);
  ~VqGpu() override;
  std::vector<VqLeaf> Encode(std::span<const LeafMask* const> masks,
                             std::span<const BlockNumbers::Leaf* const> numbers, const VqGoal& goal,
                             std::span<BlockNumbers::Leaf* const> restored) override;
  void Decode(std::span<const LeafMask* const> masks, std::span<const VqLeaf> leaves,
              std::span<BlockNumbers::Leaf* const> numbers) override;

 private:
  struct Model;
  class Lane;
  const std::unique_ptr<CodecGpu<Model, Lane>> gpu_;
};

}  // namespace tilery::cuda
