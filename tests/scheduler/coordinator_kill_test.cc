// A whole run (lock, ledger, resume, sweep, coordinator, three workers) in a process that is killed
// at random moments, again and again until it finishes: nothing is lost, nothing is half, nothing
// is left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <random>
#include <thread>

#include "scheduler/coordinator.h"
#include "scheduler/resume.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/coord_support.h"

namespace tilery {
namespace {

constexpr int kItems = 40;

std::vector<ItemSpec> Items() {
  std::vector<ItemSpec> specs;
  for (int i = 0; i < kItems; ++i) specs.push_back({1 + i % 6, i % 7 == 3});
  return specs;
}

// One run from beginning to end. The exit code of `tilery run`.
int RunOnce(const std::string& folder) {
  const WorkLock lock(folder);
  Ledger ledger(folder);
  const Plan plan = MakeTestPlan(Items(), folder);
  const WorkerContext context = TestContext(plan, folder);
  const RunOptions options = TestOptions(folder);
  const Resume resume =
      PlanResume(plan, Existing::kRefuse, context.numerics_key, context.scratch, ledger);
  SweepDead(plan, context.numerics_key, context.scratch, ledger);
  Coordinator coordinator(plan, resume, ledger, context, options);
  std::vector<std::unique_ptr<FakeWorker>> workers;
  for (int i = 0; i < 3; ++i) {
    const auto work = [&](const FakeWorker::Lease& lease) {
      std::this_thread::sleep_for(std::chrono::microseconds(300));
      return std::optional(DoUnit(lease.work, context, lease.unit, lease.attempt, ledger.epoch()));
    };
    workers.push_back(std::make_unique<FakeWorker>(
        coordinator.port(), options.token, ledger.epoch(),
        FakeWorker::Options{
            .id = "w" + std::to_string(i), .pid = 100 + i, .tiles_ahead = 3, .work = work}));
  }
  const RunResult result = coordinator.Run({}, {});
  int64_t tiles = result.tiles_inferred + result.tiles_reused;
  for (size_t i = 0; i < plan.items.size(); ++i) {
    if (resume.items[i] == ItemState::kUnchanged) tiles += plan.items[i].tiles;
  }
  SweepDead(plan, context.numerics_key, context.scratch, ledger, true);
  if (result.status != "done") return 3;
  return tiles == plan.tiles && result.tiles_repeated == 0 ? 0 : 4;
}

TEST(KilledRun, FinishesAsIfNothingHadHappened) {
  std::mt19937 random(11);
  for (int job = 0; job < 6; ++job) {
    const TempFolder folder;
    int code = -1, kills = 0;
    for (; code != 0 && kills < 200; ++kills) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        try {
          _exit(RunOnce(folder.path().string()));
        } catch (const std::exception& error) {
          std::fprintf(stderr, "%s\n", error.what());
          _exit(1);
        }
      }
      // Later rounds get more time, so that it ends on any machine.
      std::this_thread::sleep_for(std::chrono::microseconds(random() % (20000 + 3000 * kills)));
      if (kills < 150) kill(child, SIGKILL);
      int status = 0;
      waitpid(child, &status, 0);
      if (WIFEXITED(status)) code = WEXITSTATUS(status);
      ASSERT_TRUE(code <= 0) << "job " << job << " after " << kills << " kills";
    }
    EXPECT_EQ(code, 0);
    const Plan plan = MakeTestPlan(Items(), folder.path().string());
    for (const Item& item : plan.items) EXPECT_EQ(ContentOf(item.output), item.key);
    EXPECT_EQ(EntriesOf(folder / "scratch"), 0);
    int leftovers = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      leftovers += entry.path().filename().string().starts_with(".tilery-");
    }
    EXPECT_EQ(leftovers, 0);
    EXPECT_EQ(RunOnce(folder.path().string()), 0) << "and then there is nothing left to do";
  }
}

}  // namespace
}  // namespace tilery
