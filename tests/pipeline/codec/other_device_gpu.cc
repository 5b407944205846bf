#include "pipeline/cuda/context_device.h"
#include "pipeline/cuda/vq_gpu.h"
#include "tests/pipeline/codec/other_device.h"
#include "tests/pipeline/needs_gpu.h"

namespace tilery {

std::unique_ptr<NumberDevice> OtherDevice() {
  if (!testing::HaveGpu()) return nullptr;
  return std::make_unique<cuda::ContextDevice>(0);
}
std::unique_ptr<VqDevice> OtherVqDevice() {
  if (!testing::HaveGpu()) return nullptr;
  return std::make_unique<cuda::VqGpu>(0);
}

}  // namespace tilery
