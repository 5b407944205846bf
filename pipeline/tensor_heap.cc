#include "pipeline/tensor_heap.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tilery {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLarge = 32 << 10;
constexpr size_t kPage = 4 << 10;
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kSegment = 256 << 20;

size_t Up(size_t n, size_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

TensorHeap::~TensorHeap() {
  for (const auto& [begin, size] : segments_) munmap(reinterpret_cast<void*>(begin), size);
}

void* TensorHeap::Allocate(size_t bytes) {
  if (bytes < kLarge) {
    void* block = nullptr;
    if (posix_memalign(&block, kAlignment, std::max<size_t>(bytes, 1)) != 0) throw std::bad_alloc();
    return block;
  }
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const size_t size = Up(bytes, kPage);
  const std::lock_guard lock(mutex_);
  const auto fits = [&] {
    return std::find_if(free_.begin(), free_.end(),
                        [&](const auto& f) { return f.second >= size; });
  };
  auto found = fits();
  if (found == free_.end()) {
    AddSegment(size);
    found = fits();
  }
  const auto [begin, available] = *found;
  free_.erase(found);
  if (available > size) free_.emplace(begin + size, available - size);
  live_.emplace(begin, size);
  usage_.live += size;
  usage_.peak_live = std::max(usage_.peak_live, usage_.live);
  ++usage_.large_blocks;
  return reinterpret_cast<void*>(begin);
}

void TensorHeap::AddSegment(size_t at_least) {
  // Room to begin at a huge page: fewer faults at first, fewer misses of the address cache for
  // ever.
  const size_t size = Up(std::max(at_least, kSegment), kHugePage) + kHugePage;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  madvise(memory, size, MADV_HUGEPAGE);  // a hint; without it all is the same, only slower
  const auto begin = reinterpret_cast<uintptr_t>(memory);
  segments_.emplace(begin, size);
  usage_.mapped += size;
  const uintptr_t aligned = Up(begin, kHugePage);
  Release(aligned, begin + size - aligned);
}

void TensorHeap::Free(void* block) noexcept {
  if (block == nullptr) return;
  const auto begin = reinterpret_cast<uintptr_t>(block);
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = live_.find(begin); found != live_.end()) {
      const size_t size = found->second;
      live_.erase(found);
      usage_.live -= size;
      --usage_.large_blocks;
      Release(begin, size);
      return;
    }
  }
  std::free(block);
}

// Merged with free neighbours, also across segments that happen to adjoin.
void TensorHeap::Release(uintptr_t begin, size_t size) {
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && begin + size == next->first) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      before->second += size;
      return;
    }
  }
  free_.emplace_hint(next, begin, size);
}

void TensorHeap::Trim() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [begin, size] : free_) {
    madvise(reinterpret_cast<void*>(begin), size, MADV_DONTNEED);
  }
}

TensorHeap::Usage TensorHeap::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

}  // namespace tilery
