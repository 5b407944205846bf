#include "tests/worker/forward_on.h"

namespace tilery::testing {

std::unique_ptr<ForwardModel> MakeForward(const EngineOptions& options) {
  return MakeCpuForward(options);
}

void ForwardFixture::SetUp() {}

}  // namespace tilery::testing
