#include "scheduler/item_rules.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/plan_inputs.h"

namespace tilery {
namespace {

constexpr Index kPicture{1, 20, 30};
constexpr Index kVolume{8, 20, 30};
using Ints = std::vector<int32_t>;

class ItemRulesTest : public testing::Test {
 protected:
  ItemRules Decide(const Header& header, const std::string& format) {
    return DecideItem(job_, contract_, tiling_, header.dims, header, format);
  }
  PostOp Step(PostOp::Kind kind, std::vector<double> values = {}) {
    return {kind, std::move(values)};
  }

  Job job_ = JobOf();
  Contract contract_ = ContractOf(3, 3);
  Tiling tiling_;
};

TEST_F(ItemRulesTest, ColoursGoStraightThroughAPictureModel) {
  const ItemRules rules = Decide(HeaderOf("png", kPicture, 3, DType::kU16), "tiff");
  ASSERT_EQ(rules.refused, "");
  const Transfer& t = rules.params.transfer;
  ASSERT_EQ(t.passes.size(), 1u);
  EXPECT_EQ(t.passes[0].in, (Ints{0, 1, 2}));
  EXPECT_EQ(t.passes[0].out, (Ints{0, 1, 2}));
  EXPECT_EQ(t.accumulators, 3);
  EXPECT_EQ(t.out_channels, 3);
  EXPECT_EQ(t.in_dtype, DType::kU16);
  EXPECT_EQ(t.raw_hi, 65535);
  EXPECT_EQ(t.out_dtype, DType::kU16);
  EXPECT_EQ(rules.params.output.format, "tiff");
}

TEST_F(ItemRulesTest, AModelOfBgrGetsAndGivesTurnedColours) {
  contract_.order = "bgr";
  const Transfer t = Decide(HeaderOf("png", kPicture, 3), "png").params.transfer;
  EXPECT_EQ(t.passes[0].in, (Ints{2, 1, 0}));
  EXPECT_EQ(t.passes[0].out, (Ints{2, 1, 0}));
}

TEST_F(ItemRulesTest, GrayIsReplicatedIntoAColourModelAndComesBackAsTheMean) {
  const ItemRules rules = Decide(HeaderOf("png", kPicture, 1, DType::kU16), "png");
  ASSERT_EQ(rules.refused, "");
  const Transfer& t = rules.params.transfer;
  EXPECT_EQ(t.passes[0].in, (Ints{0, 0, 0}));
  EXPECT_EQ(t.passes[0].reduce, Pass::Reduce::kMean);
  EXPECT_EQ(t.out_channels, 1);
  EXPECT_EQ(rules.params.output.channels, 1);
}

TEST_F(ItemRulesTest, ColoursIntoAGrayModelAreRefusedWithBothCounts) {
  contract_ = ContractOf(1, 1);
  ExpectWords(Decide(HeaderOf("png", kPicture, 3), "png").refused,
              {"3 channel", "takes 1", "gray"});
  contract_ = ContractOf(4, 4);
  ExpectWords(Decide(HeaderOf("npy", kVolume, 2), "npy").refused, {"2 channel", "takes 4"});
}

TEST_F(ItemRulesTest, AlphaRunsThroughAPictureModelAsAGrayPicture) {
  const ItemRules rules =
      Decide(HeaderOf("png", kPicture, 4, DType::kU8, AlphaKind::kStraight), "png");
  ASSERT_EQ(rules.refused, "");
  const Transfer& t = rules.params.transfer;
  ASSERT_EQ(t.passes.size(), 2u);
  EXPECT_TRUE(t.passes[1].is_alpha);
  EXPECT_EQ(t.passes[1].in, (Ints{3, 3, 3}));
  EXPECT_EQ(t.passes[1].out_begin, 3);
  EXPECT_EQ(t.passes[1].reduce, Pass::Reduce::kMean);
  EXPECT_EQ(ModelPasses(t), 2);
  EXPECT_EQ(t.out_channels, 4);
  EXPECT_EQ(rules.params.output.alpha, AlphaKind::kStraight);
}

TEST_F(ItemRulesTest, GrayWithAlphaHasTwoGrayPasses) {
  const ItemRules rules =
      Decide(HeaderOf("png", kPicture, 2, DType::kU16, AlphaKind::kStraight), "png");
  ASSERT_EQ(rules.refused, "");
  EXPECT_EQ(rules.params.transfer.accumulators, 2);
  EXPECT_EQ(rules.params.output.channels, 2);
}

TEST_F(ItemRulesTest, AlphaCanBeResizedCopiedOrDropped) {
  const Header header = HeaderOf("png", kPicture, 4, DType::kU8, AlphaKind::kStraight);
  job_.input.alpha = AlphaMode::kResize;
  EXPECT_EQ(Decide(header, "png").params.transfer.passes[1].op, Pass::Op::kResize);
  EXPECT_EQ(ModelPasses(Decide(header, "png").params.transfer), 1);
  job_.input.alpha = AlphaMode::kCopy;
  EXPECT_EQ(Decide(header, "png").params.transfer.passes[1].op, Pass::Op::kCopy);
  tiling_.scale[2] = Rational::Of(2, 1);
  ExpectWords(Decide(header, "png").refused, {"alpha", "copy", "resize"});
  job_.input.alpha = AlphaMode::kDrop;
  const ItemRules dropped = Decide(header, "png");
  EXPECT_EQ(dropped.params.output.channels, 3);
  EXPECT_EQ(dropped.params.output.alpha, AlphaKind::kNone);
}

TEST_F(ItemRulesTest, LabelsDropAlphaAndTakeTheSmallestType) {
  contract_ = ContractOf(3, 300);
  job_.outputs[0].post = {Step(PostOp::Kind::kArgmax)};
  const ItemRules rules =
      Decide(HeaderOf("png", kPicture, 4, DType::kU8, AlphaKind::kStraight), "png");
  ASSERT_EQ(rules.refused, "");
  EXPECT_TRUE(rules.params.transfer.labels);
  EXPECT_EQ(rules.params.transfer.out_channels, 1);
  EXPECT_EQ(rules.params.transfer.accumulators, 300);
  EXPECT_EQ(rules.params.output.dtype, DType::kU16);
  EXPECT_EQ(rules.params.output.alpha, AlphaKind::kNone);
}

TEST_F(ItemRulesTest, ThresholdAndLabelsGiveTheirOwnValues) {
  contract_ = ContractOf(1, 1);
  job_.outputs[0].post = {Step(PostOp::Kind::kSigmoid), Step(PostOp::Kind::kThreshold, {0.5}),
                          Step(PostOp::Kind::kLabels, {0, 1000})};
  EXPECT_EQ(Decide(HeaderOf("npy", kVolume, 1), "npy").params.output.dtype, DType::kU16);
  job_.outputs[0].dtype = DType::kU8;
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Decide(HeaderOf("npy", kVolume, 1), "npy"); }),
              {"output.dtype", "u8", "1000", "u16"});
}

