// Units that a slow worker holds are given to another, too.
#include <gtest/gtest.h>

#include "tests/scheduler/queue_fixture.h"

namespace tilery {
namespace {

constexpr Room kInferOnly{.infer = true};

class SlowUnits : public QueueFixture {
 protected:
  // Item 0 has so many units; worker a has done all but two, each in 3 s, and holds those since
  // `begun_`.
  UnitQueue& MakeSlow(int64_t units = 10, QueueOptions options = {}) {
    UnitQueue& q = Make({{units}}, options);
    for (int64_t k = 0; k + 2 < units; ++k) {
      const auto grant = q.Lease(a_, kInferOnly, now_);
      now_ += 3;
      q.Renew(a_, now_);
      EXPECT_TRUE(q.Finish(grant->lease, grant->unit, dropped_));
    }
    first_ = *q.Lease(a_, kInferOnly, now_);
    second_ = *q.Lease(a_, kInferOnly, now_);
    begun_ = now_;
    return q;
  }
  // So many seconds after the slow worker began.
  std::optional<UnitQueue::Grant> LeaseAt(UnitQueue::WorkerIndex worker, double seconds) {
    queue_->Renew(a_, begun_ + seconds);
    return queue_->Lease(worker, kInferOnly, begun_ + seconds);
  }

  double now_ = 100, begun_ = 0;
  UnitQueue::Grant first_, second_;
  std::vector<UnitQueue::Dropped> dropped_;
};

TEST_F(SlowUnits, GoToIdleWorkersAfterTwiceTheMedianAndTheFirstResultCounts) {
  UnitQueue& q = MakeSlow();
  EXPECT_FALSE(LeaseAt(b_, 5.9));
  const auto again = LeaseAt(b_, 6.3);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->unit, first_.unit);
  EXPECT_NE(again->lease, first_.lease);
  EXPECT_TRUE(again->twice);
  EXPECT_EQ(q.leased_twice(), 1);
  EXPECT_EQ(q.counts().leased, 2);
  // What is behind it waits for the slow worker, too; nobody is given a third lease.
  const auto c = q.AddWorker(), d = q.AddWorker();
  EXPECT_EQ(LeaseAt(c, 6.4)->unit, second_.unit);
  EXPECT_FALSE(LeaseAt(d, 20));

  EXPECT_TRUE(q.Finish(again->lease, again->unit, dropped_));
  ASSERT_EQ(dropped_.size(), 1u);
  EXPECT_EQ(dropped_[0].lease, first_.lease);
  EXPECT_EQ(dropped_[0].worker, a_);
  EXPECT_FALSE(q.Finish(first_.lease, first_.unit, dropped_)) << "it comes too late";
  EXPECT_EQ(q.attempts(first_.unit), 0);

  // Here the slow worker is the first after all.
  dropped_.clear();
  EXPECT_TRUE(q.Finish(second_.lease, second_.unit, dropped_));
  ASSERT_EQ(dropped_.size(), 1u);
  EXPECT_EQ(dropped_[0].worker, c);
  EXPECT_EQ(q.HeldBy(a_) + q.HeldBy(b_) + q.HeldBy(c), 0u);
  const auto assemble = q.Lease(d, kAll, 200);
  EXPECT_EQ(assemble->kind, UnitKind::kAssemble);
  EXPECT_TRUE(q.Finish(assemble->lease, assemble->unit, dropped_));
  EXPECT_TRUE(q.AllDone());
}

TEST_F(SlowUnits, AreNotGivenToAWorkerThatHoldsSomething) {
  UnitQueue& q = Make({{9}, {1}});
  for (int k = 0; k < 8; ++k) {
    const auto grant = q.Lease(a_, kInferOnly, k);
    q.Renew(a_, k + 1);
    q.Finish(grant->lease, grant->unit, dropped_);
  }
  q.Lease(a_, kInferOnly, 8);
  EXPECT_EQ(q.Lease(b_, kInferOnly, 8)->item, 1);
  EXPECT_FALSE(q.Lease(b_, kInferOnly, 11));
  EXPECT_FALSE(q.Lease(a_, kInferOnly, 11)) << "nor is its own unit";
}

TEST_F(SlowUnits, AreGivenToAWorkerWhoseAssembleUnitWaitsForThem) {
  UnitQueue& q = MakeSlow();
  const auto early = q.Lease(b_, kAll, now_);
  ASSERT_TRUE(early && early->early);
  EXPECT_FALSE(LeaseAt(b_, 5.9));
  const auto again = LeaseAt(b_, 6.3);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->unit, first_.unit);
  EXPECT_FALSE(LeaseAt(b_, 6.4)) << "one after the other";
  EXPECT_TRUE(q.Finish(again->lease, again->unit, dropped_));
  const auto last = LeaseAt(b_, 6.4);
  EXPECT_EQ(last->unit, second_.unit);
  EXPECT_TRUE(q.Finish(last->lease, last->unit, dropped_));
  EXPECT_FALSE(q.Waits(early->lease));
  EXPECT_TRUE(q.Finish(early->lease, early->unit, dropped_));
  EXPECT_TRUE(q.AllDone());
}

