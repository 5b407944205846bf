#include "scheduler/queue.h"

#include <gtest/gtest.h>

#include "tests/scheduler/queue_fixture.h"

namespace tilery {
namespace {

using Back = UnitQueue::Back;

class Queue : public QueueFixture {
 protected:
  // Units in the order in which they are leased to one worker that finishes each at once.
  std::vector<int64_t> RunAll() {
    std::vector<int64_t> order;
    while (const auto grant = queue_->Lease(a_, kAll, 0)) {
      order.push_back(grant->unit);
      EXPECT_TRUE(queue_->Finish(grant->lease, grant->unit, dropped_));
    }
    return order;
  }
  std::vector<UnitQueue::Dropped> dropped_;
};

TEST_F(Queue, LeasesUnitsInPlanOrderAndAssemblesAsSoonAsAllBricksAreThere) {
  UnitQueue& q = Make({{1}, {3}, {1}});
  EXPECT_EQ(RunAll(), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  EXPECT_TRUE(q.AllDone());
  EXPECT_EQ(q.counts().done, 6);
  EXPECT_EQ(q.scratch_used(), 0);
}

TEST_F(Queue, AssembleComesBeforeFreshUnitsOfOtherItems) {
  UnitQueue& q = Make({{2}, {1}, {1}, {1}});
  const auto first = q.Lease(a_, kAll, 0), second = q.Lease(a_, kAll, 0);
  EXPECT_EQ(q.Lease(a_, kAll, 0)->unit, 3);
  q.Finish(first->lease, first->unit, dropped_);
  q.Finish(second->lease, second->unit, dropped_);
  EXPECT_EQ(q.Lease(a_, kAll, 0)->kind, UnitKind::kAssemble);
  EXPECT_EQ(q.Lease(a_, kAll, 0)->unit, 4);
}

TEST_F(Queue, UnitsOfAStagedItemWaitForItsStageUnit) {
  UnitQueue& q = Make({{2, true}});
  const auto stage = q.Lease(a_, kAll, 0);
  EXPECT_EQ(stage->kind, UnitKind::kStage);
  EXPECT_FALSE(q.Lease(b_, kAll, 0));
  q.Finish(stage->lease, stage->unit, dropped_);
  EXPECT_EQ(RunAll(), (std::vector<int64_t>{1, 2, 3}));
}

TEST_F(Queue, GivesOnlyKindsThatAWorkerHasRoomFor) {
  UnitQueue& q = Make({{2}, {1, true}, {1}});
  const auto a = q.Lease(a_, kAll, 0), b = q.Lease(a_, kAll, 0);
  EXPECT_FALSE(q.Lease(a_, {.infer = true, .assemble = true}, 0));
  EXPECT_EQ(q.Lease(a_, {.stage = true}, 0)->kind, UnitKind::kStage);
  EXPECT_FALSE(q.Lease(a_, {.stage = true, .assemble = true}, 0));
  EXPECT_EQ(q.Lease(a_, {.infer = true}, 0)->item, 2);
  q.Finish(a->lease, a->unit, dropped_);
  q.Finish(b->lease, b->unit, dropped_);
  EXPECT_FALSE(q.Lease(a_, {.infer = true, .stage = true}, 0));
  EXPECT_EQ(q.Lease(a_, {.assemble = true}, 0)->kind, UnitKind::kAssemble);
}

TEST_F(Queue, OnlyTheHolderMayReturnALease) {
  UnitQueue& q = Make({{1}});
  const auto grant = q.Lease(a_, kAll, 0);
  EXPECT_EQ(q.Return(grant->lease, b_, true).back, Back::kNotHeld);
  EXPECT_EQ(q.LoseResult(grant->lease, b_, 0).back, Back::kNotHeld);
  EXPECT_FALSE(q.Lease(b_, kAll, 0));
  EXPECT_EQ(q.Return(grant->lease, a_, true).back, Back::kQueued);
  EXPECT_EQ(q.Return(grant->lease, a_, true).back, Back::kNotHeld);
  EXPECT_EQ(q.Lease(b_, kAll, 0)->unit, 0);
}

TEST_F(Queue, AUnitIsSpentAfterItsAttempts) {
  UnitQueue& q = Make({{1}}, {.max_attempts = 3});
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const auto grant = q.Lease(a_, kAll, 0);
    ASSERT_TRUE(grant);
    const auto back = q.Return(grant->lease, a_, true);
    EXPECT_EQ(back.back, attempt < 3 ? Back::kQueued : Back::kSpent);
    EXPECT_FALSE(back.poisoned);
  }
  EXPECT_TRUE(q.Fail(0).empty());
  EXPECT_TRUE(q.AllDone());
  EXPECT_EQ(q.counts().failed, 1);
}

TEST_F(Queue, AnAbandonedLeaseCostsNoAttempt) {
  UnitQueue& q = Make({{1}}, {.max_attempts = 1});
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(q.Lease(a_, kAll, 0));
    q.Abandon(a_);
  }
  EXPECT_EQ(q.attempts(0), 0);
}

TEST_F(Queue, ASuspectRunsAloneSoThatOnlyTheCulpritIsPoisoned) {
  UnitQueue& q = Make({{1}, {1}, {1}, {1}}, {.max_attempts = 7});
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(q.Lease(a_, kAll, 0));
  for (const auto& back : q.WorkerDied(a_)) EXPECT_EQ(back.back, Back::kQueued);

  const auto fresh = q.Lease(b_, kAll, 0);  // an idle worker gets a suspect first
  EXPECT_EQ(fresh->unit, 0);
  EXPECT_FALSE(q.Lease(b_, kAll, 0));  // and nothing beside it
  EXPECT_TRUE(q.Finish(fresh->lease, 0, dropped_));
  EXPECT_EQ(q.Lease(b_, kAll, 0)->unit, 1);
  const auto died = q.WorkerDied(b_);
  ASSERT_EQ(died.size(), 1u);
  EXPECT_TRUE(died[0].poisoned);
  EXPECT_EQ(died[0].back, Back::kSpent);
  q.Fail(died[0].item);
  EXPECT_EQ(RunAll(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(q.counts().done, 3);
  EXPECT_EQ(q.counts().failed, 1);
}

TEST_F(Queue, ABusyWorkerGetsNoSuspect) {
  UnitQueue& q = Make({{1}, {1}, {1}});
  ASSERT_TRUE(q.Lease(b_, kAll, 0));
  ASSERT_TRUE(q.Lease(a_, kAll, 0));
  q.WorkerDied(a_);
  EXPECT_EQ(q.Lease(b_, kAll, 0)->unit, 2);
  EXPECT_FALSE(q.Lease(b_, kAll, 0));
}

TEST_F(Queue, LeasesEndUnlessRenewedAndOnlyByTheTimeGiven) {
  UnitQueue& q = Make({{1}, {1}}, {.lease_s = 10});
  const auto a = q.Lease(a_, kAll, 100), b = q.Lease(b_, kAll, 100);
  q.Renew(b_, 108);
  EXPECT_TRUE(q.Expire(110).empty());
  const auto back = q.Expire(110.5);
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].unit, a->unit);
  EXPECT_FALSE(q.Holds(a->lease, a_));
  EXPECT_TRUE(q.Holds(b->lease, b_));
  q.Extend(30);
  EXPECT_TRUE(q.Expire(140).empty());
  EXPECT_EQ(q.Expire(148.5).size(), 1u);
}

TEST_F(Queue, LeasesEndByTheLastRenewalWheneverTheyWereGiven) {
  UnitQueue& q = Make({{1}}, {.lease_s = 10});
  q.Renew(a_, 100);
  EXPECT_FALSE(q.Silent(a_, 105));
  EXPECT_TRUE(q.Silent(a_, 105.5));
  EXPECT_FALSE(q.Silent(b_, 105.5)) << "nothing was heard of it yet";
  q.Lease(a_, kAll, 104);
  EXPECT_TRUE(q.Expire(110).empty());
  EXPECT_EQ(q.Expire(110.5).size(), 1u);
  q.Extend(20);
  EXPECT_FALSE(q.Silent(a_, 125));
  q.Renew(a_, 130);
  EXPECT_FALSE(q.Silent(a_, 135));
}

TEST_F(Queue, ALateResultCountsOnceAndFreesTheNewHolder) {
  UnitQueue& q = Make({{1}}, {.lease_s = 10});
  const auto a = q.Lease(a_, kAll, 0);
  q.Expire(11);
  const auto b = q.Lease(b_, kAll, 11);
  EXPECT_NE(a->lease, b->lease);
  EXPECT_TRUE(q.Finish(a->lease, 0, dropped_));
  ASSERT_EQ(dropped_.size(), 1u);
  EXPECT_EQ(dropped_[0].worker, b_);
  EXPECT_EQ(dropped_[0].lease, b->lease);
  EXPECT_FALSE(q.Finish(b->lease, 0, dropped_));
  EXPECT_TRUE(q.AllDone());
}

TEST_F(Queue, AFailingItemCancelsItsOtherUnits) {
  UnitQueue& q = Make({{4}, {1}});
  const auto first = q.Lease(a_, kAll, 0), second = q.Lease(b_, kAll, 0);
  q.Finish(first->lease, first->unit, dropped_);
  const auto dropped = q.Fail(0);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].lease, second->lease);
  EXPECT_FALSE(q.Finish(second->lease, second->unit, dropped_));
  EXPECT_EQ(RunAll(), (std::vector<int64_t>{5}));
  EXPECT_EQ(q.counts().failed, 4);
  EXPECT_EQ(q.counts().done, 2);
  EXPECT_EQ(q.scratch_used(), 0);
}

