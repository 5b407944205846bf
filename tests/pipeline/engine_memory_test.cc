// Batches that memory runs out in: tried once more, gathered anew. Units that can't be opened. On
// the CPU, over a device that fails on purpose.
#include <gtest/gtest.h>

#include <algorithm>

#include "io/error.h"
#include "pipeline/device.h"
#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

using namespace tilery::testing;

// What lanes were asked for, and which of their batches fail.
struct Script {
  std::vector<int> failing;  // numbers of Forward() calls, from 0
  Fault fault = Fault::kTransient;
  int forwards = 0, freed = 0;
  int64_t gathered = 0;
  std::vector<int> freed_after;  // forwards that had been asked for by then
  std::vector<int64_t> closed;   // items whose units can't be opened
  bool early = false;            // Device::opens_early()
  std::vector<int64_t> begun;    // units, in the order of Begin()
};

class NotedUnit final : public UnitMemory {
 public:
  NotedUnit(std::unique_ptr<UnitMemory> unit, int64_t number, Script& script)
      : unit_(std::move(unit)), number_(number), script_(script) {}
  UnitMemory& inner() { return *unit_; }
  void Begin() override { script_.begun.push_back(number_); }
  int64_t nonfinite_in() const override { return unit_->nonfinite_in(); }
  void Blend(int64_t run, int64_t count, std::shared_ptr<const BatchOutput> output,
             int64_t slot) override {
    unit_->Blend(run, count, std::move(output), slot);
  }
  void BlendWithoutModel() override { unit_->BlendWithoutModel(); }
  void Finalize(std::function<void(InferResult)> ready) override {
    unit_->Finalize(std::move(ready));
  }

 private:
  const std::unique_ptr<UnitMemory> unit_;
  const int64_t number_;
  Script& script_;
};

class FailingLane final : public Lane {
 public:
  FailingLane(std::unique_ptr<Lane> lane, Script& script)
      : lane_(std::move(lane)), script_(script) {}
  void Gather(int64_t slot, UnitMemory& unit, int64_t run, int64_t count) override {
    script_.gathered += count;
    lane_->Gather(slot, static_cast<NotedUnit&>(unit).inner(), run, count);
  }
  void Repeat(int64_t from, int64_t to) override { lane_->Repeat(from, to); }
  std::shared_ptr<const BatchOutput> Forward() override {
    const int number = script_.forwards++;
    // A model may have written to its input before memory ran out: the output is thrown away.
    auto output = lane_->Forward();
    const auto& failing = script_.failing;
    if (std::find(failing.begin(), failing.end(), number) != failing.end()) {
      throw Error(script_.fault, "planted failure " + std::to_string(number));
    }
    return output;
  }
  void FreeMemory() override {
    ++script_.freed;
    script_.freed_after.push_back(script_.forwards);
  }
  std::shared_ptr<const BatchOutput> Careful(UnitMemory& unit, int64_t run) override {
    return lane_->Careful(static_cast<NotedUnit&>(unit).inner(), run);
  }

 private:
  const std::unique_ptr<Lane> lane_;
  Script& script_;
};

class FailingDevice final : public Device {
 public:
  FailingDevice(const EngineOptions& options, Script& script)
      : device_(MakeCpuDevice(options)), script_(script) {}
  std::unique_ptr<Lane> MakeLane() override {
    return std::make_unique<FailingLane>(device_->MakeLane(), script_);
  }
  std::unique_ptr<UnitMemory> Open(const InferWork& work) override {
    const auto& closed = script_.closed;
    if (std::find(closed.begin(), closed.end(), work.item) != closed.end()) {
      throw Error(Fault::kInput, work.item_name + ": planted refusal");
    }
    return std::make_unique<NotedUnit>(device_->Open(work), work.unit, script_);
  }
  bool opens_early() const override { return script_.early; }

 private:
  const std::unique_ptr<Device> device_;
  Script& script_;
};

