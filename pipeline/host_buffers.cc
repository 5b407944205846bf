#include "pipeline/host_buffers.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace tilery {
namespace {

constexpr std::align_val_t kAlign{64};
constexpr size_t kMostIdle = 1024;  // buffers; taking one back never allocates
constexpr size_t kMostTooLarge = 2, kMostTooLargeIfDear = 4;  // times what is asked for

}  // namespace

struct HostBuffers::State {
  struct Idle {
    std::byte* data = nullptr;
    size_t bytes = 0;
  };
  const size_t max_idle;
  const std::shared_ptr<HostMemory> memory;
  std::mutex mutex;        // guards all below; not held while memory is made or goes back
  std::vector<Idle> idle;  // in the order of their return
  size_t idle_bytes = 0;
  int64_t misses = 0;
  bool warm = false;

  State(size_t limit, std::shared_ptr<HostMemory> from) : max_idle(limit), memory(std::move(from)) {
    idle.reserve(kMostIdle);
  }
  ~State() {
    for (const Idle& buffer : idle) Release(buffer);
  }

  std::byte* Allocate(size_t bytes) {
    if (memory) return memory->Allocate(bytes);
    return static_cast<std::byte*>(::operator new(bytes, kAlign));
  }
  void Release(const Idle& buffer) noexcept {
    if (memory) return memory->Free(buffer.data, buffer.bytes);
    ::operator delete(buffer.data, kAlign);
  }

  // Takes the smallest idle buffer that serves a rounded size; none: all null.
  Idle TakeIdle(size_t size) {
    const size_t most = size * (memory ? kMostTooLargeIfDear : kMostTooLarge);
    auto best = idle.rend();
    for (auto it = idle.rbegin(); it != idle.rend(); ++it) {  // the warmest in the caches first
      if (it->bytes < size || it->bytes > most) continue;
      if (best == idle.rend() || it->bytes < best->bytes) best = it;
      if (best->bytes == size) break;
    }
    if (best == idle.rend()) return {};
    const Idle found = *best;
    idle.erase(std::next(best).base());
    idle_bytes -= found.bytes;
    return found;
  }

  void Return(const Idle& buffer) noexcept {
    std::unique_lock lock(mutex);
    if (buffer.bytes > max_idle || idle.size() == idle.capacity()) {
      lock.unlock();
      return Release(buffer);
    }
    idle.push_back(buffer);
    idle_bytes += buffer.bytes;
    while (idle_bytes > max_idle) {
      const Idle oldest = idle.front();
      idle.erase(idle.begin());
      idle_bytes -= oldest.bytes;
      lock.unlock();
      Release(oldest);
      lock.lock();
    }
  }
};

HostBuffers::HostBuffers(size_t max_idle) : state_(std::make_shared<State>(max_idle, nullptr)) {}

HostBuffers::HostBuffers(std::shared_ptr<HostMemory> memory)
    : state_(std::make_shared<State>(SIZE_MAX, std::move(memory))) {}

size_t HostBuffers::Rounded(size_t bytes) {
  constexpr size_t kSmallest = 4096;
  if (bytes <= kSmallest) return kSmallest;
  const size_t step = std::bit_floor(bytes - 1) / 4;  // quarters of the power of two below
  return (bytes + step - 1) / step * step;
}

std::shared_ptr<std::byte> HostBuffers::Take(size_t bytes) {
  const size_t size = Rounded(bytes);
  State::Idle buffer;
  {
    const std::lock_guard lock(state_->mutex);
    buffer = state_->TakeIdle(size);
    if (buffer.data == nullptr && state_->warm) ++state_->misses;
  }
  if (buffer.data == nullptr) buffer = {state_->Allocate(size), size};
  return {buffer.data, [state = state_, buffer](std::byte*) { state->Return(buffer); }};
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

size_t HostBuffers::idle_bytes() const {
  const std::lock_guard lock(state_->mutex);
  return state_->idle_bytes;
}

}  // namespace tilery
