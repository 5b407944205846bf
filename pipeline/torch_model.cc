// TorchScript on the CPU.
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#include <algorithm>

#include "io/error.h"
#include "pipeline/model.h"
#include "pipeline/torch_cpu.h"
#include "pipeline/torch_values.h"

namespace tilery {
namespace {

// Whether `fast` begins with the values of `plain`, which holds fewer items, up to what another
// order of float32 additions may change.
bool SameAnswers(const at::Tensor& plain, const at::Tensor& fast) {
  if (plain.dim() != fast.dim() || plain.dim() == 0 || plain.size(0) > fast.size(0)) return false;
  const at::Tensor part = fast.slice(0, 0, plain.size(0));
  if (part.sizes() != plain.sizes() || plain.numel() == 0) return false;
  const double largest = plain.abs().max().item<double>();
  const double difference = (part - plain).abs().max().item<double>();
  return difference <= 1e-3 * largest;  // false also if anything is not a number
}

int64_t CountNodes(const torch::jit::Block* block, const c10::Symbol& kind) {
  int64_t count = 0;
  for (const torch::jit::Node* node : block->nodes()) {
    count += node->kind() == kind ? 1 : 0;
    for (const torch::jit::Block* inner : node->blocks()) count += CountNodes(inner, kind);
  }
  return count;
}

// Whether convolutions in the kernels' own layout pay. Every operator that knows only the plain
// layout costs a conversion there and back: measured, chains of convolutions gain a tenth, nets
// with a norm after each lose some percent. A batch of one always gains (up to five times): for it,
// Torch would otherwise choose kernels that are meant for other processors.
bool Pays(const torch::jit::Module& fast, int64_t batch) {
  const auto graph = fast.get_method("forward").graph();
  const auto count = [&](const char* kind) {
    return CountNodes(graph->block(), c10::Symbol::fromQualString(kind));
  };
  return batch == 1 || 2 * count("aten::to_mkldnn") <= count("prim::mkldnn_convolution");
}

class TorchScriptModel final : public Model {
 public:
  explicit TorchScriptModel(std::filesystem::path path) : path_(std::move(path)) {
    UseTensorHeap();
    GuardedModel(path_, "can't be loaded", [&] { module_ = Frozen(); });
  }
  ~TorchScriptModel() override { TrimTensorHeap(); }

  ModelOutput Run(float* input, const std::vector<int64_t>& shape) override {
    return GuardedModel(path_, "failed", [&] { return Kept(Forward(module_, input, shape)); });
  }

  ModelOutput Prepare(const std::vector<int64_t>& shape) override {
    return GuardedModel(path_, "failed", [&] { return Kept(PreparedFor(shape)); });
  }

 private:
  // The answer to the trial values.
  at::Tensor PreparedFor(const std::vector<int64_t>& shape) {
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    const std::vector<float> values = TrialValues(count);
    std::vector<float> input;
    try {
      // Weights in the order of the convolutions' kernels, and tensors between them likewise.
      torch::jit::Module loaded = Loaded();
      torch::jit::Module fast = torch::jit::optimize_for_inference(loaded);
      if (Pays(fast, shape[0])) {
        input = values;
        std::vector<int64_t> one = shape;
        one[0] = 1;
        const at::Tensor plain = Forward(module_, input.data(), one);
        input = values;
        const at::Tensor answer = Forward(fast, input.data(), shape);
        if (SameAnswers(plain, answer)) {
          module_ = fast;
          return answer;
        }
      }
    } catch (const std::exception& e) {
      if (IsOutOfHostMemory(e)) throw;
      // Not every model can be rewritten; if it is the model itself that throws, so it will below.
    }
    input = values;
    return Forward(module_, input.data(), shape);
  }

  static at::Tensor Forward(torch::jit::Module& module, float* input,
                            const std::vector<int64_t>& shape) {
    UseOneThread();
    const c10::InferenceMode inference;
    // The profiling executor rewrites the graph after the first runs, which may change bytes; the
    // graph is run as it was prepared.
    const torch::jit::GraphOptimizerEnabledGuard as_prepared(false);
    const at::Tensor in = at::from_blob(input, shape, at::kFloat);
    return AsFloats(TheTensor(module.forward({in})), in);
  }

  torch::jit::Module Loaded() const {
    UseOneThread();
    torch::jit::Module module = torch::jit::load(path_.string(), c10::Device(c10::kCPU));
    module.eval();
    module.to(at::kFloat);
    return module;
  }

  torch::jit::Module Frozen() const {
    const at::NoGradGuard no_grad;
    const torch::jit::Module module = Loaded();
    try {
      return torch::jit::freeze(module);
    } catch (const std::exception& e) {
      if (IsOutOfHostMemory(e)) throw;
      return module;  // some can't be frozen (attributes that change); they run as they are
    }
  }

  std::filesystem::path path_;
  torch::jit::Module module_;
};

}  // namespace

std::unique_ptr<Model> LoadTorchScript(const std::filesystem::path& path) {
  return std::make_unique<TorchScriptModel>(path);
}

std::vector<float> TrialValues(int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 37 % 101 + 20) / 200.0f;
  return values;
}

std::string TorchVersion() { return TORCH_VERSION; }

std::string CpuCapability() { return at::get_cpu_capability(); }

}  // namespace tilery
