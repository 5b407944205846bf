// TorchScript on the CPU.
#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/version.h>

#include <algorithm>
#include <mutex>
#include <new>

#include "io/error.h"
#include "pipeline/model.h"
#include "pipeline/tensor_heap.h"
#include "pipeline/torch_values.h"

namespace tilery {
namespace {

// What Torch's own allocator says, and ours.
constexpr const char* kOutOfMemory = "DefaultCPUAllocator: can't allocate memory";

bool SaysOutOfMemory(const std::string& what) {
  return what.find(kOutOfMemory) != std::string::npos;
}

// A want of memory must never choose the form of a model: another worker would choose differently,
// and its bytes would differ.
bool IsOutOfMemory(const std::exception& e) {
  return dynamic_cast<const std::bad_alloc*>(&e) != nullptr || SaysOutOfMemory(e.what());
}

[[noreturn]] void Rethrow(const std::filesystem::path& path, const std::string& doing,
                          const std::string& what) {
  const std::string where = "model " + Printable(path.native()) + " " + doing + ": ";
  if (SaysOutOfMemory(what)) {
    throw Error(Fault::kTransient, where + "not enough memory; use a smaller tile or batch");
  }
  throw Error(Fault::kModel, where + LastLine(what));
}

template <typename Body>
auto Guarded(const std::filesystem::path& path, const std::string& doing, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    Rethrow(path, doing, kOutOfMemory);
  } catch (const std::exception& e) {
    Rethrow(path, doing, MessageOf(e));
  }
}

// Tensors live until static objects are destroyed, so their heap is never destroyed.
TensorHeap& Heap() {
  static TensorHeap* const heap = new TensorHeap;
  return *heap;
}

struct HeapAllocator final : c10::Allocator {
  static void Delete(void* block) { Heap().Free(block); }
  c10::DataPtr allocate(size_t bytes) override {
    void* block = nullptr;
    try {
      if (bytes > 0) block = Heap().Allocate(bytes);
    } catch (const std::bad_alloc&) {
      TORCH_CHECK(false, kOutOfMemory, ": ", bytes, " bytes");
    }
    return {block, block, &Delete, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &Delete; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }
};

// For the whole process, before the first tensor. Not under AddressSanitizer, which watches the C
// library's blocks one by one.
void UseHeap() {
#if !defined(__SANITIZE_ADDRESS__)
  static HeapAllocator allocator;
  static std::once_flag installed;
  std::call_once(installed, [] { c10::SetCPUAllocator(&allocator); });
#endif
}

// Intra-op threads are a setting of each thread: one per lane, since their number changes bytes.
void UseOneThread() {
  thread_local const bool done = [] {
    at::set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

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
    UseHeap();
    Guarded(path_, "can't be loaded", [&] { module_ = Frozen(); });
  }
  ~TorchScriptModel() override { Heap().Trim(); }

  ModelOutput Run(float* input, const std::vector<int64_t>& shape) override {
    return Guarded(path_, "failed", [&] { return Keep(Forward(module_, input, shape)); });
  }

  ModelOutput Prepare(const std::vector<int64_t>& shape) override {
    return Guarded(path_, "failed", [&] { return Keep(PreparedFor(shape)); });
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
      if (IsOutOfMemory(e)) throw;
      // Not every model can be rewritten; if it is the model itself that throws, so it will below.
    }
    input = values;
    return Forward(module_, input.data(), shape);
  }

  // Dense f32 that shares no memory with the input: whoever keeps it must not see the next batch
  // through it.
  static at::Tensor Forward(torch::jit::Module& module, float* input,
                            const std::vector<int64_t>& shape) {
    UseOneThread();
    const c10::InferenceMode inference;
    // The profiling executor rewrites the graph after the first runs, which may change bytes; the
    // graph is run as it was prepared.
    const torch::jit::GraphOptimizerEnabledGuard as_prepared(false);
    const at::Tensor in = at::from_blob(input, shape, at::kFloat);
    at::Tensor out = TheTensor(module.forward({in}));
    if (!out.defined() || out.is_complex()) throw std::runtime_error("it returns no real numbers");
    if (out.is_mkldnn()) out = out.to_dense();
    out = out.to(at::kCPU, at::kFloat).contiguous();
    return out.storage().data() == in.storage().data() ? out.clone() : out;
  }

  static ModelOutput Keep(at::Tensor out) {
    auto kept = std::make_shared<at::Tensor>(std::move(out));
    return {kept->const_data_ptr<float>(), kept->sizes().vec(), kept};
  }

  torch::jit::Module Loaded() const {
    UseOneThread();
    static std::once_flag inter_op;  // may be set once per process, before the first use
    std::call_once(inter_op, [] {
      try {
        at::set_num_interop_threads(1);
      } catch (const c10::Error&) {
        // Something in this process has used them already; they run no kernels of ours.
      }
    });
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
      if (IsOutOfMemory(e)) throw;
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
