// Pools of threads, and work done on them in order.
#include "io/ordered_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "io/thread_pool.h"

namespace tilery {
namespace {

TEST(ThreadPoolTest, RunsWorkOnAsManyThreadsAsItHas) {
  std::atomic<int> started{0};
  std::latch all_at_once(3);
  std::latch done(3);
  ThreadPool pool(3, [&] { ++started; });
  EXPECT_EQ(pool.threads(), 3);
  for (int i = 0; i < 3; ++i) {
    pool.Post([&] {
      all_at_once.arrive_and_wait();
      done.count_down();
    });
  }
  done.wait();
  EXPECT_EQ(started, 3);
}

TEST(ThreadPoolTest, HasAtLeastOneThread) { EXPECT_EQ(ThreadPool(0).threads(), 1); }

TEST(ThreadPoolTest, ItsEndWaitsForWhatIsBegunAndDropsTheRest) {
  const auto held = std::make_shared<int>(1);
  std::latch begun(1), may_end(1);
  std::jthread release;
  std::atomic<int> ran{0};
  {
    ThreadPool pool(1);
    pool.Post([&] {
      begun.count_down();
      may_end.wait();
      ++ran;
    });
    begun.wait();
    for (int i = 0; i < 5; ++i) pool.Post([&, held] { ++ran; });
    release = std::jthread([&] { may_end.count_down(); });
  }
  // Of the others some may have been taken before the pool was told to end.
  EXPECT_GE(ran, 1);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(OrderedWorkTest, ResultsComeInTheOrderInWhichWorkWasAdded) {
  for (const int threads : {0, 1, 4}) {
    std::optional<ThreadPool> pool;
    if (threads > 0) pool.emplace(threads);
    OrderedWork<int> work(pool ? &*pool : nullptr, 7);
    std::vector<int> got;
    for (int i = 0; i < 500; ++i) {
      while (work.full()) got.push_back(work.Take());
      work.Add([i] { return i; });
    }
    while (!work.empty()) got.push_back(work.Take());
    ASSERT_EQ(got.size(), 500u);
    for (int i = 0; i < 500; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], i);
  }
}

TEST(OrderedWorkTest, LaterWorkWaitsForEarlierResults) {
  ThreadPool pool(2);
  std::latch later_is_done(1);
  OrderedWork<int> work(&pool, 2);
  work.Add([&] {
    later_is_done.wait();
    return 1;
  });
  work.Add([&] {
    later_is_done.count_down();
    return 2;
  });
  EXPECT_EQ(work.Take(), 1);
  EXPECT_EQ(work.Take(), 2);
}

TEST(OrderedWorkTest, AnErrorComesWhereTheResultWouldHaveBeen) {
  ThreadPool pool(2);
  for (ThreadPool* used : {&pool, static_cast<ThreadPool*>(nullptr)}) {
    OrderedWork<int> work(used, 3);
    work.Add([] { return 1; });
    work.Add([]() -> int { throw std::runtime_error("planted"); });
    work.Add([] { return 3; });
    EXPECT_EQ(work.Take(), 1);
    EXPECT_THROW(work.Take(), std::runtime_error);
    EXPECT_EQ(work.Take(), 3);
  }
}

TEST(OrderedWorkTest, NothingRunsAfterItsEnd) {
  ThreadPool pool(2);
  std::atomic<int> running{0};
  std::latch begun(2), may_end(1);
  std::jthread release;
  {
    OrderedWork<int> work(&pool, 100);
    for (int i = 0; i < 50; ++i) {
      work.Add([&, i] {
        ++running;
        if (i < 2) {
          begun.count_down();
          may_end.wait();
        }
        return running--;
      });
    }
    begun.wait();
    release = std::jthread([&] { may_end.count_down(); });
  }
  EXPECT_EQ(running, 0);
}

TEST(OrderedWorkTest, ItsEndDoesNotWaitForAPoolThatHasGone) {
  auto pool = std::make_unique<ThreadPool>(1);
  std::latch begun(1), may_end(1);
  OrderedWork<int> work(pool.get(), 9);
  for (int i = 0; i < 9; ++i) {
    work.Add([&, i] {
      if (i == 0) {
        begun.count_down();
        may_end.wait();
      }
      return i;
    });
  }
  begun.wait();
  const std::jthread release([&] { may_end.count_down(); });
  pool.reset();
  EXPECT_EQ(work.Take(), 0);
}

TEST(OrderedWorkTest, PiecesAheadKeepEveryThreadBusyWithinTheLimitOfMemory) {
  ThreadPool pool(4);
  EXPECT_EQ(PiecesAhead(nullptr, 1), 1u);
  EXPECT_EQ(PiecesAhead(&pool, 256 << 10), 9u);
  EXPECT_EQ(PiecesAhead(&pool, 16 << 20), 4u);
  EXPECT_EQ(PiecesAhead(&pool, int64_t{1} << 40), 1u);
}

}  // namespace
}  // namespace tilery
