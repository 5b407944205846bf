#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inline_fork_wait.h>
#include <torch/csrc/jit/passes/shape_analysis.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <new>
#include <unordered_map>
#include <unordered_set>

#include "pipeline/cuda/torch_forward.h"
#include "pipeline/torch_values.h"

namespace tilery::cuda {
namespace {

namespace jit = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;
namespace attr = c10::attr;

// Rewrites a module that was loaded on the CPU for a GPU, a precision and a layout: its tensors and
// the graphs of its methods, in which tracing and freezing have left tensors, devices and switches.
class Converter {
 public:
  explicit Converter(const GpuModelOptions& options)
      : options_(options),
        device_(c10::kCUDA, static_cast<c10::DeviceIndex>(options.device)),
        type_(options.precision == "fp16"   ? at::kHalf
              : options.precision == "bf16" ? at::kBFloat16
                                            : at::kFloat) {}

  void Convert(jit::Module& module) {
    for (jit::Module part : module.modules()) {
      for (const auto& slot : part.named_attributes(/*recurse=*/false)) {
        if (slot.value.isModule() || slot.value.isObject()) continue;
        if (HoldsTensors(slot.value)) part.setattr(slot.name, Converted(slot.value, false));
      }
      for (const jit::Method& method : part.get_methods()) Convert(method.graph());
    }
  }

 private:
  static bool HoldsTensors(const c10::IValue& value) {
    return value.isTensor() || value.isTensorList() || value.isList() || value.isTuple() ||
           value.isGenericDict();
  }

  // `constant`: of a graph. There, a number that was a tensor stays on the CPU as it is: kernels
  // take it as a number, and it does not widen their result.
  at::Tensor Converted(const at::Tensor& tensor, bool constant) {
    if (!tensor.defined() || (constant && tensor.dim() == 0)) return tensor;
    const auto [at, added] = converted_.try_emplace(tensor.unsafeGetTensorImpl());
    if (!added) return at->second.second;  // tied weights stay tied
    at::Tensor result = tensor.detach();
    result = result.to(device_, result.is_floating_point() ? type_ : result.scalar_type());
    if (options_.layout == "nhwc" && result.layout() == at::kStrided) {
      if (result.dim() == 4) result = result.contiguous(at::MemoryFormat::ChannelsLast);
      if (result.dim() == 5) result = result.contiguous(at::MemoryFormat::ChannelsLast3d);
    }
    at->second = {tensor, result};  // holds the old one, so that its address is not used again
    return result;
  }

  c10::IValue Converted(const c10::IValue& value, bool constant) {
    if (value.isTensor()) return Converted(value.toTensor(), constant);
    if (value.isTuple()) {
      std::vector<c10::IValue> entries;
      for (const c10::IValue& entry : value.toTupleRef().elements()) {
        entries.push_back(Converted(entry, constant));
      }
      return c10::ivalue::Tuple::createNamed(std::move(entries),
                                             value.type()->expect<c10::TupleType>());
    }
    if (value.isList()) {
      c10::List<c10::IValue> list = value.toList();
      for (size_t i = 0; i < list.size(); ++i) list.set(i, Converted(list.get(i), constant));
    } else if (value.isGenericDict()) {
      for (auto& entry : value.toGenericDict()) entry.setValue(Converted(entry.value(), constant));
    }
    return value;
  }

  void Convert(const std::shared_ptr<jit::Graph>& graph) {
    if (!seen_.insert(graph.get()).second) return;
    // Parts that run beside each other would run on other streams, which nothing here waits for.
    if (Contains(*graph->block(), prim::fork)) jit::InlineForkWait(graph);
    Convert(*graph, *graph->block());
    jit::EraseShapeInformation(graph);  // it speaks of the CPU
  }

  static bool Contains(const jit::Block& block, c10::Symbol kind) {
    for (const jit::Node* node : block.nodes()) {
      if (node->kind() == kind) return true;
      for (const jit::Block* inner : node->blocks()) {
        if (Contains(*inner, kind)) return true;
      }
    }
    return false;
  }

