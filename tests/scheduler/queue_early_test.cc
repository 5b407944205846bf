// Assemble units that are leased while their last bricks are still made: when, and that nobody has
// to wait for those that wait.
#include <gtest/gtest.h>

#include "scheduler/queue.h"
#include "tests/scheduler/queue_fixture.h"

namespace tilery {
namespace {

using Back = UnitQueue::Back;
using Grant = UnitQueue::Grant;

constexpr Room kInferOnly{.infer = true};
constexpr Room kAssembleOnly{.assemble = true};

class EarlyAssembly : public QueueFixture {
 protected:
  // Infers so many units and gives the last of them.
  Grant Infer(int count) {
    std::optional<Grant> grant;
    for (int i = 0; i < count; ++i) {
      grant = queue_->Lease(a_, kInferOnly, 0);
      EXPECT_TRUE(grant && queue_->Finish(grant->lease, grant->unit, dropped_));
    }
    return grant.value_or(Grant{});
  }
  bool Done(const Grant& grant) { return queue_->Finish(grant.lease, grant.unit, dropped_); }

  std::vector<UnitQueue::Dropped> dropped_;
};

TEST_F(EarlyAssembly, BeginsOnceItsShareOfTheUnitsIsDoneAndOnlyOnce) {
  UnitQueue& q = Make({{5}});
  Infer(2);
  EXPECT_FALSE(q.Lease(b_, kAssembleOnly, 0));
  Infer(1);
  EXPECT_FALSE(q.Lease(b_, {.infer = false, .stage = true}, 0));
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  ASSERT_TRUE(early);
  EXPECT_EQ(early->kind, UnitKind::kAssemble);
  EXPECT_TRUE(early->early);
  EXPECT_TRUE(q.Waits(early->lease));
  EXPECT_FALSE(q.Lease(a_, kAssembleOnly, 0));
  EXPECT_EQ(q.EarlyLease(0)->worker, b_);
  EXPECT_EQ(q.EarlyLease(0)->lease, early->lease);
  Infer(2);
  EXPECT_FALSE(q.Waits(early->lease));
  EXPECT_FALSE(q.Lease(a_, kAll, 0)) << "it has its holder";
  EXPECT_TRUE(Done(*early));
  EXPECT_TRUE(q.AllDone());
  EXPECT_TRUE(dropped_.empty());
  EXPECT_TRUE(q.TakeWithdrawn().empty());
  EXPECT_FALSE(q.EarlyLease(0));
}

TEST_F(EarlyAssembly, ComesAfterAllElseThatAWorkerHasRoomFor) {
  UnitQueue& q = Make({{4}, {2, true}, {1}});
  Infer(2);
  std::vector<UnitKind> kinds;
  std::optional<Grant> last;
  while (const auto grant = q.Lease(a_, kAll, 0)) {
    last = grant;
    kinds.push_back(grant->kind);
  }
  EXPECT_EQ(kinds, (std::vector<UnitKind>{UnitKind::kInfer, UnitKind::kInfer, UnitKind::kStage,
                                          UnitKind::kInfer, UnitKind::kAssemble}));
  EXPECT_TRUE(last->early);
}

TEST_F(EarlyAssembly, IsForTheOldestItemOnlySoThatOthersKeepTheirPlace) {
  UnitQueue& q = Make({{4}, {2}});
  const Grant first = *q.Lease(a_, kInferOnly, 0);
  Infer(3);
  Infer(2);  // all of the second item
  const auto whole = q.Lease(a_, kAssembleOnly, 0);
  EXPECT_EQ(whole->item, 1);
  EXPECT_FALSE(whole->early);
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  EXPECT_EQ(early->item, 0);
  EXPECT_TRUE(early->early);
  EXPECT_TRUE(Done(first) && Done(*whole) && Done(*early));
  EXPECT_TRUE(q.AllDone());
}

TEST_F(EarlyAssembly, DoesNotBeginForAnItemThatTheSecondOfAllWouldBe) {
  UnitQueue& q = Make({{4}, {4}});
  const Grant first = *q.Lease(a_, kInferOnly, 0), second = *q.Lease(a_, kInferOnly, 0);
  const Grant third = *q.Lease(a_, kInferOnly, 0);
  Infer(1 + 3);
  EXPECT_FALSE(q.Lease(b_, kAssembleOnly, 0)) << "of the older item one in four is done";
  EXPECT_TRUE(Done(first) && Done(second) && Done(third));
}

TEST_F(EarlyAssembly, ComesBackWithWhatWasThereBeforeTheRun) {
  UnitQueue& q = Make({{4}, {4, true}});
  q.MarkUnchanged(0);
  for (int64_t unit = 6; unit < 9; ++unit) q.MarkDone(unit);
  EXPECT_FALSE(q.Lease(b_, kAssembleOnly, 0)) << "its input has to be decoded again";
  const auto stage = q.Lease(a_, kAll, 0);
  EXPECT_EQ(stage->kind, UnitKind::kStage);
  EXPECT_TRUE(Done(*stage));
  EXPECT_TRUE(q.Lease(b_, kAssembleOnly, 0)->early);
}

TEST_F(EarlyAssembly, NeverHoldsUpTheUnitsItWaitsForWhateverTheScratchLimit) {
  UnitQueue& q = Make({{6, true, 60}, {2, false, 60}}, {.scratch_limit = 60});
  const auto stage = q.Lease(a_, kAll, 0);
  EXPECT_TRUE(Done(*stage));
  Infer(3);
  const auto early = q.Lease(a_, kAssembleOnly, 0);
  ASSERT_TRUE(early && early->early);
  EXPECT_EQ(q.scratch_used(), 60);
  for (int i = 0; i < 3; ++i) {
    const auto infer = q.Lease(a_, kInferOnly, 0);  // the worker that waits infers, too
    ASSERT_TRUE(infer) << i;
    EXPECT_EQ(infer->item, 0);
    if (i > 0) {
      EXPECT_TRUE(Done(*infer));
    } else {
      EXPECT_EQ(q.Return(infer->lease, a_, true).back, Back::kQueued);
    }
  }
  const auto last = q.Lease(a_, kInferOnly, 0);
  ASSERT_TRUE(last);
  EXPECT_FALSE(q.Lease(b_, kAll, 0)) << "the next item has no room";
  EXPECT_TRUE(Done(*last) && Done(*early));
  EXPECT_EQ(q.Lease(b_, kAll, 0)->item, 1);
}

TEST_F(EarlyAssembly, DoesNotBeginOnceAUnitOfTheItemHasFailed) {
  UnitQueue& q = Make({{4}});
  const auto failed = q.Lease(a_, kInferOnly, 0);
  q.Return(failed->lease, a_, true);
  Infer(3);
  EXPECT_FALSE(q.Lease(b_, kAssembleOnly, 0));
  Infer(1);
  EXPECT_FALSE(q.Lease(b_, kAssembleOnly, 0)->early);
}

TEST_F(EarlyAssembly, EndsWithItsItemWhenAUnitFailsForGood) {
  UnitQueue& q = Make({{4}, {1}});
  Infer(2);
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  const auto dropped = q.Fail(0);
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].lease, early->lease);
  EXPECT_EQ(dropped[0].worker, b_);
  EXPECT_FALSE(Done(*early));
  Infer(1);
  EXPECT_TRUE(q.AllDone());
  EXPECT_EQ(q.counts().failed, 3);
}

