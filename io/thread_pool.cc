#include "io/thread_pool.h"

#include <algorithm>
#include <system_error>
#include <utility>

namespace tilery {

ThreadPool::ThreadPool(int threads, const std::function<void()>& on_start) {
  for (int i = 0; i < std::max(1, threads); ++i) {
    try {
      threads_.emplace_back([this, on_start] {
        if (on_start) on_start();
        Work();
      });
    } catch (const std::system_error&) {
      if (threads_.empty()) throw;
      return;  // as many as the system gives
    }
  }
}

ThreadPool::~ThreadPool() {
  std::deque<std::function<void()>> unrun;  // destroyed outside the lock
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    unrun.swap(waiting_);
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Post(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (ending_) return;
    waiting_.push_back(std::move(work));
  }
  changed_.notify_one();
}

void ThreadPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !waiting_.empty(); });
    if (ending_) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    work();
    work = nullptr;  // what it holds goes before the lock comes back
    lock.lock();
  }
}

}  // namespace tilery
