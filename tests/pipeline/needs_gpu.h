// A test that runs on an NVIDIA GPU, and is skipped where there is none.
#pragma once

#include <gtest/gtest.h>

namespace tilery::testing {

// Whether CUDA finds a GPU that it can use.
bool HaveGpu();

class NeedsGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HaveGpu()) GTEST_SKIP() << "this machine has no usable NVIDIA GPU";
  }
};

}  // namespace tilery::testing
