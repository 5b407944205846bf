#include <nvtx3/nvToolsExt.h>

#include "io/error.h"
#include "pipeline/cuda/context_device.h"
#include "pipeline/cuda/cuda_device.h"
#include "pipeline/cuda/gpu_bench.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/cuda/vq_gpu.h"
#include "pipeline/model.h"
#include "worker/backend.h"
#include "worker/cuda_broadcast.h"

namespace tilery {
namespace {

constexpr int kOrdinal = 0;  // see MakeCudaBackend()

class CudaCodec final : public CodecDevices {
 public:
  RegionDevices devices() override { return {&numbers_, &codes_}; }

 private:
  cuda::ContextDevice numbers_{kOrdinal};
  cuda::VqGpu codes_{kOrdinal};
};

class CudaBackend final : public Backend {
 public:
  // Cards of one name and capability give the same bytes, with one version of Torch and cuDNN.
  Numerics Describe(const std::string& device) const override {
    const std::vector<cuda::GpuInfo> gpus = cuda::ListGpus();
    if (device == "cpu" || gpus.empty()) {
      throw Error(Fault::kUsage, "device " + device + " can't be used by tilery-worker-cuda: " +
                                     (gpus.empty() ? "CUDA shows it no GPU (CUDA_VISIBLE_DEVICES?)"
                                                   : "it runs models on NVIDIA GPUs only"));
    }
    const cuda::GpuInfo& gpu = gpus[kOrdinal];
    Numerics numerics;
    numerics.device_kind = "cuda/" + std::to_string(gpu.major) + "." + std::to_string(gpu.minor) +
                           "/" + gpu.name + "/cudnn " + gpu.cudnn;
    numerics.torch = TorchVersion();
    return numerics;
  }
  ModelProbe Probe(const std::filesystem::path& model, int dims, int32_t channels_in,
                   const Index& tile, bool batches) const override {
    // A contract does not depend on the device.
    return ProbeModel(model, dims, channels_in, tile, batches);
  }
  TuneResult Tune(const TuneRequest& request) const override {
    return cuda::TuneOnGpu(request, kOrdinal);
  }
  std::unique_ptr<Engine> Create(const BackendOptions& options, Profile& profile) const override {
    cuda::CudaDeviceOptions device;
    device.engine = options.engine;
    device.device = kOrdinal;
    device.lost = options.lost;
    if (options.device_memory > 0)
      cuda::LimitMemory(kOrdinal, cuda::LeftForModels(options.device_memory));
    return MakeEngine(options.engine, cuda::MakeCudaDevice(std::move(device), profile), profile);
  }
#ifdef TILERY_HAVE_NCCL
  std::unique_ptr<Broadcaster> MakeBroadcaster() const override {
    return MakeCudaBroadcaster(kOrdinal);
  }
#endif
  std::unique_ptr<CodecDevices> MakeCodec() const override { return std::make_unique<CudaCodec>(); }
  std::unique_ptr<ForwardModel> MakeForward(const EngineOptions& options) const override {
    return MakeCudaForward(options, kOrdinal);
  }
};

}  // namespace

std::unique_ptr<Backend> MakeCudaBackend() {
  // The host's stages, named in Nsight Systems; a few nanoseconds where no profiler listens.
  SetScopeMarks({[](const char* stage) { nvtxRangePushA(stage); }, [] { nvtxRangePop(); }});
  return std::make_unique<CudaBackend>();
}

}  // namespace tilery
