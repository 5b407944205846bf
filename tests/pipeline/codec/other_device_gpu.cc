#include "pipeline/cuda/context_device.h"
#include "tests/pipeline/codec/other_device.h"
#include "tests/pipeline/needs_gpu.h"

namespace tilery {

std::unique_ptr<NumberDevice> OtherDevice() {
  if (!testing::HaveGpu()) return nullptr;
  return std::make_unique<cuda::ContextDevice>(0);
}

}  // namespace tilery
