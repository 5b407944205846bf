// Units that are attempted more than once: whose result counts, and what becomes of the other.
#include "tests/scheduler/coordinator_fixture.h"

namespace tilery {
namespace {

using CoordinatorAttempts = CoordinatorFixture;

TEST_F(CoordinatorAttempts, TilesThatRanAgainAreCountedForWorkerRunAndItem) {
  Plan({{2}, {1}});
  Start();
  const auto worker =
      Worker({.work = [&](const FakeWorker::Lease& lease) -> std::optional<Outcome> {
        Outcome outcome = Do(lease);
        if (lease.work.kind == UnitKind::kInfer && lease.work.item == 0) {
          std::get<Done>(outcome).careful = 1;
          std::get<Done>(outcome).repeated = 3;
        }
        return outcome;
      }});
  const RunResult r = Result();
  EXPECT_EQ(r.tiles_careful, 2);
  EXPECT_EQ(r.tiles_repeated, 6);
  ASSERT_EQ(r.workers.size(), 1u);
  EXPECT_EQ(r.workers[0].careful, 2);
  EXPECT_EQ(r.workers[0].repeated, 6);
  const std::map<std::string, int64_t> items = {{plan_.items[0].input, 2}};
  EXPECT_EQ(r.careful_items, items);
}

TEST_F(CoordinatorAttempts, ARetryGetsOtherAttemptsAndThenFailsItsItem) {
  Plan({{1}, {1}});
  Start();
  std::atomic<int> tries{0};
  const auto worker =
      Worker({.work = [&](const FakeWorker::Lease& lease) -> std::optional<Outcome> {
        if (lease.work.item == 0 && ++tries > 0) return Retry{"compute", "out of memory"};
        return Do(lease);
      }});
  const RunResult r = Result();
  EXPECT_EQ(tries, options_.max_attempts);
  EXPECT_EQ(r.items_failed, 1);
  EXPECT_NE(r.failures[0].reason.find("3 times"), std::string::npos) << r.failures[0].reason;
  EXPECT_NE(r.failures[0].reason.find("out of memory"), std::string::npos) << r.failures[0].reason;
}

TEST_F(CoordinatorAttempts, ALostBrickIsMadeAgainAndItsTilesCountOnce) {
  Plan({{3}});
  Start();
  std::atomic<bool> lost{false};
  const auto worker =
      Worker({.work = [&](const FakeWorker::Lease& lease) -> std::optional<Outcome> {
        if (lease.work.kind == UnitKind::kAssemble && !lost.exchange(true)) {
          MakeFile(std::filesystem::path(context_.scratch) / lease.work.bricks[1].file, "damaged");
        }
        return Do(lease);
      }});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_TRUE(lost);
  EXPECT_EQ(r.tiles_inferred, 3);
  EXPECT_EQ(r.tiles_repeated, 1);
  EXPECT_EQ(OutputsWhole(), 1);
  EXPECT_EQ(FilesInScratch(), 0);
  CheckSums(r);
}

TEST_F(CoordinatorAttempts, ALeaseThatIsNotRenewedGoesToAnotherAndTheLateResultIsHarmless) {
  Plan({{2}});
  options_.lease_s = 1;
  Start();
  std::atomic<int64_t> first_unit{-1};
  std::atomic<bool> made_again{false};
  const auto silent = Worker({.id = "w0",
                              .pid = 1,
                              .tiles_ahead = 1,
                              .renews = false,
                              .work = [&](const FakeWorker::Lease& lease) {
                                if (first_unit.exchange(lease.unit) < 0)
                                  while (!made_again)
                                    std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                return std::optional(Do(lease));
                              }});
  Await([&] { return first_unit >= 0; });
  const auto other = Worker({.id = "w1", .pid = 2, .work = [&](const FakeWorker::Lease& lease) {
                               const auto outcome = std::optional(Do(lease));
                               if (lease.unit == first_unit) made_again = true;
                               return outcome;
                             }});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.tiles_inferred, 2);
  EXPECT_EQ(r.tiles_repeated, 1);
  EXPECT_EQ(OutputsWhole(), 1);
  EXPECT_EQ(FilesInScratch(), 0) << "the brick of the attempt that came second goes, too";
  CheckSums(r);
}

// A host that is cut off: its link seems whole, and it had room for more.
TEST_F(CoordinatorAttempts, AUnitIsNotGivenAgainToTheWorkerThatFellSilentWithIt) {
  Plan({{1}});
  options_.lease_s = 1;
  Start();
  std::atomic<int> begun{0};
  std::atomic<bool> over{false};
  const auto silent = Worker({.id = "w0",
                              .pid = 1,
                              .tiles_ahead = 8,
                              .renews = false,
                              .work = [&](const FakeWorker::Lease&) {
                                ++begun;
                                while (!over)
                                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                return std::optional<Outcome>();
                              }});
  Await([&] { return begun == 1; });
  const auto other = Worker({.id = "w1", .pid = 2, .work = [&](const FakeWorker::Lease& lease) {
                               return std::optional(Do(lease));
                             }});
  const RunResult r = Result();
  over = true;
  EXPECT_EQ(r.status, "done");
  ASSERT_EQ(r.workers.size(), 2u);
  EXPECT_EQ(r.workers[1].units, 1);
  EXPECT_EQ(OutputsWhole(), 1);
  CheckSums(r);
}

TEST_F(CoordinatorAttempts, ASlowWorkersUnitIsDoneByAnotherTooAndBothHaveTheSameBytes) {
  Plan({{12}, {1}});
  Start();
  std::atomic<bool> slow{false}, done_by_other{false};
  std::atomic<int> done{0};
  const auto worker =
      Worker({.id = "w0", .pid = 1, .tiles_ahead = 1, .work = [&](const auto& lease) {
                if (++done == 9) {
                  slow = true;
                  while (!done_by_other) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                }
                return std::optional(Do(lease));
              }});
  Await([&] { return slow.load(); });
  const auto other = Worker({.id = "w1", .pid = 2, .work = [&](const FakeWorker::Lease& lease) {
                               const auto outcome = std::optional(Do(lease));
                               if (lease.unit == 8) done_by_other = true;
                               return outcome;
                             }});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.units_twice, 1);
  EXPECT_EQ(r.tiles_inferred, 13);
  EXPECT_EQ(r.units_different, 0);
  EXPECT_EQ(OutputsWhole(), 2);
  EXPECT_EQ(FilesInScratch(), 0);
  CheckSums(r);
}

