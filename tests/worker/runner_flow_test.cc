// What the runner begins when, what it drops, and how it stops: units in flight over an engine
// without Torch.
#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <thread>

#include "tests/worker/counted_memory.h"
#include "tests/worker/worker_fixture.h"

namespace tilery {
namespace {

using ::testing::ElementsAre;

using RunnerFlowTest = WorkerTest;

// Whether `holds` becomes true, however slow the machine is.
bool Soon(const std::function<bool()>& holds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!holds()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

TEST_F(RunnerFlowTest, FillsBatchesWhileInputsAreReadAndNeverWaitsForALeaseThatDoesNotCome) {
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({2, 8, 8}, {0, 0, 0}));
  std::vector<TestItem> items;
  for (uint32_t i = 0; i < 41; ++i) {
    const std::string name = std::to_string(i) + ".npy";
    items.push_back(
        MakeItem(Write(name, "npy", DType::kU8, 1, {2, 8, 8}, Noise(128, i)), name, params));
  }
  StartRunner({.batch = 8, .before = {}});
  runner_->ExpectMore(true);
  std::vector<Lease> leases;
  for (const TestItem& item : items) {
    leases.push_back(LeaseOf(item, UnitKind::kInfer));
    Submit(leases.back());
  }
  // Two readers: any of the last units may come to the engine last, and wait there.
  const auto reported = [&] {
    return std::count_if(leases.begin(), leases.end(),
                         [&](const Lease& lease) { return Reported(lease); });
  };
  ASSERT_TRUE(Soon([&] { return reported() == 40 && engine_->queued_tiles() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(reported(), 40);
  EXPECT_EQ(engine_->partial_batches(), 0);
  runner_->ExpectMore(false);
  for (const Lease& lease : leases) AsDone(Await(lease));
  EXPECT_EQ(engine_->finished_batches(), 6);
  EXPECT_EQ(engine_->partial_batches(), 1);
}

TEST_F(RunnerFlowTest, BeginsFewLargeUnitsAtATime) {
  constexpr int64_t kWaiting = UnitRunner::kUnitsAhead - 1;
  const auto input = Write("t.npy", "npy", DType::kU8, 1, {64, 8, 8}, Noise(64 * 64, 18));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({4, 4, 4}, {0, 0, 0}));
  std::promise<void> open;
  const std::shared_future<void> gate = open.get_future().share();
  StartRunner({.batch = 1, .before = [gate](const InferWork&) { gate.wait(); }});
  const TestItem item = MakeItem(input, "t.npy", params, 8);
  ASSERT_EQ(item.infer_units, 8);
  std::vector<Lease> leases;
  for (int64_t block = 0; block < item.infer_units; ++block) {
    leases.push_back(LeaseOf(item, UnitKind::kInfer, block));
    Submit(leases.back());
  }
  // One runs, some wait, the others are not even read.
  ASSERT_TRUE(Soon(
      [&] { return engine_->finished_batches() == 8 && engine_->queued_tiles() == kWaiting * 8; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_EQ(engine_->queued_tiles(), kWaiting * 8);
  EXPECT_EQ(runner_->held().infer_units, 8);
  EXPECT_EQ(runner_->held().tiles, 64);
  EXPECT_EQ(runner_->held().largest, 8);
  EXPECT_EQ(engine_->more(), More::kInTurn);  // the others, when these are done
  open.set_value();
  for (const Lease& lease : leases) AsDone(Await(lease));
  EXPECT_TRUE(runner_->held().empty());
  EXPECT_TRUE(Soon([&] { return engine_->more() == More::kNothing; }));
}

TEST_F(RunnerFlowTest, WritingHoldsTheEngineUpOnlyWhenMuchWaitsForIt) {
  const Index shape{8, 4, 4};
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({1, 4, 4}, {0, 0, 0}));
  std::promise<void> open;
  const std::shared_future<void> gate = open.get_future().share();
  RunnerOptions options;
  options.lease_is_young = [gate] {  // asked before a file is renamed
    gate.wait();
    return true;
  };
  StartRunner({.batch = 1, .before = {}}, std::move(options));
  std::vector<Lease> leases;
  for (uint32_t i = 0; i < 20; ++i) {
    const std::string name = std::to_string(i) + ".npy";
    leases.push_back(
        LeaseOf(MakeItem(Write(name, "npy", DType::kU8, 1, shape, Noise(128, i)), name, params),
                UnitKind::kInfer));
    Submit(leases.back());
  }
  // What was begun before the writers were found to be busy still goes through the engine.
  ASSERT_TRUE(Soon([&] { return engine_->finished_batches() >= UnitRunner::kUnitsBehind * 8; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_LE(engine_->finished_batches(), UnitRunner::kUnitsInFlightOnCpu * 8);
  EXPECT_EQ(engine_->queued_tiles(), 0);
  EXPECT_EQ(runner_->held().infer_units, 20);
  open.set_value();
  for (const Lease& lease : leases) AsDone(Await(lease));
}

TEST_F(RunnerFlowTest, AsksADeviceForMemoryOnlyUntilUnitsOfAllSizesHaveEnough) {
  const auto memory = std::make_shared<CountedMemory>();
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({1, 64, 64}, {0, 0, 0}));
  RunnerOptions options;
  options.lease_is_young = [] {  // asked before a file is renamed: writers are slow
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return true;
  };
  StartRunner({.batch = 1, .before = {}, .host_memory = memory}, std::move(options));
  constexpr std::array<int64_t, 3> kDepths{4, 9, 20};
  std::vector<Lease> leases;
  for (uint32_t i = 0; i < 120; ++i) {
    const int64_t depth = kDepths[i * 7 % 5 % kDepths.size()];
    const std::string name = std::to_string(i) + ".npy";
    const auto samples = Noise(static_cast<size_t>(depth * 64 * 64), i);
    leases.push_back(
        LeaseOf(MakeItem(Write(name, "npy", DType::kU8, 1, {depth, 64, 64}, samples), name, params),
                UnitKind::kInfer));
    Submit(leases.back());
  }
  for (const Lease& lease : leases) AsDone(Await(lease));
  EXPECT_GE(memory->allocations(), static_cast<int64_t>(kDepths.size()));
  EXPECT_LE(memory->allocations(),
            static_cast<int64_t>(kDepths.size()) * (UnitRunner::kUnitsInFlight + 1));
}

TEST_F(RunnerFlowTest, ReportsNothingForADroppedLease) {
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({2, 8, 8}, {0, 0, 0}));
  std::promise<void> open;
  const std::shared_future<void> gate = open.get_future().share();
  StartRunner({.batch = 1, .before = [gate](const InferWork&) { gate.wait(); }});
  std::vector<Lease> leases;
  for (uint32_t i = 0; i < 6; ++i) {
    const std::string name = std::to_string(i) + ".npy";
    leases.push_back(
        LeaseOf(MakeItem(Write(name, "npy", DType::kU8, 1, {2, 8, 8}, Noise(128, i)), name, params),
                UnitKind::kInfer));
    Submit(leases.back());
  }
  runner_->Drop({leases[0].lease, leases[5].lease});  // one that runs, one that waits
  open.set_value();
  for (size_t i = 1; i < 5; ++i) AsDone(Await(leases[i]));
  ASSERT_TRUE(Soon([&] { return runner_->held().empty(); }));
  EXPECT_FALSE(Reported(leases[0]));
  EXPECT_FALSE(Reported(leases[5]));
  EXPECT_THAT(Names(out_), ElementsAre("1.npy", "2.npy", "3.npy", "4.npy"));
}

TEST_F(RunnerFlowTest, StopsWithUnitsInFlightAndLeavesNoTemporaryFile) {
  const auto input = Write("x.npy", "npy", DType::kU8, 1, {64, 8, 8}, Noise(64 * 64, 19));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({4, 4, 4}, {0, 0, 0}));
  StartRunner({.batch = 2, .before = [](const InferWork&) {
                 std::this_thread::sleep_for(std::chrono::milliseconds(20));
               }});
  const TestItem item = MakeItem(input, "x.npy", params, 8);
  for (int64_t block = 0; block < item.infer_units; ++block) {
    Submit(LeaseOf(item, UnitKind::kInfer, block));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  runner_->Stop();
  for (const std::string& name : Names(scratch_)) EXPECT_THAT(name, ::testing::EndsWith(".brick"));
  EXPECT_TRUE(runner_->held().empty());
}

}  // namespace
}  // namespace tilery
