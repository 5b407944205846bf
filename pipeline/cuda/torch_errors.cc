#include "pipeline/cuda/torch_errors.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <mutex>
#include <new>

#include "pipeline/device_loss.h"
#include "pipeline/torch_values.h"

namespace tilery::cuda {
namespace {

struct Refusals {
  int64_t times = 0;
  int64_t asked = 0, free = 0;  // the last one's
};
thread_local Refusals refusals;

bool SaysOutOfMemory(const std::string& text) {
  for (const char* word : {"out of memory", "ALLOC_FAILED", "cudaErrorMemoryAllocation"}) {
    if (text.find(word) != std::string::npos) return true;
  }
  return false;
}

std::string Numbers(bool known) {
  if (known) {
    return "asked " + std::to_string(refusals.asked) + " bytes, " + std::to_string(refusals.free) +
           " free";
  }
  size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess) {
    cudaGetLastError();
    return "the bytes asked are not known";
  }
  return "asked an unknown number of bytes, " + std::to_string(free) + " free";
}

}  // namespace

void WatchMemory() {
  static std::once_flag watching;
  std::call_once(watching, [] {
    // Called by the thread that asked, inside the allocator's lock.
    c10::cuda::CUDACachingAllocator::attachOutOfMemoryObserver(
        [](int64_t, size_t asked, size_t, size_t free) {
          ++refusals.times;
          refusals.asked = static_cast<int64_t>(asked);
          refusals.free = static_cast<int64_t>(free);
        });
  });
}

int64_t RefusedDemands() { return refusals.times; }

std::string LastRefusal() { return Numbers(true); }

bool IsOutOfMemory(const std::exception& e, int64_t refused) {
  return refusals.times > refused || dynamic_cast<const std::bad_alloc*>(&e) != nullptr ||
         dynamic_cast<const c10::OutOfMemoryError*>(&e) != nullptr || SaysOutOfMemory(MessageOf(e));
}

std::string Reason(const std::exception& e) {
  const std::string text = MessageOf(e);
  // CUDA's own line is followed by advice on debugging.
  const size_t at = text.find("CUDA error: ");
  if (at != std::string::npos) return Printable(text.substr(at, text.find('\n', at) - at));
  return LastLine(text);
}

void ThrowAsOurs(const Blame& blame, const std::string& doing, const std::exception& e,
                 int64_t refused) {
  const std::string where = "model " + Printable(blame.model.native()) + " " + doing + ": ";
  // An error that belongs to one call is taken by being asked for; one that has broken the context
  // comes again with every call.
  cudaGetLastError();
  const cudaError_t state = cudaStreamQuery(blame.stream);
  if (state != cudaSuccess && state != cudaErrorNotReady) {
    throw Error(Fault::kInternal, "GPU lost: " + where + cudaGetErrorName(state) + " (" +
                                      cudaGetErrorString(state) + ")");
  }
  if (dynamic_cast<const std::bad_alloc*>(&e) != nullptr) {
    throw Error(Fault::kTransient, where + "not enough host memory; use a smaller tile or batch");
  }
  if (!IsOutOfMemory(e, refused)) throw Error(Fault::kModel, where + Reason(e));
  const std::string numbers = Numbers(refusals.times > refused);
  if (blame.batch == 1 && blame.loading) {
    throw OutOfDeviceMemory(Fault::kModel,
                            where + "it does not fit the GPU even at batch 1: " + numbers +
                                "; use a smaller tile or a narrower precision");
  }
  throw OutOfDeviceMemory(Fault::kTransient, where + "not enough GPU memory for a batch of " +
                                                 std::to_string(blame.batch) + ": " + numbers +
                                                 "; use a smaller batch or tile");
}

void CheckCuda(int status, const char* call) {
  const auto error = static_cast<cudaError_t>(status);
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string("CUDA error: ") + cudaGetErrorString(error) + " (" + call +
                           ": " + cudaGetErrorName(error) + ")");
}

}  // namespace tilery::cuda
