// Assemble units that are leased early, over the wire: bricks that follow, and what becomes of the
// unit when a worker, a link or another unit fails.
#include <condition_variable>

#include "tests/cluster/link_support.h"
#include "tests/scheduler/coordinator_fixture.h"

namespace tilery {
namespace {

// Infer units beyond the first `open` are answered only when they are let go.
class CoordinatorEarly : public CoordinatorFixture {
 protected:
  std::function<std::optional<Outcome>(const FakeWorker::Lease&)> Gated() {
    return [this](const FakeWorker::Lease& lease) -> std::optional<Outcome> {
      if (lease.work.kind == UnitKind::kInfer && lease.work.block >= open_) {
        std::unique_lock lock(gate_mutex_);
        at_gate_ = true;
        gate_.wait(lock, [this] { return let_go_; });
      }
      return Do(lease);
    };
  }
  void LetGo() {
    {
      const std::lock_guard lock(gate_mutex_);
      let_go_ = true;
    }
    gate_.notify_all();
  }
  // Takes only assemble units, like a worker whose share of infer units others have.
  static FakeWorker::Options Assembler(int64_t pid = 2) {
    return {.id = "assembler", .pid = pid, .tiles_ahead = 0, .assembles_ahead = 1};
  }
  // The other way round. It stands still while it is asked, hence could not wait for bricks.
  static FakeWorker::Options Inferrer(FakeWorker::Work work, int64_t pid = 1) {
    return {.id = "inferrer",
            .pid = pid,
            .tiles_ahead = 1,
            .work = std::move(work),
            .assembles_ahead = -1};
  }
  int64_t open_ = 3;
  std::atomic<bool> at_gate_{false};
  std::mutex gate_mutex_;
  std::condition_variable gate_;
  bool let_go_ = false;
};

TEST_F(CoordinatorEarly, BricksFollowToWhoHoldsTheAssembleUnit) {
  Plan({{6}});
  Start();
  const auto assembler = Worker(Assembler());
  const auto inferrer = Worker(Inferrer(Gated()));
  Await([&] { return assembler->waiting().size() == 1; });
  const FakeWorker::Lease lease = assembler->waiting().front();
  EXPECT_EQ(lease.work.bricks.size(), 3u);
  EXPECT_EQ(lease.work.bricks_missing, 3);
  LetGo();
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(assembler->done(), 1);
  EXPECT_EQ(r.tiles_inferred, 6);
  EXPECT_EQ(r.tiles_repeated, 0);
  EXPECT_EQ(OutputsWhole(), 1);
  EXPECT_EQ(FilesInScratch(), 0);
  CheckSums(r);
}

TEST_F(CoordinatorEarly, BricksOfAnEarlierRunComeWithTheLeaseAlsoFromAFile) {
  Plan({{1100}});
  open_ = 1000;
  Start();
  auto first = Worker(Inferrer(Gated()));
  Await([&] { return at_gate_.load(); });
  coordinator_->Drain("SIGTERM");
  LetGo();
  EXPECT_EQ(Result().status, "interrupted");
  first.reset();
  ledger_.reset();

  let_go_ = false;
  Start();
  EXPECT_GE(resume_.bricks.size(), 1000u);
  const auto assembler = Worker(Assembler());
  Await([&] { return assembler->waiting().size() == 1; });
  const UnitWork work = assembler->waiting().front().work;
  EXPECT_TRUE(work.bricks.empty());
  EXPECT_EQ(BricksFromText(ReadSmallFile(work.bricks_file)).size(), resume_.bricks.size());
  EXPECT_EQ(work.bricks_missing, 1100 - static_cast<int64_t>(resume_.bricks.size()));
  const auto inferrer = Worker(Inferrer({}));
  EXPECT_EQ(Result().status, "done");
  EXPECT_EQ(assembler->done(), 1);
  EXPECT_EQ(OutputsWhole(), 1);
  SweepDead(plan_, context_.numerics_key, context_.scratch, *ledger_, true);
  EXPECT_EQ(FilesInScratch(), 0);
}

TEST_F(CoordinatorEarly, AUnitThatFailsForGoodWithdrawsTheAssembleUnitAndFailsTheItemAsEver) {
  Plan({{6}, {1}});
  Start();
  const auto assembler = Worker(Assembler());
  const auto gated = Gated();
  const auto inferrer = Worker(Inferrer([&](const FakeWorker::Lease& lease) {
    auto outcome = gated(lease);
    if (lease.work.item == 0 && lease.work.block == 4)
      outcome = Failed{"read", "the file ends early", Fault::kInput};
    return outcome;
  }));
  Await([&] { return assembler->waiting().size() == 1; });
  const int64_t lease = assembler->waiting().front().lease;
  LetGo();
  Await([&] { return !assembler->dropped().empty(); });
  const RunResult r = Result();
  EXPECT_EQ(assembler->dropped(), std::vector<int64_t>{lease});
  EXPECT_EQ(r.status, "failed");
  EXPECT_EQ(r.items_failed, 1);
  EXPECT_EQ(r.items_done, 1);
  ASSERT_EQ(r.failures.size(), 1u);
  EXPECT_EQ(r.failures[0].stage, "read");
  EXPECT_EQ(r.failures[0].reason, "the file ends early");
  EXPECT_EQ(progress_.back().tiles_done, progress_.back().tiles);
}

TEST_F(CoordinatorEarly, AWorkerThatDiesWhileItWaitsCostsTheUnitNoAttempt) {
  Plan({{6}});
  options_.max_attempts = 1;
  Start();
  auto assembler = Worker(Assembler());
  const auto inferrer = Worker(Inferrer(Gated()));
  Await([&] { return assembler->waiting().size() == 1; });
  assembler->Vanish();
  coordinator_->WorkerDied("assembler", "signal 9");
  LetGo();
  const auto next = Worker(Assembler(3));
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(OutputsWhole(), 1);
  EXPECT_EQ(r.tiles_repeated, 0);
}

TEST_F(CoordinatorEarly, TheDeathOfWhoInfersWithdrawsItAndTheRunGoesOn) {
  Plan({{6}});
  Start();
  const auto assembler = Worker(Assembler());
  auto dying = Worker(Inferrer(Gated()));
  Await([&] { return assembler->waiting().size() == 1; });
  // It stands at the fourth unit; the units behind it are nobody's suspects.
  coordinator_->WorkerDied("inferrer", "signal 9");
  Await([&] { return assembler->dropped().size() == 1; });
  EXPECT_TRUE(assembler->waiting().empty());
  LetGo();
  dying.reset();
  const auto other = Worker(Inferrer(Gated(), 3));
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(OutputsWhole(), 1);
  EXPECT_EQ(r.tiles_inferred, 6);
}

TEST_F(CoordinatorEarly, ABrokenLinkLosesNoBrickForGood) {
  Plan({{6}});
  Start();
  Relay relay(coordinator_->port());
  FakeWorker assembler(relay.port(), options_.token, ledger_->epoch(), Assembler());
  const auto inferrer = Worker(Inferrer(Gated()));
  Await([&] { return assembler.waiting().size() == 1; });
  relay.Cut();
  Await([&] { return assembler.waiting().empty(); });  // it is told to begin anew
  LetGo();
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(OutputsWhole(), 1);
  EXPECT_EQ(r.workers.size(), 2u);
}

TEST_F(CoordinatorEarly, WaitingIsNotTakenForHanging) {
  Plan({{6}});
  options_.hung_s = 0.3;
  std::set<std::string> killed;  // on the run's thread
  options_.kill_worker = [&](const std::string& worker) { killed.insert(worker); };
  Start();
  FakeWorker::Options still = Assembler();
  still.progresses = false;
  const auto assembler = Worker(still);
  const auto inferrer = Worker(Inferrer(Gated()));
  Await([&] { return assembler->waiting().size() == 1; });
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  coordinator_->Drain("SIGTERM");
  LetGo();
  EXPECT_EQ(Result().status, "interrupted");
  EXPECT_FALSE(killed.contains("assembler"));
}

}  // namespace
}  // namespace tilery