TEST_F(ItemRulesTest, StepsThatDoNotFitTheModelAreMistakesOfTheJob) {
  contract_ = ContractOf(1, 1);
  job_.outputs[0].post = {Step(PostOp::Kind::kArgmax)};
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Decide(HeaderOf("npy", kVolume, 1), "npy"); }),
              {"argmax", "1 channel", "threshold"});
  contract_ = ContractOf(1, 4);
  job_.outputs[0].post.push_back(Step(PostOp::Kind::kLabels, {1, 2}));
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Decide(HeaderOf("npy", kVolume, 1), "npy"); }),
              {"labels", "2 values", "4"});
}

TEST_F(ItemRulesTest, ProbabilitiesAreFloatsWhereTheFormatHoldsThem) {
  contract_ = ContractOf(1, 1);
  job_.outputs[0].post = {Step(PostOp::Kind::kSigmoid)};
  EXPECT_EQ(Decide(HeaderOf("png", kPicture, 1), "tiff").params.output.dtype, DType::kF32);
  EXPECT_EQ(Decide(HeaderOf("png", kPicture, 1, DType::kU16), "png").params.output.dtype,
            DType::kU16);
}

TEST_F(ItemRulesTest, FloatsGoInAsTheyAreUnlessNormalized) {
  Transfer t = Decide(HeaderOf("tiff", kPicture, 3, DType::kF32), "tiff").params.transfer;
  EXPECT_EQ(t.raw_lo, t.range_lo);
  EXPECT_EQ(t.raw_hi, t.range_hi);
  job_.input.normalize = std::array<double, 2>{-1000, 3000};
  t = Decide(HeaderOf("tiff", kPicture, 3, DType::kF32), "tiff").params.transfer;
  EXPECT_EQ(t.raw_lo, -1000);
  EXPECT_EQ(t.raw_hi, 3000);
}

TEST_F(ItemRulesTest, MeanAndStdAreOneOrOnePerChannel) {
  contract_.mean = std::vector<double>{0.5};
  contract_.std = std::vector<double>{1, 2, 3};
  const Transfer t = Decide(HeaderOf("png", kPicture, 3), "png").params.transfer;
  EXPECT_EQ(t.mean, (std::vector<double>{0.5, 0.5, 0.5}));
  EXPECT_EQ(t.std, (std::vector<double>{1, 2, 3}));
  contract_.mean = std::vector<double>{1, 2};
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Decide(HeaderOf("png", kPicture, 3), "png"); }),
              {"model.mean", "2 values", "3 channels"});
}

TEST_F(ItemRulesTest, ClampGetsTheModelsRange) {
  contract_.range = std::array<double, 2>{-1, 1};
  job_.outputs[0].post = {Step(PostOp::Kind::kClamp)};
  EXPECT_EQ(Decide(HeaderOf("png", kPicture, 3), "png").params.transfer.post[0].values,
            (std::vector<double>{-1, 1}));
}

TEST_F(ItemRulesTest, WhatTheFormatCannotHoldIsRefusedUnlessLossesAreAllowed) {
  const Header floats = HeaderOf("tiff", kPicture, 3, DType::kF32);
  const Header alpha = HeaderOf("png", kPicture, 4, DType::kU8, AlphaKind::kStraight);
  ExpectWords(Decide(floats, "png").refused, {"f32", "output.losses: allow"});
  ExpectWords(Decide(alpha, "jpeg").refused, {"alpha", "output.losses: allow"});
  job_.outputs[0].allow_losses = true;
  EXPECT_EQ(Decide(floats, "png").params.output.dtype, DType::kU16);
  const ItemRules flat = Decide(alpha, "jpeg");
  EXPECT_EQ(flat.refused, "");
  EXPECT_EQ(flat.params.output.channels, 3);
  EXPECT_EQ(flat.params.output.alpha, AlphaKind::kNone);
}

TEST_F(ItemRulesTest, FourChannelsIntoAModelOfFourAreData) {
  contract_ = ContractOf(4, 4);
  const ItemRules rules =
      Decide(HeaderOf("png", kPicture, 4, DType::kU8, AlphaKind::kStraight), "png");
  ASSERT_EQ(rules.refused, "");
  EXPECT_EQ(rules.params.transfer.passes.size(), 1u);
  EXPECT_EQ(rules.params.transfer.passes[0].in, (Ints{0, 1, 2, 3}));
  EXPECT_EQ(rules.params.output.alpha, AlphaKind::kStraight);
}

}  // namespace
}  // namespace tilery
