#include "pipeline/buffer_pool.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "io/error.h"

namespace tilery {

BufferPool::Buffer BufferPool::Take(int64_t size) {
  {
    const std::lock_guard lock(mutex_);
    auto best = unused_.end();
    for (auto it = unused_.begin(); it != unused_.end(); ++it) {
      // Never one that is much too large: the sum of all buffers in use must stay what was planned.
      const bool fits = it->size >= size && it->size / 2 <= size;
      if (fits && (best == unused_.end() || it->size < best->size)) best = it;
    }
    if (best != unused_.end()) {
      Buffer found = std::move(*best);
      unused_.erase(best);
      return found;
    }
    // What lies unused did not fit; it makes room for what is needed.
    if (!unused_.empty()) unused_.erase(unused_.begin());
  }
  try {
    return {std::unique_ptr<float[]>(new float[size]), size};
  } catch (const std::bad_alloc&) {
    throw Error(Fault::kTransient, "no memory for the sums of a unit (" +
                                       std::to_string(size * sizeof(float)) +
                                       " bytes); use a smaller execution.unit_memory");
  }
}

void BufferPool::Give(Buffer buffer) {
  const std::lock_guard lock(mutex_);
  if (unused_.size() < keep_) unused_.push_back(std::move(buffer));
}

}  // namespace tilery
