// Memory for a model's tensors that keeps its pages.
//
// A forward pass allocates and frees the same large blocks over and over. The C library gives each
// back to the system and takes it anew, and the page faults cost about a quarter of a small
// convolutional net's time. This heap cuts blocks from large segments, lowest address first, merges
// what is freed, and never unmaps, so that after the first batch of a fixed shape no page is new.
// What it holds is the high-water mark of the live blocks and the gaps between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>

namespace tilery {

// Thread-safe. Blocks below 32 KiB come from the C library.
class TensorHeap {
 public:
  TensorHeap() = default;
  ~TensorHeap();  // no block may be live
  TensorHeap(const TensorHeap&) = delete;

  // Aligned to 64 bytes, content undefined. std::bad_alloc if the system gives no memory.
  void* Allocate(size_t bytes);
  void Free(void* block) noexcept;  // of this heap; null is allowed
  void Trim() noexcept;             // gives the pages of all free blocks back to the system

  struct Usage {
    size_t live = 0;  // bytes in large blocks
    size_t peak_live = 0;
    size_t mapped = 0;  // address space of the segments; pages never touched cost nothing
    int64_t large_blocks = 0;
  };
  Usage usage() const;

 private:
  void AddSegment(size_t at_least);
  void Release(uintptr_t begin, size_t size);

  mutable std::mutex mutex_;  // guards all below
  std::map<uintptr_t, size_t> segments_, free_;
  std::unordered_map<uintptr_t, size_t> live_;
  Usage usage_;
};

}  // namespace tilery
