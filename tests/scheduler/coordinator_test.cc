#include "scheduler/coordinator.h"

#include "tests/scheduler/coordinator_fixture.h"

namespace tilery {
namespace {

using CoordinatorRun = CoordinatorFixture;

TEST_F(CoordinatorRun, FinishesSmallAndLargeItemsWithThreeWorkers) {
  std::vector<ItemSpec> specs;
  for (int i = 0; i < 60; ++i) specs.push_back({1 + i % 4, i % 5 == 0});
  Plan(specs);
  Start();
  std::vector<std::unique_ptr<FakeWorker>> workers;
  for (int i = 0; i < 3; ++i)
    workers.push_back(Worker({.id = "w" + std::to_string(i), .pid = 100 + i}));
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.items_done, 60);
  EXPECT_EQ(r.tiles_inferred, plan_.tiles);
  EXPECT_EQ(r.units_run, plan_.units);
  EXPECT_EQ(r.tiles_repeated, 0);
  EXPECT_EQ(OutputsWhole(), 60);
  EXPECT_EQ(FilesInScratch(), 0) << "bricks and stage files go with their item";
  EXPECT_EQ(r.workers.size(), 3u);
  CheckSums(r);
  ASSERT_FALSE(progress_.empty());
  EXPECT_EQ(progress_.back().state, "done");
  EXPECT_EQ(progress_.back().tiles_done, progress_.back().tiles);
  EXPECT_TRUE(progress_.back().workers.empty());
}

TEST_F(CoordinatorRun, ASecondRunFindsAllUnchanged) {
  Plan({{1}, {3}, {1}});
  Start();
  {
    const auto worker = Worker();
    EXPECT_EQ(Result().items_done, 3);
  }
  ledger_.reset();
  Start();
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.items_unchanged, 3);
  EXPECT_EQ(r.items_done, 0);
  EXPECT_EQ(r.tiles_inferred, 0);
  EXPECT_EQ(progress_.back().tiles_done, plan_.tiles);
}

TEST_F(CoordinatorRun, AnInterruptedRunGoesOnWithItsBricks) {
  Plan({{6}, {1}});
  Start();
  std::atomic<int> units{0};
  {
    const auto worker = Worker({.tiles_ahead = 1, .work = [&](const FakeWorker::Lease& lease) {
                                  if (++units == 4) coordinator_->Drain("asked to");
                                  return std::optional(Do(lease));
                                }});
    const RunResult r = Result();
    EXPECT_EQ(r.status, "interrupted");
    EXPECT_EQ(r.interrupted_by, "asked to");
    EXPECT_GE(r.tiles_inferred, 4);
    EXPECT_LT(r.tiles_inferred, 7);
    CheckSums(r);
    units = static_cast<int>(r.tiles_inferred);
  }
  ledger_.reset();
  Start();
  const auto worker = Worker();
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.units_reused, units);
  EXPECT_EQ(r.tiles_reused, units);
  EXPECT_EQ(r.tiles_inferred + r.tiles_reused, plan_.tiles);
  EXPECT_EQ(OutputsWhole(), 2);
  EXPECT_EQ(FilesInScratch(), 0);
}

TEST_F(CoordinatorRun, ABrickThatNobodyRecordedIsAdopted) {
  Plan({{3}});
  // An earlier run whose process was killed between the rename and the commit.
  UnitWork work;
  work.kind = UnitKind::kInfer;
  work.item_key = plan_.items[0].key;
  work.block = 1;
  work.brick_key = UnitKey(work.item_key, context_.numerics_key, 1);
  DoUnit(work, context_, 1, 1, 0);
  Start();
  EXPECT_EQ(resume_.adopted_tiles, 1);
  const auto worker = Worker();
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.tiles_inferred, 3) << "adopted tiles count as accepted in the run that adopts them";
  EXPECT_EQ(r.tiles_reused, 0);
  EXPECT_EQ(r.units_reused, 1);
  EXPECT_EQ(worker->done(), 3);
  CheckSums(r);
}