TEST_F(CoordinatorAttempts, TwoAttemptsThatMakeDifferentBytesAreTold) {
  Plan({{2}});
  options_.lease_s = 1;
  Start();
  std::atomic<int64_t> first_unit{-1};
  std::atomic<bool> made_again{false}, came_late{false};
  const auto silent = Worker({.id = "w0",
                              .pid = 1,
                              .tiles_ahead = 1,
                              .renews = false,
                              .work = [&](const FakeWorker::Lease& lease) {
                                if (first_unit.exchange(lease.unit) >= 0)
                                  return std::optional(Do(lease));
                                while (!made_again)
                                  std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                Outcome outcome = Do(lease);
                                std::get<Done>(outcome).published.hash = std::string(32, '0');
                                came_late = true;
                                return std::optional(outcome);
                              }});
  Await([&] { return first_unit >= 0; });
  const auto other = Worker({.id = "w1", .pid = 2, .work = [&](const FakeWorker::Lease& lease) {
                               const auto outcome = std::optional(Do(lease));
                               if (lease.unit == first_unit) made_again = true;
                               // As long as it is not assembled, there is something to compare.
                               if (lease.work.kind == UnitKind::kAssemble) {
                                 while (!came_late)
                                   std::this_thread::sleep_for(std::chrono::milliseconds(1));
                                 std::this_thread::sleep_for(std::chrono::milliseconds(300));
                               }
                               return outcome;
                             }});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.units_different, 1);
  EXPECT_EQ(r.different, std::set<std::string>{plan_.items[0].input});
}

}  // namespace
}  // namespace tilery
