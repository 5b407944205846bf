// One forward pass on Torch's current stream, whatever kind of file it comes from. Names Torch's
// types without their headers.
#pragma once

#include <memory>

#include "pipeline/cuda/gpu_model.h"

namespace at {
class Tensor;
}

namespace tilery::cuda {

// Used by the thread that made it, with the device as Torch's current one. Throws what Torch and
// the model throw.
class Forward {
 public:
  virtual ~Forward() = default;
  virtual ModelType input_type() const = 0;
  // May return the input itself, or something of the model's own.
  virtual at::Tensor Run(const at::Tensor& input) = 0;
  // After the present form has failed: takes a plainer one of the same model; false if there is
  // none.
  virtual bool NextForm() { return false; }
};

// TorchScript. Weights are converted once, to the precision and the layout. Error(kModel) if the
// file can't be read.
std::unique_ptr<Forward> LoadScript(const GpuModelOptions& options);

// AOTInductor package, by tools/compile_model.py or torch._inductor.aoti_compile_and_package.
// Error(kModel) with both values if it was compiled for something else than `options`.
std::unique_ptr<Forward> LoadPackage(const GpuModelOptions& options);

}  // namespace tilery::cuda
