// Codes whole numbers on an NVIDIA GPU. Host code without Torch.
#pragma once

#include <memory>
#include <vector>

#include "pipeline/codec/number_device.h"

namespace tilery::cuda {

template <typename Model, typename Lane>
class CodecGpu;

// Calls of several threads run side by side, each on a stream and with memory of its own, which
// stay for the next one: as much as the largest call needed. Error(kTransient) where the GPU or the
// host has no more memory, else Error(kInternal) with CUDA's text.
class ContextDevice final : public NumberDevice {
 public:
  explicit ContextDevice(int device);
  ~ContextDevice() override;
  std::vector<std::vector<std::byte>> Encode(std::span<const BlockNumbers> blocks,
                                             std::span<const ContextComponent> components) override;
  void Decode(std::span<const std::span<const std::byte>> streams,
              std::span<const ContextComponent> components,
              std::span<BlockNumbers> blocks) override;

 private:
  struct Model;
  class Lane;
  const std::unique_ptr<CodecGpu<Model, Lane>> gpu_;
};

}  // namespace tilery::cuda
