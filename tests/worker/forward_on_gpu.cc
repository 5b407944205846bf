#include "tests/pipeline/needs_gpu.h"
#include "tests/worker/forward_on.h"

namespace tilery::testing {

std::unique_ptr<ForwardModel> MakeForward(const EngineOptions& options) {
  return MakeCudaForward(options, 0);
}

void ForwardFixture::SetUp() {
  if (!HaveGpu()) GTEST_SKIP() << "this machine has no usable NVIDIA GPU";
}

}  // namespace tilery::testing
