// The CPU without its vectors: what a machine has that lacks them.
#include "pipeline/codec/context_coder.h"
#include "tests/pipeline/codec/other_device.h"

namespace tilery {
namespace {

class PortableDevice final : public NumberDevice {
 public:
  std::vector<std::vector<std::byte>> Encode(
      std::span<const BlockNumbers> blocks, std::span<const ContextComponent> components) override {
    std::vector<std::vector<std::byte>> streams(blocks.size());
    for (size_t b = 0; b < blocks.size(); ++b) {
      RangeEncoder encoder(&streams[b]);
      ContextCoder(components, ContextKernel::kPortable).Encode(&encoder, blocks[b]);
      encoder.Finish();
    }
    return streams;
  }
  void Decode(std::span<const std::span<const std::byte>> streams,
              std::span<const ContextComponent> components,
              std::span<BlockNumbers> blocks) override {
    for (size_t b = 0; b < blocks.size(); ++b) {
      RangeDecoder decoder(streams[b]);
      ContextCoder(components, ContextKernel::kPortable).Decode(&decoder, &blocks[b]);
    }
  }
};

}  // namespace

std::unique_ptr<NumberDevice> OtherDevice() { return std::make_unique<PortableDevice>(); }
std::unique_ptr<VqDevice> OtherVqDevice() { return std::make_unique<VqCpu>(VqKernel::kPortable); }

}  // namespace tilery
