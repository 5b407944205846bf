// What the engine asks of a device. One implementation per kind, made by an explicit factory.
//
// A device runs batches on lanes. A lane has a fixed input of `batch` slots that gathering writes
// into and the model reads. What a batch gave stays valid in a BatchOutput until that is destroyed,
// so that a lane can go on while outputs wait for their turn to be blended. A unit's sums and input
// live in a UnitMemory.
#pragma once

#include <cstdint>
#include <memory>

#include "pipeline/engine.h"

namespace tilery {

// Immutable; may be read by several threads.
class BatchOutput {
 public:
  virtual ~BatchOutput() = default;
  virtual bool Finite(int64_t slot) const = 0;
};

// One unit in work. Gathering may happen on several lanes at once; Blend and Finalize are called by
// one thread at a time.
class UnitMemory {
 public:
  virtual ~UnitMemory() = default;
  virtual int64_t nonfinite_in() const = 0;  // stored voxels of its own part (each voxel of an item
                                             // belongs to one unit)
  // `output`, `slot`: what the model gave; null for passes without a model.
  virtual void Blend(const Index& tile, size_t pass, const BatchOutput* output, int64_t slot) = 0;
  // Interior and seams; the sums are given up. Called once, after all blending.
  virtual InferOutput Finalize() = 0;
};

// Used by one thread at a time.
class Lane {
 public:
  virtual ~Lane() = default;
  virtual void Gather(int64_t slot, const UnitMemory& unit, const Index& tile, size_t pass) = 0;
  virtual void Repeat(int64_t from, int64_t to) = 0;  // slot `to` gets a copy of slot `from`
  // Runs the model on all slots. Errors as Model::Run; Error(kModel) if the output's shape is
  // wrong.
  virtual std::shared_ptr<const BatchOutput> Forward() = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual std::unique_ptr<Lane> MakeLane() = 0;
  // Takes memory for the unit's sums (zeros). Error(kInput) if its samples are refused.
  virtual std::unique_ptr<UnitMemory> Open(const InferWork& work) = 0;
};

// Loads the model and proves one batch. Errors as Engine::Create.
std::unique_ptr<Device> MakeCpuDevice(const EngineOptions& options);

}  // namespace tilery
