#include "scheduler/keys.h"

#include <gtest/gtest.h>

#include <set>

#include "scheduler/planner.h"
#include "tests/scheduler/plan_inputs.h"

namespace tilery {
namespace {

class KeysTest : public testing::Test {
 protected:
  std::string Key() { return Keys()[0]; }
  std::vector<std::string> Keys() {
    std::vector<std::string> outputs;
    for (const InputHeader& input : inputs_) outputs.push_back("/o" + input.path);
    std::vector<std::string> keys;
    for (const Item& item : MakePlan(job_, contract_, model_, inputs_, outputs).plan.items) {
      EXPECT_EQ(item.refused, "");
      keys.push_back(item.key);
    }
    return keys;
  }

  Job job_ = JobOf();
  Contract contract_ = ContractOf(3, 3);
  std::string model_ = "hash";
  std::vector<InputHeader> inputs_ = {InputOf("/in/a.png", HeaderOf("png", {1, 1000, 1000}, 3))};
};

TEST_F(KeysTest, EveryChangeThatMayChangeBytesChangesTheKey) {
  job_.tiling.tile = Voxels({64});
  job_.tiling.overlap = Voxels({16});
  std::set<std::string> seen = {Key()};
  const auto differs = [&](const char* what) { EXPECT_TRUE(seen.insert(Key()).second) << what; };
  job_.tiling.overlap = Voxels({24});
  differs("overlap");
  job_.tiling.tile = Voxels({72});
  differs("tile");
  job_.tiling.trim = Voxels({2});
  differs("trim");
  job_.tiling.window = WindowKind::kLinear;
  differs("window");
  job_.tiling.pad = PadMode::kZero;
  differs("pad");
  model_ = "other";
  differs("model");
  contract_.range = std::array<double, 2>{0, 255};
  differs("range");
  contract_.order = "bgr";
  differs("order");
  contract_.scale = std::vector<Rational>{Rational::Of(2, 1)};
  differs("scale");
  contract_.mean = std::vector<double>{0.5};
  differs("mean");
  job_.outputs[0].dtype = DType::kU16;
  differs("dtype");
  job_.outputs[0].post = {{PostOp::Kind::kClamp, {}}};
  differs("post");
  job_.execution.unit_memory = 1 << 20;
  differs("unit memory, where it changes the units");
  inputs_[0].identity.mtime_ns = 77;
  differs("identity");
  inputs_[0].path = "/in/b.png";
  differs("input");
}

TEST_F(KeysTest, WhatDecidesNoBytesIsNotInTheKey) {
  const std::string key = Key();
  job_.outputs[0].existing = Existing::kReplace;
  job_.execution.workers = 7;
  job_.execution.work = "/w";
  job_.name = "other";
  inputs_[0].stamp.mtime_ns = 99;  // the identity stands
  EXPECT_EQ(Key(), key);
}

TEST_F(KeysTest, SmallPicturesKeepTheirKeysWhenTheJobGrows) {
  inputs_ = {InputOf("/in/a.png", HeaderOf("png", {1, 90, 90}, 3))};
  const std::string key = Key();
  for (int k = 0; k < 50; ++k) {
    inputs_.push_back(
        InputOf("/in/b" + std::to_string(k) + ".png", HeaderOf("png", {1, 4000, 4000}, 3)));
  }
  const std::vector<std::string> keys = Keys();
  EXPECT_EQ(keys[0], key);
  EXPECT_EQ(std::set<std::string>(keys.begin(), keys.end()).size(), keys.size());
}

}  // namespace
}  // namespace tilery
