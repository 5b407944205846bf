// A fixed number of threads that all writers of a process share, so that one large output has every
// core and many outputs at a time have no more threads than one.
//
// Thread-safe. Work is begun in the order in which it was posted, must not throw, and must not wait
// for other work of the same pool. The destructor ends the threads once they have finished what
// they are at; what was not begun is destroyed unrun.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tilery {

class ThreadPool {
 public:
  // At least one thread, and fewer than are asked for where the system gives no more;
  // std::system_error if it gives none. Each calls `on_start` first, to set its priority, say.
  explicit ThreadPool(int threads, const std::function<void()>& on_start = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(threads_.size()); }
  void Post(std::function<void()> work);  // never blocks

 private:
  void Work();

  std::mutex mutex_;  // guards the next three
  std::condition_variable changed_;
  std::deque<std::function<void()>> waiting_;
  bool ending_ = false;

  std::vector<std::thread> threads_;
};

}  // namespace tilery
