// TorchScript on the CPU. The only file of this folder that includes Torch.
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/api/module.h>
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

namespace tilery {
namespace {

// What Torch's own allocator says, and ours.
constexpr const char* kOutOfMemory = "DefaultCPUAllocator: can't allocate memory";

// The interpreter's messages are long traces that end in what the model said; that line is kept.
std::string LastLine(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const size_t at = text.rfind('\n');
  return Printable(at == std::string::npos ? text : text.substr(at + 1));
}

[[noreturn]] void Rethrow(const std::filesystem::path& path, const std::string& doing,
                          const std::string& what) {
  const std::string where = "model " + Printable(path.native()) + " " + doing + ": ";
  if (what.find(kOutOfMemory) != std::string::npos) {
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
  } catch (const c10::Error& e) {
    Rethrow(path, doing, e.what_without_backtrace());
  } catch (const std::exception& e) {
    Rethrow(path, doing, e.what());
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

at::Tensor TheTensor(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isTuple() && value.toTupleRef().elements().size() == 1 &&
      value.toTupleRef().elements()[0].isTensor()) {
    return value.toTupleRef().elements()[0].toTensor();
  }
  throw std::runtime_error("it returns " + value.tagKind() +
                           "; export a model whose forward() returns one tensor");
}

class TorchScriptModel final : public Model {
 public:
  explicit TorchScriptModel(std::filesystem::path path) : path_(std::move(path)) {
    UseHeap();
    Guarded(path_, "can't be loaded", [&] { Load(); });
  }
  ~TorchScriptModel() override { Heap().Trim(); }

  ModelOutput Run(float* input, const std::vector<int64_t>& shape) override {
    return Guarded(path_, "failed", [&] {
      UseOneThread();
      const c10::InferenceMode inference;
      // The profiling executor rewrites the graph after the first runs, which may change bytes; the
      // graph is run as it was loaded and frozen.
      const torch::jit::GraphOptimizerEnabledGuard as_loaded(false);
      const at::Tensor in = at::from_blob(input, shape, at::kFloat);
      at::Tensor out = TheTensor(module_.forward({in}));
      if (!out.defined() || out.is_complex())
        throw std::runtime_error("it returns no real numbers");
      // Whoever keeps the output must not see the next batch's input through it.
      const bool aliases = out.has_storage() && out.storage().data() == in.storage().data();
      out = out.to(at::kCPU, at::kFloat).contiguous();
      if (aliases && out.storage().data() == in.storage().data()) out = out.clone();
      auto kept = std::make_shared<at::Tensor>(std::move(out));
      return ModelOutput{kept->const_data_ptr<float>(), kept->sizes().vec(), kept};
    });
  }

 private:
  void Load() {
    UseOneThread();
    static std::once_flag inter_op;  // may be set once per process, before the first use
    std::call_once(inter_op, [] {
      try {
        at::set_num_interop_threads(1);
      } catch (const c10::Error&) {
        // Something in this process has used them already; they run no kernels of ours.
      }
    });
    const at::NoGradGuard no_grad;
    module_ = torch::jit::load(path_.string(), c10::Device(c10::kCPU));
    module_.eval();
    module_.to(at::kFloat);
    try {
      module_ = torch::jit::freeze(module_);
    } catch (const std::exception&) {
      // Some modules can't be frozen (training code, attributes that change); they run as they are.
    }
  }

  std::filesystem::path path_;
  torch::jit::Module module_;
};

}  // namespace

std::unique_ptr<Model> LoadTorchScript(const std::filesystem::path& path) {
  return std::make_unique<TorchScriptModel>(path);
}

std::string TorchVersion() { return TORCH_VERSION; }

std::string CpuCapability() { return at::get_cpu_capability(); }

}  // namespace tilery
