// What the engine asks of a device. One implementation per kind, made by an explicit factory.
//
// A device runs batches on lanes. A lane has inputs of `batch` slots that gathering writes into and
// the model reads. What a batch gave stays valid in a BatchOutput until that is destroyed, so that
// a lane can go on while outputs wait for their turn to be blended. A unit's sums and input live in
// a UnitMemory. Model runs of a unit are numbered as in pipeline/run_order.h.
//
// A device may do all this later than it is asked to (a GPU does); what is asked of it is done in
// the order of asking, and only BatchOutput::Finite waits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "pipeline/engine.h"

namespace tilery {

// May be read by several threads.
class BatchOutput {
 public:
  virtual ~BatchOutput() = default;
  // Waits until the batch is done. Errors as Lane::Forward.
  virtual bool Finite(int64_t slot) const = 0;
  virtual bool Done() const { return true; }  // whether Finite() would not wait
};

// One unit in work. Gathering may happen on several lanes at once; all else is called by one thread
// at a time.
class UnitMemory {
 public:
  virtual ~UnitMemory() = default;
  virtual int64_t nonfinite_in() const = 0;  // stored voxels of its own part (each voxel of an item
                                             // belongs to one unit)
  // Called once, for the units of a device that `opens_early`, in the order in which their runs
  // will be gathered: the input may be fetched from now on.
  virtual void Begin() {}
  // Adds `count` consecutive model runs to the sums, from consecutive slots, and with them what
  // passes without a model give at their tiles. Runs come in ascending order.
  virtual void Blend(int64_t run, int64_t count, std::shared_ptr<const BatchOutput> output,
                     int64_t slot) = 0;
  // Whether gathering would not have to wait for the input.
  virtual bool Ready() const { return true; }
  // Afterwards nothing reads the unit's input any more: what was asked is done or will not be.
  virtual void StopReading() {}
  // For units without model runs: all passes of all tiles.
  virtual void BlendWithoutModel() = 0;
  // Interior and seams (`tiles`, `repeated` and the like are left alone); the sums are given up.
  // Called once, after all blending; `ready` is called once, on any thread, maybe in here. Errors
  // come as InferResult too.
  virtual void Finalize(std::function<void(InferResult)> ready) = 0;
};

// Used by one thread at a time.
class Lane {
 public:
  virtual ~Lane() = default;
  // Slots `slot`, `slot + 1`, ... get `count` consecutive model runs. Errors of the unit's input.
  virtual void Gather(int64_t slot, UnitMemory& unit, int64_t run, int64_t count) = 0;
  virtual void Repeat(int64_t from, int64_t to) = 0;  // slot `to` gets a copy of slot `from`
  // Runs the model on all slots. Errors as Model::Run; Error(kModel) if the output's shape is
  // wrong; Error(kTransient) if memory ran out, also where something inside went on without it and
  // may have chosen another way to its result.
  virtual std::shared_ptr<const BatchOutput> Forward() = 0;
  // Between an Error(kTransient) of Forward() and the second and last try of the same batch, whose
  // slots are gathered anew: gives back what nothing uses.
  virtual void FreeMemory() {}
  // One run alone in fp32, as slot 0: for what is not finite in a narrower type. nullptr if
  // Forward() has no narrower type.
  virtual std::shared_ptr<const BatchOutput> Careful(UnitMemory& unit, int64_t run) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  // By the thread that will use it.
  virtual std::unique_ptr<Lane> MakeLane() = 0;
  // Looks at the unit's samples, and prepares what it can without a lane. Error(kInput) if the
  // samples are refused. Thread-safe. On a device that `opens_early`, whoever submits does this;
  // fetching the input, which starts with Begin(), may then have to wait for memory that units
  // begun before give back when they are done, and gathering from a unit that is not Ready() waits
  // for it.
  virtual std::unique_ptr<UnitMemory> Open(const InferWork& work) = 0;
  virtual bool opens_early() const { return false; }
  // `progress` is to be called whenever a batch is done or a unit is Ready(); on any thread, which
  // holds no lock that the device takes elsewhere. It is quick, and asks nothing of the device.
  // Called once, before lanes are made. A device without depth needs it not.
  virtual void OnProgress(std::function<void()> progress) { static_cast<void>(progress); }
  // Batches of a lane that may be under way when the next is begun.
  virtual int depth() const { return 0; }
  // Whether it adds to the profile what its stages take; else whoever calls it does.
  virtual bool times_itself() const { return false; }
  // Memory that inputs are best read into; nullptr: any.
  virtual std::shared_ptr<HostMemory> host_memory() { return nullptr; }
  // Thread-safe.
  virtual DeviceUse use() const { return {}; }
};

// Loads the model and proves one batch. Errors as Engine::Create.
std::unique_ptr<Device> MakeCpuDevice(const EngineOptions& options);

}  // namespace tilery
