// Settings of Torch that hold for the whole process and decide bytes.
#pragma once

#include "pipeline/cuda/gpu_model.h"

namespace c10 {
class WarningHandler;
}

namespace tilery::cuda {

// Makes Torch ready for a device: once per process what it reads from the environment, and its
// watch over memory. Error(kUsage) if this process sees no such device.
void StartTorch(int device);

// Before each run that is not a graph's: TF32, cuDNN's measuring, deterministic kernels. Operations
// without a deterministic kernel run all the same, with Torch's warning (see Warnings).
void ApplySettings(const GpuModelOptions& options);

// Prints each message of Torch once per process to standard error.
c10::WarningHandler* Warnings();

}  // namespace tilery::cuda
