#include "scheduler/planner.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/plan_inputs.h"

namespace tilery {
namespace {

class PlannerTest : public testing::Test {
 protected:
  Resolved Make(const std::vector<InputHeader>& inputs, std::vector<std::string> outputs = {}) {
    for (size_t k = outputs.size(); k < inputs.size(); ++k) {
      outputs.push_back("/o/" + std::to_string(k) + ".png");
    }
    return MakePlan(job_, contract_, "hash", inputs, outputs);
  }
  InputHeader Png(const std::string& path, int64_t height = 100, int64_t width = 100) {
    return InputOf(path, HeaderOf("png", {1, height, width}, 3));
  }

  Job job_ = JobOf();
  Contract contract_ = ContractOf(3, 3);
};

TEST_F(PlannerTest, AVolumesPlanTellsWhatItCosts) {
  contract_ = ContractOf(1, 1);
  job_.tiling.tile = Voxels({128});
  job_.tiling.overlap = Voxels({32});
  const Resolved plan =
      Make({InputOf("/v.npy", HeaderOf("npy", {512, 2048, 2048}, 1))}, {"/o.npy"});
  EXPECT_EQ(plan.dims, 3);
  EXPECT_EQ(plan.plan.tiles, 5 * 21 * 21);
  EXPECT_EQ(plan.tile, (std::vector<int64_t>{128, 128, 128}));
  EXPECT_NEAR(plan.redundancy, 5.0 * 21 * 21 * 128 * 128 * 128 / (512.0 * 2048 * 2048), 1e-9);
  EXPECT_EQ(plan.output_bytes, int64_t{512} * 2048 * 2048);
  EXPECT_GE(plan.plan.units, 64);
  EXPECT_LT(plan.host_bytes, int64_t{8'000'000'000});
  EXPECT_GT(plan.seam_bytes, 0);
  EXPECT_GT(plan.scratch_bytes, plan.output_bytes);
}

// What is decoded and put together beside the inference of small units is most of what a worker
// has.
TEST_F(PlannerTest, HostMemoryCountsWhatStagesAndAssembles) {
  job_.execution.unit_memory = 1 << 20;
  const int64_t small = Make({Png("/a.png", 100, 100)}).host_bytes;
  const Resolved large = Make({Png("/a.png", 2000, 2000)});
  ASSERT_GT(large.plan.items[0].infer_units, 1);
  ASSERT_TRUE(large.plan.items[0].staged);
  EXPECT_GT(large.host_bytes - small,
            (4 * 16 + 2 * 2 * 64) * int64_t{1 << 20} + 2 * 2 * kAssembleBand);
}

TEST_F(PlannerTest, TheLastTileIsMovedBackAndNeverASliver) {
  job_.tiling.tile = Voxels({64});
  job_.tiling.overlap = Voxels({16});
  const Resolved plan = Make({Png("/a.png", 129, 64)});
  EXPECT_EQ(plan.plan.Geometry(0)->grid().starts[1], (std::vector<int64_t>{0, 48, 65}));
  EXPECT_EQ(plan.plan.tiles, 3);
}

TEST_F(PlannerTest, ThinVolumesHaveOneTileAlongTheThinAxis) {
  contract_ = ContractOf(1, 1);
  job_.tiling.tile = Voxels({4, 4, 1});
  job_.tiling.overlap = {Extent::Kind::kPercent, {25}};
  const Resolved plan = Make({InputOf("/v.npy", HeaderOf("npy", {12, 10, 6}, 1))}, {"/o.npy"});
  EXPECT_EQ(plan.plan.Geometry(0)->grid().counts(), (Index{4, 3, 6}));
}

TEST_F(PlannerTest, AModelOfTwoDimensionsTakesAVolumeSliceBySlice) {
  contract_ = ContractOf(1, 1);
  contract_.dims = 2;
  const Resolved plan = Make({InputOf("/v.npy", HeaderOf("npy", {7, 100, 100}, 1))}, {"/o.npy"});
  EXPECT_EQ(plan.tile, (std::vector<int64_t>{256, 256}));
  EXPECT_EQ(plan.plan.params[0].tiling.tile[0], 1);
  EXPECT_EQ(plan.plan.tiles, 7);
}

TEST_F(PlannerTest, TwoInputsForOneOutputAreRefusedWithAllThreeNames) {
  ExpectWords(ErrorOf(Fault::kUsage,
                      [&] {
                        Make({Png("/d/a.png"), Png("/d/a.tif")}, {"/o/a.png", "/o/a.png"});
                      }),
              {"/d/a.png", "/d/a.tif", "/o/a.png"});
}

TEST_F(PlannerTest, NamesThatDifferInCaseOnlyAreDifferentOutputs) {
  EXPECT_EQ(Make({Png("/d/a.png"), Png("/d/A.png")}, {"/o/a.png", "/o/A.png"}).plan.units, 2);
}

TEST_F(PlannerTest, AnOutputThatIsAnInputIsRefused) {
  ExpectWords(ErrorOf(Fault::kUsage,
                      [&] {
                        Make({Png("/d/a.png"), Png("/d/b.png")}, {"/d/b.png", "/o/b.png"});
                      }),
              {"/d/b.png", "/d/a.png", "input"});
}

TEST_F(PlannerTest, ItemsThatCannotBeReadAreRefusedAlone) {
  InputHeader bad = Png("/bad.png");
  bad.error = "/bad.png: cut off";
  const Resolved plan = Make({Png("/a.png"), bad, Png("/c.png")});
  EXPECT_EQ(plan.plan.items[1].refused, "/bad.png: cut off");
  EXPECT_EQ(plan.plan.items[1].units(), 0);
  EXPECT_EQ(plan.plan.items[1].tiles, 0);
  EXPECT_EQ(plan.plan.units, 2);
  EXPECT_EQ(plan.plan.Find(1).item, 2);
}

TEST_F(PlannerTest, APlanOfRefusedItemsIsAPlan) {
  InputHeader bad = Png("/bad.png");
  bad.error = "/bad.png: cut off";
  const Resolved plan = Make({bad});
  EXPECT_EQ(plan.plan.units, 0);
  EXPECT_EQ(plan.redundancy, 1);
}

TEST_F(PlannerTest, WhatTheOutputWouldLoseIsRefusedUnlessAllowed) {
  InputHeader input = Png("/a.tif");
  input.losses = {"ICC profile", "resolution"};
  ExpectWords(Make({input}).plan.items[0].refused,
              {"/a.tif", "ICC profile, resolution", "output.losses: allow"});
  job_.outputs[0].allow_losses = true;
  EXPECT_EQ(Make({input}).plan.items[0].refused, "");
}

TEST_F(PlannerTest, AResultTooLargeForItsFormatIsRefusedBeforeAnyWork) {
  contract_ = ContractOf(3, 3, Rational::Of(4, 1));
  const Resolved plan = Make({Png("/a.png", 20000, 100)}, {"/o/a.jpg"});
  ExpectWords(plan.plan.items[0].refused, {"/a.png", "80000"});
}

TEST_F(PlannerTest, AJobHoldsPicturesOrVolumesUnlessDimsAreSaid) {
  contract_ = ContractOf(1, 1);
  const std::vector<InputHeader> inputs = {InputOf("/a.tif", HeaderOf("tiff", {1, 50, 50}, 1)),
                                           InputOf("/v.npy", HeaderOf("npy", {5, 50, 50}, 1))};
  const std::vector<std::string> outputs = {"/o/a.tif", "/o/v.npy"};
  ExpectWords(Make(inputs, outputs).plan.items[1].refused, {"/v.npy", "volume", "model.dims"});
  contract_.dims = 2;
  EXPECT_EQ(Make(inputs, outputs).plan.items[1].refused, "");
}

TEST_F(PlannerTest, ChannelsThatNobodySaysAreAssumedFromTheInputs) {
  contract_.channels_in.reset();
  contract_.channels_out.reset();
  const Resolved plan = Make({Png("/a.png")});
  EXPECT_EQ(plan.contract.channels_in, 3);
  EXPECT_EQ(plan.contract.source.at("channels.in"), "assumed");
  ASSERT_EQ(plan.warnings.size(), 1u);
  ExpectWords(plan.warnings[0], {"assumed", "channels.in"});
}

TEST_F(PlannerTest, ATileBeyondTheMemoryOfAUnitIsRefusedWithBothNumbers) {
  job_.tiling.tile = Voxels({1024});
  job_.execution.unit_memory = 1 << 20;
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Make({Png("/a.png")}); }),
              {"tiling.tile", "12582912", "1048576", "unit_memory"});
  job_.tiling.tile = Voxels({1 << 20});
  job_.execution.unit_memory = int64_t{1} << 30;
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Make({Png("/a.png")}); }),
              {"tiling.tile", "13194139533312", "1073741824", "unit_memory"});
}

