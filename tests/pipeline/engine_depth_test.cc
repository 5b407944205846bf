// Batches that are begun while others are under way, on a device that works behind its lanes: the
// CPU's, whose batches are done and whose inputs are there when the test says so.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>

#include "io/error.h"
#include "pipeline/device.h"
#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

using namespace tilery::testing;

constexpr std::chrono::seconds kLong{20};        // what must happen
constexpr std::chrono::milliseconds kWhile{50};  // what must not

// What the device has been asked for, and what of it is done.
struct Script {
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;   // Forward() calls
  int done = 0;    // of these
  int loaded = 0;  // units, in the order of Begin()
  int next_unit = 0;
  std::function<void()> progress;

  void Do(const std::function<void()>& what) {
    {
      const std::lock_guard lock(mutex);
      what();
    }
    changed.notify_all();
    progress();
  }
  void EndBatches(int number) {
    Do([&] { done = number; });
  }
  void Load(int units) {
    Do([&] { loaded = units; });
  }
  bool Begun(int number, std::chrono::milliseconds patience) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, patience, [&] { return begun >= number; });
  }
};

class HeldOutput final : public BatchOutput {
 public:
  HeldOutput(std::shared_ptr<const BatchOutput> output, int number, Script& script)
      : output_(std::move(output)), number_(number), script_(script) {}
  const std::shared_ptr<const BatchOutput>& inner() const { return output_; }
  bool Done() const override {
    const std::lock_guard lock(script_.mutex);
    return script_.done > number_;
  }
  bool Finite(int64_t slot) const override {
    std::unique_lock lock(script_.mutex);
    script_.changed.wait(lock, [&] { return script_.done > number_; });
    return output_->Finite(slot);
  }

 private:
  const std::shared_ptr<const BatchOutput> output_;
  const int number_;
  Script& script_;
};

class HeldUnit final : public UnitMemory {
 public:
  HeldUnit(std::unique_ptr<UnitMemory> unit, Script& script)
      : unit_(std::move(unit)), script_(script) {}
  UnitMemory& inner() { return *unit_; }
  void Begin() override {
    const std::lock_guard lock(script_.mutex);
    number_ = script_.next_unit++;
  }
  bool Ready() const override {
    const std::lock_guard lock(script_.mutex);
    return script_.loaded > number_;
  }
  void WaitReady() const {
    std::unique_lock lock(script_.mutex);
    script_.changed.wait(lock, [&] { return script_.loaded > number_; });
  }
  int64_t nonfinite_in() const override { return unit_->nonfinite_in(); }
  void Blend(int64_t run, int64_t count, std::shared_ptr<const BatchOutput> output,
             int64_t slot) override {
    unit_->Blend(run, count, static_cast<const HeldOutput&>(*output).inner(), slot);
  }
  void BlendWithoutModel() override { unit_->BlendWithoutModel(); }
  void Finalize(std::function<void(InferResult)> ready) override {
    unit_->Finalize(std::move(ready));
  }

 private:
  const std::unique_ptr<UnitMemory> unit_;
  Script& script_;
  int number_ = 0;
};

class HeldLane final : public Lane {
 public:
  HeldLane(std::unique_ptr<Lane> lane, Script& script) : lane_(std::move(lane)), script_(script) {}
  void Gather(int64_t slot, UnitMemory& unit, int64_t run, int64_t count) override {
    auto& held = static_cast<HeldUnit&>(unit);
    held.WaitReady();
    lane_->Gather(slot, held.inner(), run, count);
  }
  void Repeat(int64_t from, int64_t to) override { lane_->Repeat(from, to); }
  std::shared_ptr<const BatchOutput> Forward() override {
    auto output = lane_->Forward();
    int number = 0;
    {
      const std::lock_guard lock(script_.mutex);
      number = script_.begun++;
    }
    script_.changed.notify_all();
    return std::make_shared<HeldOutput>(std::move(output), number, script_);
  }
  std::shared_ptr<const BatchOutput> Careful(UnitMemory& unit, int64_t run) override {
    return lane_->Careful(static_cast<HeldUnit&>(unit).inner(), run);
  }

 private:
  const std::unique_ptr<Lane> lane_;
  Script& script_;
};

class HeldDevice final : public Device {
 public:
  HeldDevice(const EngineOptions& options, Script& script)
      : device_(MakeCpuDevice(options)), script_(script) {}
  std::unique_ptr<Lane> MakeLane() override {
    return std::make_unique<HeldLane>(device_->MakeLane(), script_);
  }
  std::unique_ptr<UnitMemory> Open(const InferWork& work) override {
    return std::make_unique<HeldUnit>(device_->Open(work), script_);
  }
  bool opens_early() const override { return true; }
  void OnProgress(std::function<void()> progress) override {
    script_.progress = std::move(progress);
  }
  int depth() const override { return 1; }

