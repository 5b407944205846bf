// The backend that the suite of forward loops is linked for.
#pragma once

#include <gtest/gtest.h>

#include "worker/forward_loop.h"

namespace tilery::testing {

std::unique_ptr<ForwardModel> MakeForward(const EngineOptions& options);

class ForwardFixture : public ::testing::Test {
 protected:
  void SetUp() override;  // skips where there is no such device
};

}  // namespace tilery::testing
