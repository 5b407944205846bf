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
// most 25 % more. A request is served by the smallest idle buffer that is large enough.
//
// Of the heap, at most `max_idle` bytes lie idle: beyond that the one idle for longest goes back to
// the system; buffers are at most twice as large as what they are used for. Memory of a HostMemory
// is dear to make (registering it with a GPU holds up that GPU's other calls), so it is kept, and
// used for what takes a quarter of it or more: of each size there are soon as many as are ever in
// use at a time, and no more are made.
class HostBuffers {
 public:
  explicit HostBuffers(size_t max_idle);
  explicit HostBuffers(std::shared_ptr<HostMemory> memory);
  // At least `bytes` bytes, aligned to 64, content undefined. Throws std::bad_alloc, and what the
  // HostMemory throws.
  std::shared_ptr<std::byte> Take(size_t bytes);
  // Allocations since the last MarkWarm(), or 0 before the first.
  int64_t steady_allocations() const;
  void MarkWarm();
  size_t idle_bytes() const;

  static size_t Rounded(size_t bytes);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace tilery