 private:
  const std::unique_ptr<Device> device_;
  Script& script_;
};

class EngineDepth : public ::testing::Test {
 protected:
  static constexpr int kBatch = 4;

  EngineDepth() : item_(MakePicture({1, 32, 32}, 3, DType::kU8, DType::kU8, 32, 8)) {
    const EngineOptions options = OptionsFor(item_, "identity", kBatch);
    engine_ = MakeEngine(options, std::make_unique<HeldDevice>(options, script_), profile_);
    engine_->MoreComing(More::kSoon);
  }
  ~EngineDepth() override {  // whatever a test has left: lanes end, so that the engine can
    script_.Do([&] { script_.done = script_.loaded = 1000; });
    engine_.reset();
    EXPECT_EQ(returned_, submitted_);
  }
  // A unit of one tile each.
  void Submit(int units) {
    for (int i = 0; i < units; ++i, ++submitted_) {
      engine_->Submit(WorksOf(item_)[0], [this](InferResult) {
        const std::lock_guard lock(script_.mutex);
        ++returned_;
      });
    }
  }

  const Item item_;
  Script script_;
  Profile profile_;
  int submitted_ = 0, returned_ = 0;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineDepth, TilesThatComeWhileABatchRunsAreBegunBeforeItEnds) {
  script_.Load(100);
  Submit(kBatch);
  ASSERT_TRUE(script_.Begun(1, kLong));
  Submit(kBatch - 1);
  EXPECT_FALSE(script_.Begun(2, kWhile));  // more is coming
  Submit(1);
  EXPECT_TRUE(script_.Begun(2, kLong));
  Submit(kBatch);
  EXPECT_FALSE(script_.Begun(3, kWhile));  // one runs, one waits for it
  script_.EndBatches(1);
  EXPECT_TRUE(script_.Begun(3, kLong));
}

TEST_F(EngineDepth, InputThatComesWhileABatchRunsIsGatheredBeforeItEnds) {
  script_.Load(kBatch);
  Submit(kBatch);
  ASSERT_TRUE(script_.Begun(1, kLong));
  Submit(kBatch);
  EXPECT_FALSE(script_.Begun(2, kWhile));
  script_.Load(2 * kBatch);
  EXPECT_TRUE(script_.Begun(2, kLong));
}

TEST_F(EngineDepth, ABatchThatWaitsForMemoryOfTheOneBeforeLetsItEnd) {
  script_.Load(kBatch);
  Submit(2 * kBatch);
  ASSERT_TRUE(script_.Begun(1, kLong));
  script_.EndBatches(1);
  // The units of the first batch come back, though the second has been taken.
  const auto until = std::chrono::steady_clock::now() + kLong;
  const auto returned = [&] {
    const std::lock_guard lock(script_.mutex);
    return returned_;
  };
  while (returned() < kBatch && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(returned(), kBatch);
  EXPECT_FALSE(script_.Begun(2, std::chrono::milliseconds(0)));
  script_.Load(2 * kBatch);
  EXPECT_TRUE(script_.Begun(2, kLong));
}

TEST_F(EngineDepth, APartOfABatchWaitsForItsTurnOnlyWhileOthersAreUnderWay) {
  script_.Load(100);
  engine_->MoreComing(More::kInTurn);
  Submit(1);  // nothing is under way, and nothing else would make tiles come
  ASSERT_TRUE(script_.Begun(1, kLong));
  Submit(1);
  EXPECT_FALSE(script_.Begun(2, kWhile));
  Submit(kBatch - 1);
  EXPECT_TRUE(script_.Begun(2, kLong));
  Submit(1);
  script_.EndBatches(1);
  EXPECT_FALSE(script_.Begun(3, kWhile));
  script_.EndBatches(2);
  EXPECT_TRUE(script_.Begun(3, kLong));
}

TEST_F(EngineDepth, WhenNothingMoreComesAPartOfABatchIsBegunAtOnce) {
  script_.Load(100);
  engine_->MoreComing(More::kNothing);
  Submit(1);
  ASSERT_TRUE(script_.Begun(1, kLong));
  Submit(1);
  EXPECT_TRUE(script_.Begun(2, kLong));
}

}  // namespace
}  // namespace tilery
