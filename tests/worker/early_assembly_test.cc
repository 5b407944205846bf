// Assemble units that are begun while bricks are missing: the same bytes, and nobody waits for what
// waits.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <random>
#include <thread>

#include "tests/worker/worker_fixture.h"
#include "worker/assemble_unit.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSide = 800;
static_assert(60 * kSide * kSide > kAssembleBand);

class EarlyAssemblyTest : public WorkerTest {
 protected:
  // A volume, its bricks, and its samples; of several bands if its side is kSide.
  void MakeVolume(int64_t side = 80, RunnerOptions options = {}) {
    const Index shape{60, side, side};
    samples_ = Noise(static_cast<size_t>(Product(shape)), 31);
    const auto input = Write("v.npy", "npy", DType::kU8, 1, shape, samples_);
    const int32_t params =
        AddParams("npy", DType::kU8, 1, Tiles({12, side / 2, side / 2}, {4, side / 20, side / 20}));
    StartRunner({}, std::move(options));
    item_ = MakeItem(input, "v.npy", params, 3);
    ASSERT_GE(item_.infer_units, 6);
    infer_ = RunInfer(item_);
  }
  Lease Whole() { return AssembleLease(item_, infer_); }
  // With the first `there` bricks; the others become late_.
  Lease Early(size_t there) {
    Lease lease = Whole();
    std::vector<Brick>& bricks = lease.work.bricks;
    late_.assign(bricks.begin() + static_cast<std::ptrdiff_t>(there), bricks.end());
    bricks.resize(there);
    lease.work.bricks_missing = static_cast<int64_t>(late_.size());
    return lease;
  }
  static bool Soon(const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!holds() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return holds();
  }

  std::vector<std::byte> samples_;
  TestItem item_;
  std::vector<Outcome> infer_;
  std::vector<Brick> late_;
};

TEST_F(EarlyAssemblyTest, GivesTheSameBytesInWhicheverOrderTheBricksCome) {
  MakeVolume(kSide);
  const std::string wanted = AsDone(Run(Whole())).published.hash;
  for (const size_t there : {infer_.size() / 2, size_t{0}}) {
    const Lease lease = Early(there);
    std::shuffle(late_.begin(), late_.end(), std::mt19937(static_cast<unsigned>(there)));
    Submit(lease);
    runner_->AddBricks(lease.lease + 1, late_);  // of another: of no use
    for (const Brick& brick : late_) {
      EXPECT_FALSE(Reported(lease));
      runner_->AddBricks(lease.lease, {brick});
      runner_->AddBricks(lease.lease, {brick});  // twice does no harm
    }
    EXPECT_EQ(AsDone(Await(lease)).published.hash, wanted);
    EXPECT_EQ(ReadAll(item_.base.output), samples_);
  }
}

TEST_F(EarlyAssemblyTest, WritesTheBandsThatAreThereWhileItWaits) {
  MakeVolume(kSide);
  const Lease lease = Early(infer_.size() - 1);
  Submit(lease);
  EXPECT_TRUE(Soon([&] { return runner_->progress() > engine_->finished_batches(); }));
  EXPECT_FALSE(Reported(lease));
  runner_->AddBricks(lease.lease, late_);
  AsDone(Await(lease));
  EXPECT_EQ(ReadAll(item_.base.output), samples_);
}

TEST_F(EarlyAssemblyTest, HoldsNothingThatOtherUnitsNeedWhileItWaits) {
  const auto input = Write("p.png", "png", DType::kU8, 3, {1, 64, 64}, Noise(64 * 64 * 3, 32));
  const int32_t params = AddParams("png", DType::kU8, 3, Tiles({1, 64, 64}, {0, 0, 0}));
  const TestItem picture = MakeItem(input, "p.png", params);
  RunnerOptions options;  // one thread for each
  options.readers = options.writers = 1;
  MakeVolume(80, std::move(options));
  const Lease lease = Early(0);
  Submit(lease);
  // A unit that is waited for, and a picture that needs the encoders.
  const Outcome again = Run(LeaseOf(item_, UnitKind::kInfer, 2));
  EXPECT_EQ(AsDone(again).published.hash, AsDone(infer_[2]).published.hash);
  AsDone(Run(LeaseOf(picture, UnitKind::kInfer)));
  EXPECT_FALSE(Reported(lease));
  EXPECT_EQ(runner_->held().assemble_units, 1);
  runner_->AddBricks(lease.lease, late_);
  AsDone(Await(lease));
}

TEST_F(EarlyAssemblyTest, IsAbandonedWhenItIsNotWantedAnyMore) {
  MakeVolume();
  for (const bool by_number : {true, false}) {
    const Lease early = Early(infer_.size() - 1);
    Submit(early);
    by_number ? runner_->Drop({early.lease}) : runner_->DropEarly();
    EXPECT_TRUE(Soon([&] { return runner_->held().empty(); }));
    EXPECT_FALSE(Reported(early));
    EXPECT_THAT(Names(out_), IsEmpty());
  }
  AsDone(Run(Whole()));  // its thread is free again
}

TEST_F(EarlyAssemblyTest, OnlyWhatWasBegunEarlyIsDroppedAsSuch) {
  MakeVolume();
  const Lease whole = Whole();
  Submit(whole);
  runner_->DropEarly();
  AsDone(Await(whole));
}

TEST_F(EarlyAssemblyTest, IsAbandonedWhenTheWorkerDrainsOrStops) {
  MakeVolume();
  const Lease lease = Early(infer_.size() - 1);
  Submit(lease);
  runner_->Drain();
  EXPECT_TRUE(Soon([&] { return runner_->held().empty(); }));
  EXPECT_FALSE(Reported(lease));
  EXPECT_THAT(Names(out_), IsEmpty());

  StartRunner();
  Submit(Early(infer_.size() - 1));
  runner_->Stop();
  EXPECT_TRUE(runner_->held().empty());
  EXPECT_THAT(Names(out_), IsEmpty());
}

TEST_F(EarlyAssemblyTest, SaysAtOnceWhatFailsAlthoughABandWaits) {
  MakeVolume(kSide);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{60'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Outcome outcome = Run(Early(infer_.size() - 1));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(std::get<Failed>(outcome).fault, Fault::kOutput);
  EXPECT_THAT(Names(out_), IsEmpty());
}

TEST_F(EarlyAssemblyTest, NamesABrickThatIsLostAmongThoseThatFollowed) {
  MakeVolume();
  const Lease lease = Early(2);
  std::filesystem::remove(scratch_ / late_.front().file);
  Submit(lease);
  runner_->AddBricks(lease.lease, late_);
  const Outcome outcome = Await(lease);
  EXPECT_EQ(std::get<LostBrick>(outcome).unit, item_.unit_of_block(2));
  EXPECT_EQ(std::get<LostBrick>(outcome).brick_key, late_.front().key);
}

TEST_F(EarlyAssemblyTest, RefusesAListWithoutAllBricksUnlessTheyAreToCome) {
  MakeVolume();
  Lease lease = Early(2);
  --lease.work.bricks_missing;
  const Outcome outcome = Run(lease);
  EXPECT_EQ(std::get<Failed>(outcome).fault, Fault::kInternal);
  EXPECT_THAT(std::get<Failed>(outcome).reason, HasSubstr("2 bricks of"));
}

}  // namespace
}  // namespace tilery