TEST_F(CoordinatorRun, AnswersThatNothingCanBeLeasedAndSendsWorkWhenItAppears) {
  Plan({{2, true}});
  Start();
  std::atomic<bool> go{false};
  // The first worker takes the stage unit and waits; the second is told that there is nothing now.
  const auto hold = [&](const FakeWorker::Lease& lease) {
    while (lease.work.kind == UnitKind::kStage && !go)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return std::optional(Do(lease));
  };
  const auto first = Worker({.id = "w0", .pid = 1, .tiles_ahead = 1, .work = hold});
  const auto second = Worker({.id = "w1", .pid = 2, .tiles_ahead = 1, .work = hold});
  Await([&] { return first->answers() + second->answers() >= 2; });
  go = true;
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_GT(first->done() * second->done(), 0) << "both took part";
}

TEST_F(CoordinatorRun, ItsOwnLateTurnCostsNoLease) {
  Plan({{1}});
  options_.lease_s = 2.5;
  std::atomic<int> leases{0};
  std::atomic<bool> slept{false};
  tick_ = [&] {
    if (leases == 0 || slept) return;
    std::this_thread::sleep_for(std::chrono::seconds(4));
    slept = true;
  };
  Start();
  // It renews nothing while it works: the lease would have ended while the run slept.
  const auto worker = Worker({.work = [&](const FakeWorker::Lease& lease) {
    ++leases;
    while (!slept) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    return std::optional(Do(lease));
  }});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(leases, 1);
}

TEST_F(CoordinatorRun, ProfilesOfWorkersArriveWithTheirLastWords) {
  Plan({{1}});
  Start();
  const auto worker = Worker();
  const RunResult r = Result();
  ASSERT_EQ(r.workers.size(), 1u);
  EXPECT_DOUBLE_EQ(r.workers[0].busy_s, 0.5);
  EXPECT_DOUBLE_EQ(r.workers[0].idle_s, 1.5);
  EXPECT_EQ(r.workers[0].host, "here");
  EXPECT_EQ(r.workers[0].device, "fake");
}

TEST_F(CoordinatorRun, RefusedItemsCountAsFailedAndAreNamed) {
  Plan({{1}, {1}});
  plan_.items[0].refused = "it is damaged";
  plan_.items[0].tiles = 0;
  plan_.items[1].first_unit = 0;
  plan_.units = 1;
  Start();
  const auto worker = Worker();
  const RunResult r = Result();
  EXPECT_EQ(r.status, "failed");
  EXPECT_EQ(r.items_failed, 1);
  EXPECT_EQ(r.items_done, 1);
  ASSERT_EQ(r.failures.size(), 1u);
  EXPECT_EQ(r.failures[0].item, plan_.items[0].input);
  EXPECT_EQ(r.failures[0].stage, "plan");
  EXPECT_EQ(r.failures[0].reason, "it is damaged");
}

TEST_F(CoordinatorRun, AnItemBeyondTheScratchBudgetIsRefusedBeforeAnyLease) {
  Plan({{2, false, 5000}, {1}});
  options_.scratch_limit = 4000;
  Start();
  const auto worker = Worker();
  const RunResult r = Result();
  EXPECT_EQ(r.items_failed, 1);
  EXPECT_EQ(r.items_done, 1);
  EXPECT_NE(r.failures[0].reason.find("5000"), std::string::npos) << r.failures[0].reason;
  EXPECT_NE(r.failures[0].reason.find("4000"), std::string::npos) << r.failures[0].reason;
  EXPECT_EQ(r.tiles_inferred, 1);
}

TEST_F(CoordinatorRun, ManyBricksAreNamedInAFile) {
  Plan({{1200}});
  Start();
  std::atomic<int64_t> named{0};
  // After a unit has failed, nothing of its item is assembled early.
  std::atomic<bool> failed{false};
  const auto worker = Worker({.tiles_ahead = 64, .work = [&](const FakeWorker::Lease& lease) {
                                if (!failed.exchange(true))
                                  return std::optional<Outcome>(Retry{"read", "busy"});
                                if (lease.work.kind != UnitKind::kAssemble)
                                  return std::optional(Do(lease));
                                FakeWorker::Lease full = lease;
                                EXPECT_TRUE(lease.work.bricks.empty());
                                full.work.bricks = BricksFromText(ReadSmallFile(
                                    std::filesystem::path(context_.work) / lease.work.bricks_file));
                                named = static_cast<int64_t>(full.work.bricks.size());
                                return std::optional(Do(full));
                              }});
  EXPECT_EQ(Result().status, "done");
  EXPECT_EQ(named, 1200);
  EXPECT_EQ(FilesInScratch(), 0);
}

}  // namespace
}  // namespace tilery
