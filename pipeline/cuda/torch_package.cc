// AOTInductor packages: compiled models, each for one kind of GPU, shape, precision and layout.
#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/version.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "pipeline/cuda/torch_errors.h"
#include "pipeline/cuda/torch_forward.h"

namespace tilery::cuda {
namespace {

using nlohmann::json;

constexpr const char* kCompiled = "data/aotinductor/";  // where packages keep what was compiled
constexpr const char* kFacts = "tilery_package.json";   // what tools/compile_model.py says
constexpr const char* kRemedy = "; compile it for this with tools/compile_model.py";

bool EndsWith(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.npos, end) == 0;
}

// The first member below `folder` whose name ends so.
std::optional<json> ReadJson(caffe2::serialize::PyTorchStreamReader& reader,
                             const std::string& folder, const std::string& end) {
  for (const std::string& name : reader.getAllRecords()) {
    if (name.rfind(folder, 0) != 0 || !EndsWith(name, end)) continue;
    const auto [data, size] = reader.getRecord(name);
    return json::parse(std::string(static_cast<const char*>(data.get()), size));
  }
  return std::nullopt;
}

std::string Text(const json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

class Contract {
 public:
  explicit Contract(const GpuModelOptions& options) : options_(options) {
    CheckCuda(cudaGetDeviceProperties(&gpu_, options.device), "cudaGetDeviceProperties");
  }

  void Check(const json& facts) const {
    const std::string capability = std::to_string(gpu_.major) + "." + std::to_string(gpu_.minor);
    const std::string here = std::string(gpu_.name) + " (" + capability + ")";
    const std::string built = Text(facts.at("gpu")) + " (" + Text(facts.at("capability")) + ")";
    if (built != here) Refuse("it was compiled for " + built + ", and this GPU is " + here);
    json tile = json::array();
    for (int a = 3 - options_.dims; a < 3; ++a) tile.push_back(options_.tile[a]);
    Match(facts, "torch", TORCH_VERSION);
    Match(facts, "tile", tile);
    Match(facts, "batch", options_.batch);
    Match(facts, "precision", options_.precision);
    Match(facts, "layout", options_.layout);
    Match(facts, "channels_in", options_.channels_in);
    Match(facts, "channels_out", options_.channels_out);
  }

  // Of a package that somebody else made; its own checks compare the shapes when it runs.
  void CheckForeign(const json& metadata) const {
    const std::string kind = metadata.value("AOTI_DEVICE_KEY", "unknown");
    const std::string capability = metadata.value("AOTI_COMPUTE_CAPABILITY", "unknown");
    const std::string here = std::to_string(gpu_.major * 10 + gpu_.minor);
    if (kind == "cuda" && capability.rfind(here, 0) == 0) return;  // "90" or "90a"
    Refuse("it was compiled for " + kind + " " + capability + ", and this GPU is " + gpu_.name +
           " (cuda " + here + ")");
  }

 private:
  [[noreturn]] void Refuse(const std::string& why) const {
    throw Error(Fault::kModel, "model " + Printable(options_.model.native()) +
                                   " can't be used: " + Printable(why) + kRemedy);
  }
  void Match(const json& facts, const char* key, const json& wanted) const {
    const json& found = facts.at(key);
    if (found == wanted) return;
    Refuse(std::string("it was compiled for ") + key + " " + Text(found) + ", and wanted is " +
           Text(wanted));
  }

  const GpuModelOptions& options_;
  cudaDeviceProp gpu_{};
};

ModelType TypeOf(const std::string& name) {
  if (name == "f32") return ModelType::kF32;
  if (name == "f16") return ModelType::kF16;
  if (name == "bf16") return ModelType::kBf16;
  throw std::runtime_error("its io_dtype is " + name + ", which is none of f32, f16, bf16");
}

class PackageForward final : public Forward {
 public:
  explicit PackageForward(const GpuModelOptions& options)
      : type_(options.precision == "fp16"   ? ModelType::kF16
              : options.precision == "bf16" ? ModelType::kBf16
                                            : ModelType::kF32) {
    {
      caffe2::serialize::PyTorchStreamReader reader(options.model.string());
      const Contract contract(options);
      if (const auto facts = ReadJson(reader, "", kFacts)) {
        contract.Check(*facts);
        type_ = TypeOf(facts->at("io_dtype").get<std::string>());
      } else if (const auto metadata = ReadJson(reader, kCompiled, "_metadata.json")) {
        contract.CheckForeign(*metadata);
      } else {
        throw std::runtime_error("it does not say what it was compiled for");
      }
    }
    // Single-threaded: otherwise it records events of its own, which can't be captured.
    loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
        options.model.string(), "model", /*run_single_threaded=*/true, /*num_runners=*/1,
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
  std::optional<json> facts;
  try {
    caffe2::serialize::PyTorchStreamReader reader(package.string());
    facts = ReadJson(reader, "", kFacts);
    if (facts) {
      return {facts->at("batch").get<int64_t>(), facts->at("precision").get<std::string>(),
              facts->at("layout").get<std::string>()};
    }
  } catch (const std::exception& e) {
    throw Error(Fault::kModel, name + " can't be used: " + Reason(e) + kRemedy);
  }
  throw Error(Fault::kModel, name + " does not say what it was compiled for" + kRemedy);
}

bool IsPackage(const std::filesystem::path& path) {
  try {
    caffe2::serialize::PyTorchStreamReader reader(path.string());
    for (const std::string& name : reader.getAllRecords()) {
      if (name.rfind(kCompiled, 0) == 0) return true;
    }
  } catch (const std::exception&) {
    // No archive of Torch's; whoever loads it says why.
  }
  return false;
}

}  // namespace tilery::cuda