TEST_F(Queue, ALostBrickRunsItsUnitAgainThenTheAssembleUnit) {
  UnitQueue& q = Make({{2}});
  for (int i = 0; i < 2; ++i) {
    const auto grant = q.Lease(a_, kAll, 0);
    q.Finish(grant->lease, grant->unit, dropped_);
  }
  const auto assemble = q.Lease(a_, kAll, 0);
  EXPECT_EQ(q.LoseResult(assemble->lease, a_, 1).back, Back::kQueued);
  EXPECT_FALSE(q.UnitDone(1));
  EXPECT_EQ(RunAll(), (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(q.AllDone());
}

TEST_F(Queue, ABrickThatIsLostAgainAndAgainSpendsItsUnit) {
  UnitQueue& q = Make({{2}}, {.max_attempts = 3});
  Back last = Back::kQueued;
  int losses = 0;
  while (last == Back::kQueued && losses < 10) {
    const auto grant = q.Lease(a_, kAll, 0);
    if (grant->kind == UnitKind::kAssemble) {
      last = q.LoseResult(grant->lease, a_, 0).back;
      ++losses;
    } else {
      q.Finish(grant->lease, grant->unit, dropped_);
    }
  }
  EXPECT_EQ(last, Back::kSpent);
  EXPECT_EQ(losses, 3);
}

TEST_F(Queue, ALostStageFileIsMadeAgainBeforeTheUnitsThatReadIt) {
  UnitQueue& q = Make({{2, true}});
  const auto stage = q.Lease(a_, kAll, 0);
  q.Finish(stage->lease, stage->unit, dropped_);
  const auto infer = q.Lease(a_, kAll, 0);
  EXPECT_EQ(q.LoseResult(infer->lease, a_, 0).back, Back::kQueued);
  EXPECT_EQ(RunAll(), (std::vector<int64_t>{0, 1, 2, 3}));
}

TEST_F(Queue, ItemsWaitUntilTheirPeakScratchFits) {
  UnitQueue& q = Make({{2, false, 60}, {2, false, 60}, {1}}, {.scratch_limit = 100});
  const auto a = q.Lease(a_, kAll, 0), b = q.Lease(a_, kAll, 0);
  EXPECT_FALSE(q.Lease(b_, kAll, 0));  // the next item in plan order does not fit yet
  EXPECT_EQ(q.scratch_used(), 60);
  q.Finish(a->lease, a->unit, dropped_);
  q.Finish(b->lease, b->unit, dropped_);
  EXPECT_EQ(RunAll(), (std::vector<int64_t>{2, 3, 4, 5, 6}));
}

// Else a worker that has room for stage units would fill the disk with inputs long before they are
// inferred, and a slow assembly would leave it full of bricks.
TEST_F(Queue, StagingRunsOnlySoFarAheadOfInferring) {
  UnitQueue& q = Make(std::vector<ItemSpec>(100, {2, true, 10}));
  const auto stage_all = [&] {
    int64_t staged = 0;
    while (const auto grant = q.Lease(a_, {.stage = true}, 0))
      staged += q.Finish(grant->lease, grant->unit, dropped_);
    return staged;
  };
  EXPECT_EQ(stage_all(), kItemsPerWorker);
  for (int i = 0; i < 2; ++i) {
    const auto grant = q.Lease(a_, {.infer = true}, 0);
    q.Finish(grant->lease, grant->unit, dropped_);
  }
  EXPECT_EQ(stage_all(), 0);  // its bricks are there now
  const auto assemble = q.Lease(a_, {.assemble = true}, 0);
  q.Finish(assemble->lease, assemble->unit, dropped_);
  EXPECT_EQ(stage_all(), 1);
  q.SetWorkersAlive(3);
  EXPECT_EQ(stage_all(), 2 * kItemsPerWorker);
  EXPECT_EQ(q.scratch_used(), 3 * kItemsPerWorker * 10);
  q.SetWorkersAlive(0);
  const int64_t done = (3 * kItemsPerWorker + 1) + 2 + 1;  // staged, inferred, assembled
  EXPECT_EQ(RunAll().size(), static_cast<size_t>(400 - done));
}

TEST_F(Queue, FewItemsOfMuchScratchAreUnderWayAtATime) {
  const int64_t large = kEasyScratch / 4 + 1;
  UnitQueue& q = Make(std::vector<ItemSpec>(100, {2, false, large}));
  int64_t leased = 0;
  while (q.Lease(a_, kAll, 0)) ++leased;
  EXPECT_EQ(leased, 2 * kItemsAnyway);
  q.SetWorkersAlive(2);
  while (q.Lease(b_, kAll, 0)) ++leased;
  EXPECT_EQ(leased, 2 * 7);  // the eighth would be beyond what is easy for two
}

TEST_F(Queue, ItemsWithoutScratchStartAtAnyTime) {
  UnitQueue& q =
      Make({{2, false, 10}, {2, false, 10}, {2, false, 10}, {1, false, 0}, {2, false, 10}},
           {.scratch_limit = 30});
  int64_t last = -1;
  while (const auto grant = q.Lease(a_, kAll, 0)) last = grant->item;
  EXPECT_EQ(last, 3);
}

TEST_F(Queue, AnItemBeyondTheScratchLimitIsNamedWithBothNumbers) {
  const Plan plan = MakeTestPlan({{2, false, 600}}, "/data");
  EXPECT_EQ(UnitQueue::BeyondScratch(plan.items[0], 600), "");
  const std::string why = UnitQueue::BeyondScratch(plan.items[0], 500);
  EXPECT_NE(why.find("600"), std::string::npos) << why;
  EXPECT_NE(why.find("500"), std::string::npos) << why;
}

TEST_F(Queue, WhatIsThereAlreadyIsNotLeased) {
  UnitQueue& q = Make({{1}, {3, true}, {2, true}});
  q.MarkUnchanged(0);
  q.MarkDone(3);                 // a brick of item 1
  q.MarkDone(7), q.MarkDone(8);  // all bricks of item 2: no stage unit is needed
  EXPECT_EQ(RunAll(), (std::vector<int64_t>{9, 1, 2, 4, 5}));
  EXPECT_TRUE(q.AllDone());
}

TEST_F(Queue, RefusedItemsHaveNoUnits) {
  Plan plan = MakeTestPlan({{1}, {1}, {1}}, "/data");
  plan.items[1].refused = "damaged";
  UnitQueue q(plan.items, {});
  EXPECT_EQ(q.units(), 2);
  EXPECT_EQ(q.Find(1).item, 2);
  EXPECT_FALSE(q.ItemOpen(1));
}

TEST_F(Queue, AMillionUnitsCostAByteEach) {
  const Plan plan = MakeTestPlan(std::vector<ItemSpec>(10, {100000}), "/data");
  UnitQueue q(plan.items, {});
  const auto worker = q.AddWorker();
  EXPECT_EQ(q.units(), 1000010);
  int64_t done = 0;
  while (const auto grant = q.Lease(worker, kAll, 0))
    done += q.Finish(grant->lease, grant->unit, dropped_);
  EXPECT_EQ(done, q.units());
}

}  // namespace
}  // namespace tilery
