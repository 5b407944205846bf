#include "pipeline/host_buffers.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace tilery {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr size_t kMostIdle = 1024;  // buffers; taking one back never allocates

}  // namespace

struct HostBuffers::State {
  struct Idle {
    std::byte* data;
    size_t bytes;
  };
  const size_t max_free;
  const std::shared_ptr<HostMemory> memory;
  std::mutex mutex;
  std::vector<Idle> idle;  // in the order of their return
  size_t free_bytes = 0;
  int64_t misses = 0;
  bool warm = false;

  State(size_t limit, std::shared_ptr<HostMemory> from) : max_free(limit), memory(std::move(from)) {
    idle.reserve(kMostIdle);
  }
  ~State() {
    for (const Idle& buffer : idle) Release(buffer.data, buffer.bytes);
  }

  std::byte* Allocate(size_t bytes) {
    if (memory) return memory->Allocate(bytes);
    return static_cast<std::byte*>(::operator new(bytes, kAlign));
  }
  void Release(std::byte* data, size_t bytes) noexcept {
    if (memory) return memory->Free(data, bytes);
    ::operator delete(data, kAlign);
  }

  void Return(std::byte* data, size_t bytes) noexcept {
    const std::lock_guard lock(mutex);
    if (bytes > max_free || idle.size() == idle.capacity()) {
      Release(data, bytes);
      return;
    }
    size_t drop = 0;
    while (free_bytes + bytes > max_free) {
      free_bytes -= idle[drop].bytes;
      Release(idle[drop].data, idle[drop].bytes);
      ++drop;
    }
    idle.erase(idle.begin(), idle.begin() + static_cast<ptrdiff_t>(drop));
    idle.push_back({data, bytes});
    free_bytes += bytes;
  }
};

HostBuffers::HostBuffers(size_t max_free, std::shared_ptr<HostMemory> memory)
    : state_(std::make_shared<State>(max_free, std::move(memory))) {}

size_t HostBuffers::Rounded(size_t bytes) {
  constexpr size_t kSmallest = 4096;
  if (bytes <= kSmallest) return kSmallest;
  const size_t step = std::bit_floor(bytes - 1) / 4;  // quarters of the power of two below
  return (bytes + step - 1) / step * step;
}

std::shared_ptr<std::byte> HostBuffers::Take(size_t bytes) {
  const size_t size = Rounded(bytes);
  std::byte* data = nullptr;
  {
    const std::lock_guard lock(state_->mutex);
    const auto last =
        std::find_if(state_->idle.rbegin(), state_->idle.rend(),
                     [size](const State::Idle& buffer) { return buffer.bytes == size; });
    if (last != state_->idle.rend()) {  // the warmest in the caches
      data = last->data;
      state_->idle.erase(std::next(last).base());
      state_->free_bytes -= size;
    } else if (state_->warm) {
      ++state_->misses;
    }
  }
  if (data == nullptr) data = state_->Allocate(size);
  return {data, [state = state_, size](std::byte* p) { state->Return(p, size); }};
}

void HostBuffers::Prepare(size_t bytes, int count) {
  const size_t size = Rounded(bytes);
  for (int i = 0; i < count; ++i) state_->Return(state_->Allocate(size), size);
}

int64_t HostBuffers::steady_allocations() const {
  const std::lock_guard lock(state_->mutex);
  return state_->misses;
}

void HostBuffers::MarkWarm() {
  const std::lock_guard lock(state_->mutex);
  state_->warm = true;
  state_->misses = 0;
}

size_t HostBuffers::free_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->free_bytes;
}

}  // namespace tilery
