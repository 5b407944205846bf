// AOTInductor packages on the CPU.
#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include "pipeline/cpu_model.h"
#include "pipeline/torch_cpu.h"
#include "pipeline/torch_package_facts.h"

namespace tilery {
namespace {

class CompiledModel final : public Model {
 public:
  explicit CompiledModel(const EngineOptions& options)
      : model_(options.model), last_(options.numerics.layout == "nhwc") {
    UseTensorHeap();
    GuardedModel(model_, "can't be loaded as it was compiled", [&] {
      UseOneThread();
      PackageUse use;
      use.device_word = "processor";
      use.gpu = "cpu";
      use.capability = CpuKind();
      use.dims = options.dims;
      use.tile = options.tile;
      use.batch = options.numerics.batch;
      use.precision = options.numerics.precision;
      use.layout = options.numerics.layout;
      use.channels_in = options.channels_in;
      use.channels_out = options.channels_out;
      if (CheckPackage(options.package, use) != "f32") {
        throw std::runtime_error("it does not say what it was compiled for, or takes no f32");
      }
      // Each lane runs a copy of its own; they share the weights.
      loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>(
          options.package.string(), "model", /*run_single_threaded=*/false,
          static_cast<size_t>(options.lanes));
    });
  }
  ~CompiledModel() override {
    loader_.reset();
    TrimTensorHeap();
  }

  ModelOutput Run(float* input, const std::vector<int64_t>& shape) override {
    return GuardedModel(model_, "failed", [&] {
      UseOneThread();
      const c10::InferenceMode inference;
      const at::Tensor planar = at::from_blob(input, shape, at::kFloat);
      const at::Tensor in = last_ ? planar.contiguous(ChannelsLast(shape.size())) : planar;
      std::vector<at::Tensor> outputs = loader_->run({in});
      if (outputs.size() != 1) {
        throw std::runtime_error("it returns " + std::to_string(outputs.size()) +
                                 " tensors; export a model whose forward() returns one");
      }
      return Kept(AsFloats(std::move(outputs[0]), in));
    });
  }

  // There is one form: what was compiled.
  ModelOutput Prepare(const std::vector<int64_t>& shape) override {
    int64_t count = 1;
    for (const int64_t extent : shape) count *= extent;
    std::vector<float> input = TrialValues(count);
    return Run(input.data(), shape);
  }

 private:
  static at::MemoryFormat ChannelsLast(size_t axes) {
    return axes == 5 ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast;
  }

  const std::filesystem::path model_;  // for messages
  const bool last_;                    // channels last
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

}  // namespace

std::unique_ptr<Model> LoadCpuModel(const EngineOptions& options) {
  if (options.package.empty()) return LoadTorchScript(options.model);
  return std::make_unique<CompiledModel>(options);
}

}  // namespace tilery
