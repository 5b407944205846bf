// What the codec's devices on GPUs have in common: memory that stays, and a stream for each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "pipeline/cuda/kernels.h"

namespace tilery::cuda {

// Error(kTransient) where memory ran out, else Error(kInternal) with CUDA's text. `bytes`: that
// were asked for.
// `status`: a cudaError_t.
void CheckCall(int status, const char* call, int64_t bytes = 0);

void UseDevice(int device);  // on this thread

// Memory of the GPU or pinned memory of the host that grows and never shrinks; what it held is lost
// when it grows. Not thread-safe.
class GrowingMemory {
 public:
  explicit GrowingMemory(bool host) : host_(host) {}
  ~GrowingMemory() { Free(); }
  GrowingMemory(const GrowingMemory&) = delete;
  std::byte* Reserve(int64_t bytes);

 private:
  void Free();

  const bool host_;
  std::byte* data_ = nullptr;
  int64_t size_ = 0;
};

// Where parts lie in one piece of memory, each aligned to 16 bytes.
class Layout {
 public:
  int64_t Add(int64_t bytes) {
    const int64_t at = size_;
    size_ += (bytes + 15) / 16 * 16;
    return at;
  }
  template <typename T>
  int64_t Add(int64_t count) {
    return Add(count * static_cast<int64_t>(sizeof(T)));
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

// A stream that waits for no other.
class CodecStream {
 public:
  CodecStream();
  ~CodecStream();
  CodecStream(const CodecStream&) = delete;
  Stream get() const { return stream_; }
  void ToGpu(void* to, const void* from, int64_t bytes);
  void ToHost(void* to, const void* from, int64_t bytes);
  void Wait(const char* what);

 private:
  Stream stream_ = nullptr;
};

// Lanes of calls that run side by side; each call borrows one, and makes it if none is idle. One
// whose call failed is not used again. Thread-safe.
template <typename Lane>
class Lanes {
 public:
  // Calls use(lane).
  template <typename Use>
  auto With(const Use& use) {
    std::unique_ptr<Lane> lane;
    {
      const std::scoped_lock lock(mutex_);
      if (!idle_.empty()) {
        lane = std::move(idle_.back());
        idle_.pop_back();
      }
    }
    if (!lane) lane = std::make_unique<Lane>();
    auto result = use(*lane);
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(lane));
    return result;
  }

 private:
  std::mutex mutex_;  // guards `idle_`
  std::vector<std::unique_ptr<Lane>> idle_;
};

// What of a codec lies on one GPU: a model that all calls share, made by the first one, and lanes.
// Thread-safe.
template <typename Model, typename Lane>
class CodecGpu {
 public:
  explicit CodecGpu(int device) : device_(device) {}
  // Calls use(model, lane), the device being this thread's.
  template <typename Use>
  auto With(const Use& use) {
    UseDevice(device_);
    const Model& model = Get();
    return lanes_.With([&](Lane& lane) { return use(model, lane); });
  }

 private:
  const Model& Get() {
    const std::scoped_lock lock(mutex_);
    if (!model_) model_ = std::make_unique<Model>();
    return *model_;
  }

  const int device_;
  std::mutex mutex_;  // guards `model_`, which stays once it is there
  std::unique_ptr<Model> model_;
  Lanes<Lane> lanes_;
};

}  // namespace tilery::cuda