TEST_F(EarlyAssembly, IsNotToBlameForTheDeathOfItsWorkerWhileItWaits) {
  UnitQueue& q = Make({{4}}, {.max_attempts = 1});
  Infer(2);
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  const auto back = q.WorkerDied(b_);
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].back, Back::kQueued);
  EXPECT_EQ(q.attempts(early->unit), 0);
  EXPECT_TRUE(q.TakeWithdrawn().empty()) << "there is nobody to tell";
  EXPECT_FALSE(q.Lease(a_, kAssembleOnly, 0)) << "one try";
  Infer(2);
  // No suspect: it runs beside others, and the first death that it may have caused counts as such.
  const auto again = q.Lease(a_, kAssembleOnly, 0);
  ASSERT_TRUE(again);
  EXPECT_FALSE(again->early);
  EXPECT_EQ(q.WorkerDied(a_)[0].back, Back::kSpent);
}

TEST_F(EarlyAssembly, IsAsMuchToBlameAsAnyOtherOnceItsBricksAreThere) {
  UnitQueue& q = Make({{4}}, {.max_attempts = 1});
  Infer(2);
  ASSERT_TRUE(q.Lease(b_, kAssembleOnly, 0)->early);
  Infer(2);
  EXPECT_EQ(q.WorkerDied(b_)[0].back, Back::kSpent);
}

TEST_F(EarlyAssembly, CostsNoAttemptWhenItsWorkerFallsSilentAndIsWithdrawnThere) {
  UnitQueue& q = Make({{4}}, {.lease_s = 10, .max_attempts = 1});
  Infer(2);
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  const auto back = q.Expire(11);
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].back, Back::kQueued);
  // It may still live, and would wait for bricks for ever.
  const auto withdrawn = q.TakeWithdrawn();
  ASSERT_EQ(withdrawn.size(), 1u);
  EXPECT_EQ(withdrawn[0].worker, b_);
  EXPECT_EQ(withdrawn[0].lease, early->lease);
}