std::vector<InferResult> RunWith(const Item& item, const std::string& model, Script& script) {
  const EngineOptions options = OptionsFor(item, model, 3);
  Profile profile;
  const auto engine =
      MakeEngine(options, std::make_unique<FailingDevice>(options, script), profile);
  return RunAll(*engine, WorksOf(item));
}

Item Picture() {
  Item item = MakePicture({1, 70, 90}, 3, DType::kU8, DType::kU8, 32, 8);
  item.sizing.tiles = 100;
  return item;
}

std::string WhatOf(const InferResult& result, Fault& fault) {
  try {
    std::rethrow_exception(std::get<std::exception_ptr>(result));
  } catch (const Error& e) {
    fault = e.fault();
    return e.what();
  }
}

TEST(EngineMemory, ABatchRunsOnceMoreAfterWhatCouldBeSparedWasGivenBack) {
  const Item item = Picture();
  // in_place: what a first try leaves in the slots must not be what the second one sees.
  for (const char* model : {"conv", "in_place"}) {
    Script none;
    const auto want = Assemble(item, RunWith(item, model, none));
    Script script;
    script.failing = {1, 4};
    const auto results = RunWith(item, model, script);
    EXPECT_TRUE(Assemble(item, results) == want) << model;
    EXPECT_EQ(script.freed_after, (std::vector<int>{2, 5}));
    EXPECT_EQ(script.forwards, none.forwards + 2);
    const auto& output = std::get<InferOutput>(results[0]);
    EXPECT_EQ(output.repeated, script.gathered - none.gathered);
    EXPECT_GT(output.repeated, 0);
    EXPECT_EQ(output.tiles, none.gathered);
  }
}

TEST(EngineMemory, ASecondFailureOfTheSameBatchIsTransient) {
  const Item item = Picture();
  Script script;
  script.failing = {0, 1};
  const auto results = RunWith(item, "conv", script);
  Fault fault{};
  const std::string what = WhatOf(results[0], fault);
  EXPECT_EQ(fault, Fault::kTransient);
  EXPECT_NE(what.find("planted failure 1"), std::string::npos) << what;
  EXPECT_NE(what.find("item"), std::string::npos) << what;
  EXPECT_EQ(script.freed, 1);
}

TEST(EngineMemory, AUnitThatCanNotBeOpenedFailsAloneAndTheOthersBeginInTheirOrder) {
  Item item = MakePicture({1, 200, 300}, 3, DType::kU8, DType::kU8, 32, 8);
  item.sizing.tiles = 4;
  for (const bool early : {false, true}) {
    std::vector<InferWork> works = WorksOf(item);
    ASSERT_GT(works.size(), 6u);
    for (InferWork& work : works) work.item = work.unit % 3;
    Script script;
    script.closed = {1};
    script.early = early;
    const EngineOptions options = OptionsFor(item, "conv", 3);
    Profile profile;
    const auto engine =
        MakeEngine(options, std::make_unique<FailingDevice>(options, script), profile);
    std::vector<int64_t> others;
    for (const InferWork& work : works) {
      if (work.item != 1) others.push_back(work.unit);
    }
    const auto results = RunAll(*engine, works);
    for (size_t i = 0; i < works.size(); ++i) {
      if (works[i].item != 1) {
        EXPECT_TRUE(std::holds_alternative<InferOutput>(results[i])) << i << early;
        continue;
      }
      Fault fault{};
      EXPECT_NE(WhatOf(results[i], fault).find("planted refusal"), std::string::npos) << i << early;
      EXPECT_EQ(fault, Fault::kInput);
    }
    EXPECT_EQ(script.begun, early ? others : std::vector<int64_t>{});
  }
}

TEST(EngineMemory, OtherFaultsAreNotTriedAgain) {
  const Item item = Picture();
  Script script;
  script.failing = {0};
  script.fault = Fault::kModel;
  Fault fault{};
  WhatOf(RunWith(item, "conv", script)[0], fault);
  EXPECT_EQ(fault, Fault::kModel);
  EXPECT_EQ(script.freed, 0);
  EXPECT_EQ(script.forwards, 1);
}

}  // namespace
}  // namespace tilery