TEST_F(PlannerTest, AnItemBeyondTheScratchLimitIsRefusedWithBothNumbers) {
  job_.tiling.tile = Voxels({64});
  job_.execution.scratch_limit = 1 << 20;
  const Resolved plan = Make({Png("/large.png", 4000, 4000), Png("/small.png")});
  ExpectWords(plan.plan.items[0].refused, {"/large.png", "scratch", "1048576"});
  EXPECT_EQ(plan.plan.items[0].tiles, 0);
  EXPECT_EQ(plan.plan.items[1].refused, "");
  EXPECT_EQ(plan.plan.units, 1);
}

TEST_F(PlannerTest, ItemsThatAgreeShareTheirParameters) {
  std::vector<InputHeader> inputs;
  for (int k = 0; k < 20; ++k) inputs.push_back(Png("/" + std::to_string(k) + ".png", 50 + k, 60));
  inputs.push_back(InputOf("/gray.png", HeaderOf("png", {1, 50, 50}, 1)));
  EXPECT_EQ(Make(inputs).plan.params.size(), 2u);
}

TEST_F(PlannerTest, TheSameJobGivesTheSamePlan) {
  const std::vector<InputHeader> inputs = {Png("/a.png", 3000, 2000), Png("/b.png")};
  const Resolved a = Make(inputs), b = Make(inputs);
  EXPECT_EQ(a.plan.units, b.plan.units);
  for (size_t k = 0; k < inputs.size(); ++k) EXPECT_EQ(a.plan.items[k].key, b.plan.items[k].key);
}

}  // namespace
}  // namespace tilery
