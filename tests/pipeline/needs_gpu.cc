#include "tests/pipeline/needs_gpu.h"

#include <cuda_runtime.h>

namespace tilery::testing {

bool HaveGpu() {
  int devices = 0;
  const bool have = cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0;
  cudaGetLastError();  // the next call is not to blame
  return have;
}

}  // namespace tilery::testing
