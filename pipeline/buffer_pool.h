// Large f32 buffers that are used again: fresh pages cost a fault each, which for a unit's sums is
// as much work as blending. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace tilery {

class BufferPool {
 public:
  // Keeps at most `keep` unused buffers.
  explicit BufferPool(size_t keep) : keep_(keep) {}

  struct Buffer {
    std::unique_ptr<float[]> data;
    int64_t size = 0;  // floats; at least as many as were asked for
  };
  // Content is undefined. Error(kTransient) if memory ran out.
  Buffer Take(int64_t size);
  void Give(Buffer buffer);

 private:
  const size_t keep_;
  std::mutex mutex_;
  std::vector<Buffer> unused_;  // guarded by mutex_
};

}  // namespace tilery
