// The device of one NVIDIA GPU.
//
//   loader thread     input -> pinned memory -> [copy-in stream] -> slot
//   lane threads      slot -> [gather stream] -> model's input -> [lane's stream] -> output
//                     -> [lane's check stream] flags of what is not finite
//                     -> [finish stream] blended, finished -> slot
//   finisher thread   slot -> [copy-out stream] -> pinned memory -> result
//
// Streams are joined by events only. Memory is taken when a unit comes for which nothing that is
// free is large enough, and kept; allocations() counts how often.
#pragma once

#include <memory>

#include "pipeline/device.h"
#include "pipeline/device_loss.h"

namespace tilery::cuda {

struct CudaDeviceOptions {
  EngineOptions engine;
  int device = 0;  // CUDA ordinal in this process
  // Units of the largest size for which there is room. Of smaller ones there may be more at a time.
  int slots = 4;
  LossHandler lost;  // may be empty
};

struct Allocations {
  int64_t device = 0, pinned = 0;  // calls of the driver, so far
  int64_t device_bytes = 0;        // held by slots
};

class CudaDevice : public Device {
 public:
  virtual Allocations allocations() const = 0;
};

// `profile` outlives it. Errors: pipeline/cuda/cuda_memory.h; those of the model come from
// MakeLane.
std::unique_ptr<CudaDevice> MakeCudaDevice(CudaDeviceOptions options, Profile& profile);

}  // namespace tilery::cuda
