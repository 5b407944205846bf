// Pieces of work done on a pool's threads whose results come back in the order in which they were
// added: how a writer encodes ahead and still writes from front to back. For one thread.
//
// Memory is bounded by whoever adds: before another piece, results are taken until fewer than
// `most_ahead` are on their way.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <utility>

#include "io/thread_pool.h"

namespace tilery {

// Twice the pool's threads, so that none waits while results are taken; fewer where so many pieces
// of `bytes` each would be more than 64 MiB.
inline size_t PiecesAhead(const ThreadPool* pool, int64_t bytes) {
  constexpr int64_t kMostBytes = 64 << 20;
  if (pool == nullptr) return 1;
  const int64_t most = kMostBytes / (bytes < 1 ? 1 : bytes);
  const int64_t wanted = 2 * int64_t{pool->threads()} + 1;
  return static_cast<size_t>(most < 1 ? 1 : most < wanted ? most : wanted);
}

template <typename Result>
class OrderedWork {
 public:
  // Without a pool (null), a piece is done where it is added. The pool outlives this.
  OrderedWork(ThreadPool* pool, size_t most_ahead) : pool_(pool), most_ahead_(most_ahead) {}
  // Drops what was not begun and waits for the rest: pieces may refer to their owner.
  ~OrderedWork() {
    *dropped_ = true;
    for (auto& result : results_) result.wait();
  }
  OrderedWork(const OrderedWork&) = delete;

  bool empty() const { return results_.empty(); }
  bool full() const { return results_.size() >= most_ahead_; }

  void Add(std::function<Result()> work) {
    auto piece = std::make_shared<std::packaged_task<Result()>>(std::move(work));
    results_.push_back(piece->get_future());
    if (pool_ == nullptr) {
      (*piece)();
    } else {
      // A piece that is dropped breaks its promise, which ends the waiting for it.
      pool_->Post([piece = std::move(piece), dropped = dropped_] {
        if (!*dropped) (*piece)();
      });
    }
  }

  // Waits for the oldest piece; throws what it threw.
  Result Take() {
    std::future<Result> oldest = std::move(results_.front());
    results_.pop_front();
    return oldest.get();
  }

 private:
  ThreadPool* pool_;
  size_t most_ahead_;
  std::deque<std::future<Result>> results_;
  std::shared_ptr<std::atomic<bool>> dropped_ = std::make_shared<std::atomic<bool>>(false);
};

}  // namespace tilery
