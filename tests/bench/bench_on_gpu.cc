#include <utility>

#include "pipeline/cuda/cuda_device.h"
#include "tests/bench/bench_engine.h"

namespace tilery {

std::unique_ptr<Engine> BenchEngine(const EngineOptions& options, Profile& profile) {
  cuda::CudaDeviceOptions device;
  device.engine = options;
  return MakeEngine(options, cuda::MakeCudaDevice(std::move(device), profile), profile);
}

}  // namespace tilery
