// AOTInductor packages: compiled models, each for one kind of GPU, shape, precision and layout.
#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <link.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "pipeline/cuda/torch_errors.h"
#include "pipeline/cuda/torch_forward.h"
#include "pipeline/torch_package_facts.h"

namespace tilery::cuda {
namespace {

using nlohmann::json;

PackageUse UseOf(const GpuModelOptions& options, const cudaDeviceProp& gpu) {
  PackageUse use;
  use.gpu = gpu.name;
  use.capability = std::to_string(gpu.major) + "." + std::to_string(gpu.minor);
  use.dims = options.dims;
  use.tile = options.tile;
  use.batch = options.batch;
  use.precision = options.precision;
  use.layout = options.layout;
  use.channels_in = options.channels_in;
  use.channels_out = options.channels_out;
  return use;
}

// Of a package that somebody else made; its own checks compare the shapes when it runs.
void CheckForeign(const std::filesystem::path& package, const json& metadata,
                  const cudaDeviceProp& gpu) {
  const std::string kind = metadata.value("AOTI_DEVICE_KEY", "unknown");
  const std::string capability = metadata.value("AOTI_COMPUTE_CAPABILITY", "unknown");
  const std::string here = std::to_string(gpu.major * 10 + gpu.minor);
  if (kind == "cuda" && capability.rfind(here, 0) == 0) return;  // "90" or "90a"
  RefusePackage(package, "it was compiled for " + kind + " " + capability + ", and this GPU is " +
                             gpu.name + " (cuda " + here + ")");
}

ModelType TypeOf(const std::string& name) {
  if (name == "f32") return ModelType::kF32;
  if (name == "f16") return ModelType::kF16;
  if (name == "bf16") return ModelType::kBf16;
  throw std::runtime_error("its io_dtype is " + name + ", which is none of f32, f16, bf16");
}

// Packages ask for libtorch.so, which nothing else in this process needs: it lies beside
// libtorch_cpu.so, where the loader does not look by itself. What stays unfound the package's own
// loader says.
void LoadLibTorch() {
  void* const cpu = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
  if (cpu == nullptr) return;
  link_map* map = nullptr;
  if (dlinfo(cpu, RTLD_DI_LINKMAP, &map) == 0) {
    const std::filesystem::path beside =
        std::filesystem::path(map->l_name).parent_path() / "libtorch.so";
    dlopen(beside.c_str(), RTLD_NOW | RTLD_GLOBAL);
  }
  dlclose(cpu);
}

class PackageForward final : public Forward {
 public:
  explicit PackageForward(const GpuModelOptions& options)
      : type_(options.precision == "fp16"   ? ModelType::kF16
              : options.precision == "bf16" ? ModelType::kBf16
                                            : ModelType::kF32) {
    cudaDeviceProp gpu{};
    CheckCuda(cudaGetDeviceProperties(&gpu, options.device), "cudaGetDeviceProperties");
    if (const auto type = CheckPackage(options.bytes(), UseOf(options, gpu))) {
      type_ = TypeOf(*type);
    } else if (const auto metadata =
                   ReadPackageJson(options.bytes(), kCompiledFolder, "_metadata.json")) {
      CheckForeign(options.model, *metadata, gpu);
    } else {
      throw std::runtime_error("it does not say what it was compiled for");
    }
    LoadLibTorch();
    // Single-threaded: otherwise it records events of its own, which can't be captured.
    loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
        options.bytes().string(), "model", /*run_single_threaded=*/true, /*num_runners=*/1,
        static_cast<c10::DeviceIndex>(options.device));
  }

  ModelType input_type() const override { return type_; }

  at::Tensor Run(const at::Tensor& input) override {
    std::vector<at::Tensor> outputs = loader_->run({input});  // on the current stream
    if (outputs.size() != 1) {
      throw std::runtime_error("it returns " + std::to_string(outputs.size()) +
                               " tensors; export a model whose forward() returns one");
    }
    return std::move(outputs[0]);
  }

 private:
  ModelType type_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

}  // namespace

std::unique_ptr<Forward> LoadPackage(const GpuModelOptions& options) {
  return std::make_unique<PackageForward>(options);
}

PackageFacts FactsOf(const std::filesystem::path& package) {
  const std::string name = "package " + Printable(package.native());
  try {
    if (const auto facts = ReadPackageJson(package, "", kPackageFacts)) {
      return {facts->at("batch").get<int64_t>(), facts->at("precision").get<std::string>(),
              facts->at("layout").get<std::string>()};
    }
  } catch (const std::exception& e) {
    throw Error(Fault::kModel, name + " can't be used: " + Reason(e) + kPackageRemedy);
  }
  throw Error(Fault::kModel, name + " does not say what it was compiled for" + kPackageRemedy);
}

bool IsPackage(const std::filesystem::path& path) {
  try {
    caffe2::serialize::PyTorchStreamReader reader(path.string());
    for (const std::string& name : reader.getAllRecords()) {
      if (name.rfind(kCompiledFolder, 0) == 0) return true;
    }
  } catch (const std::exception&) {
    // No archive of Torch's; whoever loads it says why.
  }
  return false;
}

}  // namespace tilery::cuda
