// The kind of device that a worker executable is made for. There are two: `tilery-worker` for
// CPUs, and `tilery-worker-cuda`, which alone loads CUDA: that costs a process a second and some
// 100 MB, which runs on CPUs must not pay.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "cluster/broadcast.h"
#include "pipeline/codec/codec_devices.h"
#include "pipeline/device_loss.h"
#include "pipeline/engine.h"
#include "pipeline/tuning.h"
#include "worker/forward_loop.h"

namespace tilery {

struct BackendOptions {
  EngineOptions engine;
  int64_t device_memory = 0;  // bytes that the models may take; 0: what is free
  LossHandler lost;           // may be empty
};

// Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;
  // Device kind and Torch's version. Error(kUsage) if this backend has no such device, or it can't
  // be used.
  virtual Numerics Describe(const std::string& device) const = 0;
  // What only the model itself can tell; as pipeline/engine.h says.
  virtual ModelProbe Probe(const std::filesystem::path& model, int dims, int32_t channels_in,
                           const Index& tile, bool batches) const = 0;
  // The fastest way to run a model here that is near enough to fp32. CPUs measure nothing: they
  // answer the batch that was asked for (else 1), in fp32 and nchw. Error(kUsage) naming what may
  // be chosen, if it is something else that is asked for, or the environment contradicts it
  // (NVIDIA_TF32_OVERRIDE); Error(kModel) with the model's own words if it can't be run, memory
  // included.
  virtual TuneResult Tune(const TuneRequest& request) const = 0;
  // Errors as Engine::Create.
  virtual std::unique_ptr<Engine> Create(const BackendOptions& options, Profile& profile) const = 0;
  // Over which workers pass a model on to each other; nullptr if there is nothing of the kind.
  virtual std::unique_ptr<Broadcaster> MakeBroadcaster() const { return nullptr; }
  // What codes grids here; nullptr: threads of the CPU.
  virtual std::unique_ptr<CodecDevices> MakeCodec() const { return nullptr; }
  // The model of these options without an engine around it.
  virtual std::unique_ptr<ForwardModel> MakeForward(const EngineOptions& options) const = 0;
};

std::unique_ptr<Backend> MakeCpuBackend();
// Of the first GPU that CUDA shows this process, whatever number the device's name has: whoever
// starts the process shows it one (CUDA_VISIBLE_DEVICES), so that it can't touch another.
std::unique_ptr<Backend> MakeCudaBackend();

}  // namespace tilery
