// Runs `call(i)` for i in [0, count) on up to `threads` threads and waits. The first exception
// comes back.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace tilery {

template <typename Call>
void ParallelFor(int threads, int64_t count, Call&& call) {
  const int64_t used = std::min<int64_t>(threads, count);
  if (used <= 1) {
    for (int64_t i = 0; i < count; ++i) call(i);
    return;
  }
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failed;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) {
      try {
        call(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failed) failed = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int64_t i = 1; i < used; ++i) helpers.emplace_back(work);
    work();
  }
  if (failed) std::rethrow_exception(failed);
}

}  // namespace tilery
