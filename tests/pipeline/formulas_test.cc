#include "pipeline/formulas.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <limits>
#include <random>

namespace tilery {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Formulas, FloatsBecomeIntegersByClampingAndRoundingHalfToEven) {
  const float values[] = {1.02f, -0.01f, static_cast<float>(127.6 / 255), 0.0f, 1.0f};
  const double u8[] = {255, 0, 128, 0, 255}, u16[] = {65535, 0, 32793, 0, 65535};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Quantise(values[i], {0, 1, 255, 0, true}), u8[i]) << values[i];
    EXPECT_EQ(Quantise(values[i], {0, 1, 65535, 0, true}), u16[i]) << values[i];
  }
  EXPECT_EQ(Quantise(0.5f, {0, 1, 255, 0, true}), 128) << "127.5 goes to the even neighbour";
  EXPECT_EQ(Quantise(126.5f, {0, 255, 255, 0, true}), 126);
  EXPECT_EQ(Quantise(kNan, {0, 1, 32767, -32768, true}), 0);
  EXPECT_EQ(Quantise(kInfinity, {0, 1, 255, 0, true}), 255);
  EXPECT_EQ(Quantise(-kInfinity, {0, 1, 32767, -32768, true}), -32768);
  EXPECT_EQ(Quantise(7.0f, {0, 1, 255, 0, false}), 7) << "labels are not scaled";
}

TEST(Formulas, RoundingHasNoBias) {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> uniform(0, 1);
  double error = 0;
  for (int i = 0; i < 100000; ++i) {
    const float v = uniform(random);
    error += Quantise(v, {0, 1, 255, 0, true}) - v * 255.0;
  }
  EXPECT_LT(std::abs(error / 100000), 0.005);
}

TEST(Formulas, RoundHalfEvenEqualsTheStandardLibrary) {
  for (double v :
       {0.5, 1.5, 2.5, -0.5, -1.5, 0.49999999999999994, 4294967294.5, -2147483647.5, 1e15}) {
    EXPECT_EQ(RoundHalfEven(v), std::nearbyint(v)) << v;
  }
}

TEST(Formulas, EveryStoredIntegerSurvivesTheWayThroughTheModelsRange) {
  const NormaliseTerms in{0, 65535, 1, 0, 0, 1, false, false};
  const QuantiseTerms out{0, 1, 65535, 0, true};
  for (int v = 0; v <= 65535; ++v) ASSERT_EQ(Quantise(Normalise(v, in), out), v);
  const NormaliseTerms signed_in{-32768, 65535, 2, -1, 0, 1, false, false};
  EXPECT_EQ(Normalise(-32768, signed_in), -1.0f);
  EXPECT_EQ(Normalise(32767, signed_in), 1.0f);
}

TEST(Formulas, NormaliseAppliesRangeThenMeanAndStd) {
  EXPECT_EQ(Normalise(51, {0, 255, 1, 0, 0.485, 0.229, false, true}),
            static_cast<float>((51.0 / 255 - 0.485) / 0.229));
  EXPECT_EQ(Normalise(1e-30, {-1000, 2000, 2000, -1000, 0, 1, true, false}), 1e-30f)
      << "floats go in as they are";
}

TEST(Formulas, ExpIsRightToHalfAUnitInTheLastPlace) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(-100, 88);
  double worst = 0;
  for (int i = 0; i < 300000; ++i) {
    const float x = uniform(random);
    const double want = std::exp(static_cast<double>(x));
    const float near = static_cast<float>(want);
    const double unit = std::nextafter(near, kInfinity) - near;
    worst = std::max(worst, std::abs(Exp(x) - want) / unit);
  }
  EXPECT_LT(worst, 0.51);
  EXPECT_EQ(Exp(0), 1.0f);
  EXPECT_EQ(Exp(-kInfinity), 0.0f);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(-500), 0.0f);
  EXPECT_EQ(Exp(500), kInfinity);
  EXPECT_TRUE(std::isnan(Exp(kNan)));
}

TEST(Formulas, SigmoidIsWithinItsBoundsAndSymmetric) {
  for (float x : {-200.0f, -20.0f, -1.0f, 0.0f, 0.3f, 5.0f, 200.0f}) {
    EXPECT_NEAR(Sigmoid(x), 1 / (1 + std::exp(-static_cast<double>(x))), 1e-7) << x;
    EXPECT_NEAR(Sigmoid(x) + Sigmoid(-x), 1.0, 1e-7) << x;
  }
  EXPECT_TRUE(std::isnan(Sigmoid(kNan)));
}

TEST(Formulas, SoftmaxSumsToOneForAnyLogits) {
  float v[] = {1000, 999, -1000, 1000};
  Softmax(v, 4, 1);
  EXPECT_NEAR(v[0] + v[1] + v[2] + v[3], 1.0, 1e-6);
  EXPECT_EQ(v[0], v[3]);
  EXPECT_EQ(v[2], 0.0f);
  EXPECT_NEAR(v[1] / v[0], std::exp(-1.0), 1e-6);
}

TEST(Formulas, ArgmaxTakesTheLowestIndexOnATie) {
  const float v[] = {0, 2, 1, 2};
  EXPECT_EQ(Argmax(v, 4, 1), 1);
  const float strided[] = {5, 0, 5, 9, 4, 9};
  EXPECT_EQ(Argmax(strided, 3, 2), 0);
  const float nothing[] = {kNan, 1, 2};
  EXPECT_EQ(Argmax(nothing, 3, 1), 0);
}

TEST(Formulas, FinitenessIsReadFromTheExponent) {
  for (float v : {0.0f, -0.0f, 1e-45f, std::numeric_limits<float>::max(), -1.0f}) {
    EXPECT_TRUE(IsFinite(v)) << v;
  }
  for (float v : {kNan, -kNan, kInfinity, -kInfinity}) EXPECT_FALSE(IsFinite(v)) << v;
}

TEST(Formulas, ResizeTapsLieHalfAVoxelInwards) {
  // Scale 2: output 0 lies at -0.25, 1 at 0.25, 2 at 0.75.
  EXPECT_EQ(ResizeTap(0, 2, 1).below, -1);
  EXPECT_EQ(ResizeTap(0, 2, 1).share, 0.75);
  EXPECT_EQ(ResizeTap(1, 2, 1).below, 0);
  EXPECT_EQ(ResizeTap(1, 2, 1).share, 0.25);
  EXPECT_EQ(ResizeTap(2, 2, 1).below, 0);
  EXPECT_EQ(ResizeTap(2, 2, 1).share, 0.75);
  // Scale 1/8: output 1 lies at 11.5.
  EXPECT_EQ(ResizeTap(1, 1, 8).below, 11);
  EXPECT_EQ(ResizeTap(1, 1, 8).share, 0.5);
}

TEST(Formulas, TheMeanOfChannelsIsRoundedOnce) {
  const float v[] = {0.1f, 0.2f, 0.4f};
  EXPECT_EQ(MeanOf(v, 3, 1),
            static_cast<float>((static_cast<double>(v[0]) + v[1] + static_cast<double>(v[2])) / 3));
}

}  // namespace
}  // namespace tilery
