#include "pipeline/cuda/torch_settings.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>

#include "io/error.h"
#include "pipeline/cuda/torch_errors.h"

namespace tilery::cuda {
namespace {

class EachOnce final : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override {
    const std::string text = warning.msg();
    // Torch advises another spelling of TF32's switches, which no version before 2.9 has.
    if (text.find("new API settings to control TF32") != std::string::npos) return;
    const std::scoped_lock lock(mutex_);
    if (seen_.size() < 100 && seen_.insert(text).second) {
      std::fprintf(stderr, "torch: %s\n", Printable(text, 1000).c_str());
    }
  }

 private:
  std::mutex mutex_;
  std::set<std::string> seen_;
};

}  // namespace

c10::WarningHandler* Warnings() {
  static EachOnce* const handler = new EachOnce;  // used until the last thread ends
  return handler;
}

void StartTorch(int device) {
  static std::once_flag once;
  std::call_once(once, [] {
    // Kept if the user has set them. A fixed workspace makes cuBLAS deterministic; packages compare
    // what they are given with what they were compiled for, instead of reading beyond it.
    setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
    setenv("AOTI_RUNTIME_CHECK_INPUTS", "1", 0);
  });
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) cudaGetLastError();
  if (status != cudaSuccess || device < 0 || device >= count) {
    throw Error(Fault::kUsage,
                "cuda:" + std::to_string(device) + " is not there: this process sees " +
                    std::to_string(count) + " GPU(s)" +
                    (status == cudaSuccess ? "" : std::string(", ") + cudaGetErrorString(status)));
  }
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  WatchMemory();
}

void ApplySettings(const GpuModelOptions& options) {
  using Settings = std::tuple<bool, bool, bool>;
  const Settings wanted{options.precision == "tf32", options.autotune, options.deterministic};
  static std::mutex mutex;
  static std::optional<Settings> applied;
  const std::scoped_lock lock(mutex);
  if (applied == wanted) return;
  const auto [tf32, autotune, deterministic] = wanted;
  at::Context& context = at::globalContext();
  context.setAllowTF32CuBLAS(tf32);
  context.setAllowTF32CuDNN(tf32);
  context.setBenchmarkCuDNN(autotune);
  context.setDeterministicCuDNN(deterministic);
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/true);
  // Would fill every new tensor for the sake of models that read what they never wrote.
  context.setDeterministicFillUninitializedMemory(false);
  applied = wanted;
}

}  // namespace tilery::cuda
