// What goes wrong in Torch and CUDA, as errors of ours.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>

#include "io/error.h"
#include "pipeline/cuda/kernels.h"

namespace tilery::cuda {

// Whose error it is.
struct Blame {
  std::filesystem::path model;
  int64_t batch = 1;
  bool loading = true;      // before its first unit: what does not fit at batch 1 never will
  Stream stream = nullptr;  // that its work runs on; not capturing
};

// Once per process, after Torch knows the devices: makes Torch's allocator tell what it could not
// get, which its exceptions lose on their way through the interpreter.
void WatchMemory();

// How often this thread's demands for GPU memory were refused so far.
int64_t RefusedDemands();
// "asked ... bytes, ... free" of the last one.
std::string LastRefusal();

// Throws instead of `e`, caught while the model `doing` ("failed"). `refused` is RefusedDemands()
// from before. GPU lost: kInternal. Memory: OutOfDeviceMemory "asked ... bytes, ... free", kModel
// at batch 1 when loading, else kTransient. All else: kModel with the model's own words.
[[noreturn]] void ThrowAsOurs(const Blame& blame, const std::string& doing, const std::exception& e,
                              int64_t refused);

bool IsOutOfMemory(const std::exception& e, int64_t refused);

// The one line of a message that says what happened; printable.
std::string Reason(const std::exception& e);

// std::runtime_error with CUDA's text if `status` (cudaError_t) is one; takes it from CUDA.
void CheckCuda(int status, const char* call);

template <typename Body>
auto Guarded(const Blame& blame, const std::string& doing, const Body& body) {
  const int64_t refused = RefusedDemands();
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    ThrowAsOurs(blame, doing, e, refused);
  }
}

}  // namespace tilery::cuda
