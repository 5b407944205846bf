// The suites of the engine on an NVIDIA GPU. Where there is none, ctest counts them as skipped.
#include <gtest/gtest.h>

#include <cstdio>

#include "pipeline/cuda/cuda_device.h"
#include "pipeline/cuda/gpu_model.h"
#include "tests/pipeline/engine_support.h"

namespace tilery::testing {

std::unique_ptr<Engine> CreateEngine(const EngineOptions& options, Profile& profile) {
  cuda::CudaDeviceOptions device;
  device.engine = options;
  return MakeEngine(options, cuda::MakeCudaDevice(std::move(device), profile), profile);
}

}  // namespace tilery::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  try {
    if (tilery::cuda::ListGpus().empty()) {
      std::puts("this machine has no NVIDIA GPU");
      return 77;
    }
  } catch (const std::exception& e) {
    std::printf("no usable NVIDIA GPU: %s\n", e.what());
    return 77;
  }
  return RUN_ALL_TESTS();
}