TEST_F(SlowUnits, ThatWaitedAreNotSlowForThat) {
  std::vector<ItemSpec> items(8, {2});
  UnitQueue& q = Make(items);
  double now = 0;
  for (int item = 0; item < 7; ++item) {
    for (int k = 0; k < 2; ++k) {
      const auto grant = q.Lease(a_, kInferOnly, now);
      EXPECT_TRUE(q.Finish(grant->lease, grant->unit, dropped_));
    }
    const auto assemble = q.Lease(a_, kAll, now);
    ASSERT_EQ(assemble->kind, UnitKind::kAssemble);
    q.Renew(a_, now += 0.1);
    EXPECT_TRUE(q.Finish(assemble->lease, assemble->unit, dropped_));
  }
  const auto first = *q.Lease(a_, kInferOnly, now), second = *q.Lease(a_, kInferOnly, now);
  EXPECT_TRUE(q.Finish(first.lease, first.unit, dropped_));
  const auto early = q.Lease(b_, kAll, now);
  ASSERT_TRUE(early && early->early);
  q.Renew(a_, now += 60);
  q.Renew(b_, now);
  EXPECT_TRUE(q.Finish(second.lease, second.unit, dropped_));
  EXPECT_FALSE(q.Lease(a_, kAll, now + 1)) << "it has only now begun";
  EXPECT_TRUE(q.Lease(a_, kAll, now + kSlowAnyway_s + 0.3));
}

TEST_F(SlowUnits, NeedAMedianOfEnoughUnits) {
  MakeSlow(static_cast<int64_t>(kSlowSample) + 1);
  EXPECT_FALSE(LeaseAt(b_, 14));
}

TEST_F(SlowUnits, AreLeftAloneIfTheyAreQuickAllTheSame) {
  UnitQueue& q = Make({{10}});
  for (int k = 0; k < 9; ++k) {
    const auto grant = q.Lease(a_, kInferOnly, 0.01 * k);
    q.Renew(a_, 0.01 * (k + 1));
    q.Finish(grant->lease, grant->unit, dropped_);
  }
  q.Lease(a_, kInferOnly, 1);
  EXPECT_FALSE(q.Lease(b_, kInferOnly, 1.5)) << "50 times the median, but half a second";
  EXPECT_TRUE(q.Lease(b_, kInferOnly, 1 + kSlowAnyway_s + 0.3));
}

TEST_F(SlowUnits, WhenOneOfTwoIsGivenBackTheOtherStays) {
  UnitQueue& q = MakeSlow();
  const auto again = LeaseAt(b_, 7);
  EXPECT_EQ(q.Return(again->lease, b_, false).back, UnitQueue::Back::kQueued);
  EXPECT_EQ(q.counts().leased, 2);
  EXPECT_TRUE(q.Holds(first_.lease, a_));
  // It is still slow, so the next one who is idle gets it.
  const auto third = LeaseAt(b_, 8);
  EXPECT_EQ(third->unit, first_.unit);
  EXPECT_EQ(q.Return(first_.lease, a_, false).back, UnitQueue::Back::kQueued);
  EXPECT_TRUE(q.Finish(third->lease, third->unit, dropped_));
  EXPECT_TRUE(dropped_.empty());
}