// A suspect is leased only to a worker that holds nothing.
TEST_F(EarlyAssembly, IsWithdrawnWhenAUnitThatItWaitsForBecomesASuspect) {
  UnitQueue& q = Make({{4}});
  Infer(2);
  const auto infer = q.Lease(a_, kInferOnly, 0);
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  q.WorkerDied(a_);
  const auto withdrawn = q.TakeWithdrawn();
  ASSERT_EQ(withdrawn.size(), 1u);
  EXPECT_EQ(withdrawn[0].worker, b_);
  EXPECT_EQ(withdrawn[0].lease, early->lease);
  EXPECT_EQ(q.HeldBy(b_), 0u);
  EXPECT_EQ(q.attempts(early->unit), 0);
  EXPECT_EQ(q.Lease(b_, kAll, 0)->unit, infer->unit);
}

TEST_F(EarlyAssembly, IsWithdrawnWhenItsWorkerHasNoRoomForOneThatIsReady) {
  UnitQueue& q = Make({{4}, {2}});
  Infer(3);
  const auto held = q.Lease(a_, kInferOnly, 0);  // the last of the first item
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  ASSERT_TRUE(early && early->early);
  Infer(2);
  EXPECT_FALSE(q.Lease(a_, kInferOnly, 0));  // holds nothing that waits
  EXPECT_TRUE(q.TakeWithdrawn().empty());
  EXPECT_FALSE(q.Lease(b_, kInferOnly, 0));
  const auto withdrawn = q.TakeWithdrawn();
  ASSERT_EQ(withdrawn.size(), 1u);
  EXPECT_EQ(withdrawn[0].lease, early->lease);
  EXPECT_EQ(q.attempts(early->unit), 0);
  const auto ready = q.Lease(b_, kAssembleOnly, 0);
  ASSERT_TRUE(ready);
  EXPECT_EQ(ready->item, 1);
  EXPECT_TRUE(Done(*ready));
  EXPECT_FALSE(q.Lease(b_, kAssembleOnly, 0));
  EXPECT_TRUE(Done(*held));
  EXPECT_TRUE(Done(*q.Lease(b_, kAssembleOnly, 0)));
  EXPECT_TRUE(q.AllDone());
}

// Nor is one withdrawn whose bricks are all there: it is being assembled.
TEST_F(EarlyAssembly, IsNotWithdrawnOnceItWaitsForNothing) {
  UnitQueue& q = Make({{4}, {2}});
  Infer(3);
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  Infer(3);
  EXPECT_FALSE(q.Lease(b_, kInferOnly, 0));
  EXPECT_TRUE(q.TakeWithdrawn().empty());
  EXPECT_TRUE(Done(*early));
}

TEST_F(EarlyAssembly, WaitsForAllBricksAfterOneWasLost) {
  UnitQueue& q = Make({{4}});
  Infer(2);
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  EXPECT_EQ(q.LoseResult(early->lease, b_, 0).back, Back::kQueued);
  Infer(2);
  EXPECT_FALSE(q.Lease(b_, kAssembleOnly, 0));
  Infer(1);
  EXPECT_TRUE(Done(*q.Lease(b_, kAssembleOnly, 0)));
  EXPECT_TRUE(q.AllDone());
}

TEST_F(EarlyAssembly, IsGivenBackWithoutBlameWhenItsLinkBroke) {
  UnitQueue& q = Make({{4}});
  Infer(2);
  const auto early = q.Lease(b_, kAssembleOnly, 0);
  const auto infer = q.Lease(b_, kInferOnly, 0), other = q.Lease(a_, kInferOnly, 0);
  q.AbandonEarly(a_);
  EXPECT_TRUE(q.Holds(early->lease, b_));
  EXPECT_TRUE(Done(*other) && Done(*infer));
  q.AbandonEarly(b_);  // also when it is complete: the last bricks may not have arrived
  EXPECT_FALSE(q.Holds(early->lease, b_));
  const auto again = q.Lease(a_, kAssembleOnly, 0);
  EXPECT_FALSE(again->early);
  EXPECT_TRUE(Done(*early)) << "a result counts, whoever holds the lease now";
  EXPECT_EQ(dropped_.back().lease, again->lease);
}

TEST_F(EarlyAssembly, IsNoActivityWhileItWaits) {
  UnitQueue& q = Make({{4}});
  Infer(2);
  ASSERT_TRUE(q.Lease(b_, kAssembleOnly, 0));
  EXPECT_EQ(q.HeldBy(b_), 1u);
  EXPECT_EQ(q.ActiveOf(b_), 0u);
  const auto infer = q.Lease(b_, kInferOnly, 0);
  EXPECT_EQ(q.ActiveOf(b_), 1u);
  EXPECT_TRUE(Done(*infer));
  Infer(1);
  EXPECT_EQ(q.ActiveOf(b_), 1u);
}

}  // namespace
}  // namespace tilery
