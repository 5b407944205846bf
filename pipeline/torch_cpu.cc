#include "pipeline/torch_cpu.h"

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <stdexcept>
#include <utility>

#include "pipeline/tensor_heap.h"

namespace tilery {
namespace {

// What Torch's own allocator says, and ours.
constexpr const char* kOutOfMemory = "DefaultCPUAllocator: can't allocate memory";

bool SaysOutOfMemory(const std::string& what) {
  return what.find(kOutOfMemory) != std::string::npos;
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

}  // namespace

// Not under AddressSanitizer, which watches the C library's blocks one by one.
void UseTensorHeap() {
#if !defined(__SANITIZE_ADDRESS__)
  static HeapAllocator allocator;
  static std::once_flag installed;
  std::call_once(installed, [] { c10::SetCPUAllocator(&allocator); });
#endif
}

void TrimTensorHeap() { Heap().Trim(); }

void UseOneThread() {
  thread_local const bool done = [] {
    at::set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
  static std::once_flag inter_op;  // may be set once per process, before the first use
  std::call_once(inter_op, [] {
    try {
      at::set_num_interop_threads(1);
    } catch (const c10::Error&) {
      // Something in this process has used them already; they run no kernels of ours.
    }
  });
}

bool IsOutOfHostMemory(const std::exception& e) {
  return dynamic_cast<const std::bad_alloc*>(&e) != nullptr || SaysOutOfMemory(e.what());
}

at::Tensor AsFloats(at::Tensor answer, const at::Tensor& input) {
  if (!answer.defined() || answer.is_complex()) {
    throw std::runtime_error("it returns no real numbers");
  }
  if (answer.is_mkldnn()) answer = answer.to_dense();
  answer = answer.to(at::kCPU, at::kFloat).contiguous();
  return answer.storage().data() == input.storage().data() ? answer.clone() : answer;
}

ModelOutput Kept(at::Tensor floats) {
  auto kept = std::make_shared<at::Tensor>(std::move(floats));
  return {kept->const_data_ptr<float>(), kept->sizes().vec(), kept};
}

void ThrowModelError(const std::filesystem::path& model, const std::string& doing,
                     const std::exception& e) {
  const std::string where = "model " + Printable(model.native()) + " " + doing + ": ";
  if (IsOutOfHostMemory(e)) {
    throw Error(Fault::kTransient, where + "not enough memory; use a smaller tile or batch");
  }
  throw Error(Fault::kModel, where + LastLine(MessageOf(e)));
}

}  // namespace tilery