TEST_F(SlowUnits, WhenOneOfTwoWorkersDiesTheOtherGoesOn) {
  UnitQueue& q = MakeSlow();
  const auto again = LeaseAt(b_, 7);
  for (const auto& back : q.WorkerDied(a_)) EXPECT_EQ(back.back, UnitQueue::Back::kQueued);
  EXPECT_EQ(q.counts().leased, 1);
  EXPECT_TRUE(q.Holds(again->lease, b_));
  EXPECT_TRUE(q.Finish(again->lease, again->unit, dropped_));
  // The one behind it was leased once, and waits alone for an idle worker.
  EXPECT_EQ(q.Lease(b_, kInferOnly, 200)->unit, second_.unit);
}

TEST_F(SlowUnits, AUnitThatHasKilledAWorkerIsNeverHeldByTwo) {
  UnitQueue& q = MakeSlow();
  q.WorkerDied(a_);
  const auto c = q.AddWorker();
  ASSERT_TRUE(q.Lease(b_, kInferOnly, begun_ + 1));
  ASSERT_TRUE(q.Lease(c, kInferOnly, begun_ + 1));
  EXPECT_FALSE(q.Lease(a_, kInferOnly, begun_ + 14));
}

TEST_F(SlowUnits, LeasesThatRunOutLeaveTheOther) {
  UnitQueue& q = MakeSlow();
  const auto again = LeaseAt(b_, 7);
  q.Renew(b_, begun_ + 20);
  EXPECT_EQ(q.Expire(begun_ + 25).size(), 2u);  // both of a's, who was heard last at 7
  EXPECT_EQ(q.counts().leased, 1);
  EXPECT_EQ(q.counts().waiting, 2);  // the second one, and the assemble unit
  EXPECT_TRUE(q.Finish(first_.lease, first_.unit, dropped_)) << "late, and yet the first result";
  ASSERT_EQ(dropped_.size(), 1u);
  EXPECT_EQ(dropped_[0].lease, again->lease);
}

TEST_F(SlowUnits, OfAFailedItemBothAreDropped) {
  UnitQueue& q = MakeSlow();
  LeaseAt(b_, 7);
  EXPECT_EQ(q.Fail(0).size(), 3u);
  EXPECT_TRUE(q.AllDone());
  EXPECT_EQ(q.HeldBy(a_) + q.HeldBy(b_), 0u);
}

TEST_F(SlowUnits, TimeThatTheSchedulerSleptDoesNotCount) {
  UnitQueue& q = MakeSlow();
  q.Extend(10);
  EXPECT_FALSE(LeaseAt(b_, 12));
  EXPECT_TRUE(LeaseAt(b_, 16.5));
}

TEST_F(SlowUnits, AnAssembleUnitThatStandsStillIsSlowToo) {
  std::vector<ItemSpec> items(7, {2});
  UnitQueue& q = Make(items);
  double now = 0;
  for (int item = 0; item < 7; ++item) {
    for (int k = 0; k < 2; ++k) {
      const auto grant = q.Lease(a_, kInferOnly, now);
      q.Finish(grant->lease, grant->unit, dropped_);
    }
    const auto assemble = q.Lease(a_, kAll, now);
    ASSERT_EQ(assemble->kind, UnitKind::kAssemble);
    if (item == 6) break;
    q.Renew(a_, ++now);
    q.Finish(assemble->lease, assemble->unit, dropped_);
  }
  EXPECT_FALSE(q.Lease(b_, kInferOnly, now + 5));
  const auto again = q.Lease(b_, kAll, now + 5);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->kind, UnitKind::kAssemble);
  EXPECT_TRUE(q.Finish(again->lease, again->unit, dropped_));
  EXPECT_TRUE(q.AllDone());
}

}  // namespace
}  // namespace tilery
