// A coordinator on a thread of its own, for tests that play its workers.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "scheduler/coordinator.h"
#include "scheduler/resume.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/coord_support.h"

namespace tilery {

class CoordinatorFixture : public testing::Test {
 protected:
  void Plan(const std::vector<ItemSpec>& specs) {
    plan_ = MakeTestPlan(specs, folder_.path().string());
    context_ = TestContext(plan_, folder_.path().string());
    options_ = TestOptions(folder_.path().string());
  }
  // Resumes from what lies in the folder and begins to serve.
  void Start() {
    ledger_.emplace(folder_.path());
    resume_ =
        PlanResume(plan_, Existing::kRefuse, context_.numerics_key, context_.scratch, *ledger_);
    coordinator_ = std::make_unique<Coordinator>(plan_, resume_, *ledger_, context_, options_);
    result_ = std::async(std::launch::async, [this] {
      return coordinator_->Run(
          [this](const Progress& p) {
            const std::lock_guard lock(mutex_);
            progress_.push_back(p);
          },
          [this] {
            if (tick_) tick_();
          });
    });
  }
  // Waits until `happened` holds. The limit only ends a test that fails.
  static void Await(const std::function<bool()>& happened) {
    for (int i = 0; i < 12000 && !happened(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_TRUE(happened());
  }
  std::unique_ptr<FakeWorker> Worker(FakeWorker::Options options = {}) {
    return std::make_unique<FakeWorker>(coordinator_->port(), options_.token, ledger_->epoch(),
                                        std::move(options));
  }
  RunResult Result(double seconds = 120) {
    if (result_.wait_for(std::chrono::duration<double>(seconds)) != std::future_status::ready) {
      ADD_FAILURE() << "the run did not end";
      coordinator_->Drain("the test gave up");
    }
    RunResult result = result_.get();
    coordinator_.reset();
    return result;
  }
  Outcome Do(const FakeWorker::Lease& lease) {
    return DoUnit(lease.work, context_, lease.unit, lease.attempt, ledger_->epoch());
  }
  int FilesInScratch() { return EntriesOf(context_.scratch); }
  int64_t OutputsWhole() {
    int64_t whole = 0;
    for (const Item& item : plan_.items) whole += ContentOf(item.output) == item.key;
    return whole;
  }
  // What must hold of every run's figures.
  void CheckSums(const RunResult& r) {
    int64_t tiles = 0;
    for (const WorkerReport& w : r.workers) tiles += w.tiles;
    EXPECT_EQ(tiles + resume_.adopted_tiles, r.tiles_inferred);
    EXPECT_LE(r.items_done + r.items_failed + r.items_unchanged,
              static_cast<int64_t>(plan_.items.size()));
  }

  TempFolder folder_;
  tilery::Plan plan_;
  WorkerContext context_;
  RunOptions options_;
  std::optional<Ledger> ledger_;
  Resume resume_;
  std::unique_ptr<Coordinator> coordinator_;
  std::future<RunResult> result_;
  std::function<void()> tick_;
  std::mutex mutex_;
  std::vector<Progress> progress_;
};

}  // namespace tilery
