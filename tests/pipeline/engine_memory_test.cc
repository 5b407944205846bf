// Batches that memory runs out in: tried once more, gathered anew. On the CPU, over a device whose
// lanes fail on purpose.
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
};

class FailingLane final : public Lane {
 public:
  FailingLane(std::unique_ptr<Lane> lane, Script& script)
      : lane_(std::move(lane)), script_(script) {}
  void Gather(int64_t slot, UnitMemory& unit, int64_t run, int64_t count) override {
    script_.gathered += count;
    lane_->Gather(slot, unit, run, count);
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
    return lane_->Careful(unit, run);
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
  std::unique_ptr<UnitMemory> Open(const InferWork& work) override { return device_->Open(work); }

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
