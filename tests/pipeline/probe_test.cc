#include <gtest/gtest.h>

#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

using namespace tilery::testing;

ModelProbe Probe(const std::string& name, int32_t channels = 0, Index tile = {1, 64, 64},
                 int dims = 2) {
  return ProbeModel(ModelPath(name), dims, channels, tile, /*batches=*/true);
}

TEST(Probe, FindsChannelsAndScaleByRunningTheModel) {
  ModelProbe probe = Probe("nearest4");
  EXPECT_TRUE(probe.runs) << probe.error;
  EXPECT_EQ(probe.channels_in, 3);
  EXPECT_EQ(probe.channels_out, 3);
  EXPECT_EQ(probe.scale[0], (Rational{1, 1}));
  EXPECT_EQ(probe.scale[1], (Rational{4, 1}));
  EXPECT_EQ(probe.scale[2], (Rational{4, 1}));

  probe = Probe("mean8", 1);
  EXPECT_EQ(probe.channels_in, 1);
  EXPECT_EQ(probe.scale[2], (Rational{1, 8}));

  probe = Probe("gray");
  EXPECT_EQ(probe.channels_in, 3);
  EXPECT_EQ(probe.channels_out, 1);
}

TEST(Probe, TriesOtherChannelCountsWhereThreeDoNotRun) {
  const ModelProbe probe = Probe("unet3d", 0, {16, 16, 16}, 3);
  EXPECT_TRUE(probe.runs) << probe.error;
  EXPECT_EQ(probe.channels_in, 1);
  EXPECT_EQ(probe.channels_out, 1);
  EXPECT_EQ(probe.scale, Scale{});
}

TEST(Probe, FindsModelsWhoseAnswerDependsOnTheBatch) {
  for (const char* name : {"conv", "unet2d", "identity", "counts", "in_place", "train"}) {
    const ModelProbe probe = Probe(name);
    EXPECT_TRUE(probe.runs) << name << ": " << probe.error;
    EXPECT_TRUE(probe.apart) << name;
  }
  for (const char* name : {"other_slot", "relative"}) {
    const ModelProbe probe = Probe(name);
    EXPECT_TRUE(probe.runs) << name << ": " << probe.error;
    EXPECT_FALSE(probe.apart) << name;
  }
}

TEST(Probe, SaysWhyAModelDoesNotRun) {
  const ModelProbe probe = Probe("needs8", 0, {1, 60, 64});
  EXPECT_FALSE(probe.runs);
  EXPECT_EQ(probe.channels_in, 0);
  EXPECT_NE(probe.error.find("no multiple of 8"), std::string::npos) << probe.error;
  EXPECT_NE(probe.error.find("60x64"), std::string::npos) << probe.error;
}

TEST(Probe, RefusesAModelThatLosesItsBorder) {
  const ModelProbe probe = Probe("valid");
  EXPECT_FALSE(probe.runs);
  EXPECT_NE(probe.error.find("not in proportion"), std::string::npos) << probe.error;
}

TEST(Probe, SaysWhichFileCannotBeLoaded) {
  const ModelProbe probe = ProbeModel("/nowhere/none.pt", 2, 0, {1, 64, 64});
  EXPECT_FALSE(probe.runs);
  EXPECT_NE(probe.error.find("/nowhere/none.pt"), std::string::npos) << probe.error;
}

TEST(Probe, DescribesTheMachine) {
  const Numerics numerics = DescribeDevice("cpu");
  EXPECT_EQ(numerics.device_kind.rfind("cpu/", 0), 0u) << numerics.device_kind;
  EXPECT_GT(numerics.device_kind.find('/', 4), 4u);
  EXPECT_NE(numerics.device_kind.find('/', 4), std::string::npos) << numerics.device_kind;
  EXPECT_EQ(numerics.torch.find("2."), 0u) << numerics.torch;
  EXPECT_EQ(numerics.precision, "fp32");
}

}  // namespace
}  // namespace tilery
