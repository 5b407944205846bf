// Memory as of a device, which counts how often it is asked for some. Thread-safe.
#pragma once

#include <algorithm>
#include <mutex>
#include <new>

#include "pipeline/engine.h"

namespace tilery {

class CountedMemory : public HostMemory {
 public:
  std::byte* Allocate(size_t bytes) override {
    const std::lock_guard lock(mutex_);
    ++allocations_;
    held_ += bytes;
    most_held_ = std::max(most_held_, held_);
    return static_cast<std::byte*>(::operator new (bytes, std::align_val_t{64}));
  }
  void Free(std::byte* data, size_t bytes) noexcept override {
    const std::lock_guard lock(mutex_);
    held_ -= bytes;
    ::operator delete (data, std::align_val_t{64});
  }
  int64_t allocations() const {
    const std::lock_guard lock(mutex_);
    return allocations_;
  }
  size_t held() const {
    const std::lock_guard lock(mutex_);
    return held_;
  }
  size_t most_held() const {
    const std::lock_guard lock(mutex_);
    return most_held_;
  }

 private:
  mutable std::mutex mutex_;
  int64_t allocations_ = 0;
  size_t held_ = 0, most_held_ = 0;
};

}  // namespace tilery