  void Convert(jit::Graph& graph, jit::Block& block) {
    std::vector<jit::Node*> nodes(block.nodes().begin(), block.nodes().end());
    for (jit::Node* node : nodes) {
      if (node->kind() == prim::Constant) Constant(*node);
      if (node->kind() == aten::_convolution) Convolution(graph, *node);
      if (node->hasAttribute(attr::Subgraph)) Convert(node->g(attr::Subgraph));
      for (jit::Block* inner : node->blocks()) Convert(graph, *inner);
    }
  }

  void Constant(jit::Node& node) {
    const c10::TypePtr type = node.output()->type();
    if (const auto function = type->cast<c10::FunctionType>()) {
      if (auto* called = jit::tryToGraphFunction(*function->function())) Convert(called->graph());
      return;
    }
    if (!node.hasAttribute(attr::value)) return;
    switch (node.kindOf(attr::value)) {
      case jit::AttributeKind::t:
        node.t_(attr::value, Converted(node.t(attr::value), true));
        break;
      case jit::AttributeKind::ts: {
        std::vector<at::Tensor> tensors = node.ts(attr::value);
        for (at::Tensor& tensor : tensors) tensor = Converted(tensor, true);
        node.ts_(attr::value, std::move(tensors));
        break;
      }
      case jit::AttributeKind::ival:
        if (HoldsTensors(node.ival(attr::value))) {
          node.ival_(attr::value, Converted(node.ival(attr::value), true));
        }
        break;
      case jit::AttributeKind::s:
        if (type->kind() == c10::TypeKind::DeviceObjType) node.s_(attr::value, device_.str());
        break;
      default:
        break;
    }
  }

  // Tracing writes the switches of its own process into each convolution: _convolution(input,
  // weight, bias, stride, padding, dilation, transposed, output_padding, groups, benchmark,
  // deterministic, cudnn_enabled[, allow_tf32]).
  void Convolution(jit::Graph& graph, jit::Node& node) {
    const jit::WithInsertPoint before(&node);
    const auto set = [&](size_t input, bool value) {
      if (input < node.inputs().size()) node.replaceInput(input, graph.insertConstant(value));
    };
    set(9, options_.autotune);
    set(10, options_.deterministic);
    set(12, options_.precision == "tf32");
  }

  const GpuModelOptions& options_;
  const at::Device device_;
  const at::ScalarType type_;
  std::unordered_map<const c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> converted_;
  std::unordered_set<const jit::Graph*> seen_;
};

class ScriptForward final : public Forward {
 public:
  explicit ScriptForward(const GpuModelOptions& options) : options_(options) {
    const at::NoGradGuard no_grad;
    module_ = Loaded();
    try {
      // Before conversion: norms are folded into convolutions in fp32 and rounded once, and
      // freezing does not know every layout.
      module_ = jit::freeze(module_);
      frozen_ = true;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (const std::exception&) {
      module_ = Loaded();  // some can't be frozen (attributes that change)
    }
    Converter(options_).Convert(module_);
  }

  ModelType input_type() const override {
    return options_.precision == "fp16"   ? ModelType::kF16
           : options_.precision == "bf16" ? ModelType::kBf16
                                          : ModelType::kF32;
  }

  at::Tensor Run(const at::Tensor& input) override {
    // The profiling executor rewrites the graph after the first runs, which may change bytes.
    const jit::GraphOptimizerEnabledGuard as_prepared(false);
    return TheTensor(module_.forward({input}));
  }

  // Freezing also folds questions such as "what type has that weight?", whose answer has changed
  // since.
  bool NextForm() override {
    if (!frozen_) return false;
    frozen_ = false;
    const at::NoGradGuard no_grad;
    module_ = Loaded();
    Converter(options_).Convert(module_);
    return true;
  }

 private:
  jit::Module Loaded() const {
    jit::Module module = jit::load(options_.bytes().string(), c10::Device(c10::kCPU));
    module.eval();
    module.to(at::kFloat);
    return module;
  }

  const GpuModelOptions options_;
  bool frozen_ = false;
  jit::Module module_;
};

}  // namespace

std::unique_ptr<Forward> LoadScript(const GpuModelOptions& options) {
  return std::make_unique<ScriptForward>(options);
}

}  // namespace tilery::cuda
