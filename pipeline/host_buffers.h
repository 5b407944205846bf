// Large host buffers that are used again, so that their pages are not asked of the system anew for
// every unit (which costs more than the copy that fills them).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "pipeline/engine.h"

namespace tilery {

// Thread-safe. Buffers may outlive the pool. Sizes are rounded up to quarters of powers of two, at
// most 25 % more; a returned buffer serves later requests of the same rounded size. At most
// `max_free` bytes lie idle: beyond that the one idle for longest goes back to the system.
class HostBuffers {
 public:
  // `memory`: where they come from; nullptr: the heap.
  explicit HostBuffers(size_t max_free, std::shared_ptr<HostMemory> memory = nullptr);
  // At least `bytes` bytes, aligned to 64, content undefined. Throws std::bad_alloc.
  std::shared_ptr<std::byte> Take(size_t bytes);
  // Puts `count` buffers of this size beside the idle ones, so that as many requests find one.
  void Prepare(size_t bytes, int count);
  // Allocations since the last MarkWarm(), or 0 before the first.
  int64_t steady_allocations() const;
  void MarkWarm();
  size_t free_bytes() const;

  static size_t Rounded(size_t bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tilery
