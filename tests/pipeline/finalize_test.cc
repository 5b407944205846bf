#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "io/error.h"
#include "pipeline/engine.h"
#include "pipeline/ops.h"

namespace tilery {
namespace {

Transfer Channels(int32_t count, DType out) {
  Transfer t;
  t.model_out = t.accumulators = t.out_channels = count;
  t.out_dtype = out;
  Pass pass{.in = {}, .out = {}, .out_count = count};
  for (int32_t c = 0; c < count; ++c) pass.out.push_back(c);
  t.passes = {pass};
  return t;
}

// Finishes interleaved sums of one row.
template <typename T>
std::vector<T> Finish(const Transfer& t, const std::vector<float>& sums) {
  const auto voxels = static_cast<int64_t>(sums.size()) / t.accumulators;
  std::vector<T> out(voxels * t.out_channels);
  FinalizeSums(sums.data(), {1, 1, voxels}, t,
               DenseView(reinterpret_cast<std::byte*>(out.data()), t.out_dtype, t.out_channels,
                         {1, 1, voxels}, Layout::kInterleaved));
  return out;
}

std::vector<float> Logits(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 4);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

TEST(Finalize, IntegersAreClampedAndRoundedHalfToEven) {
  const std::vector<float> sums{1.02f, -0.01f, static_cast<float>(127.6 / 255), 0.0f, 1.0f};
  EXPECT_EQ(Finish<uint8_t>(Channels(1, DType::kU8), sums),
            (std::vector<uint8_t>{255, 0, 128, 0, 255}));
  EXPECT_EQ(Finish<uint16_t>(Channels(1, DType::kU16), sums),
            (std::vector<uint16_t>{65535, 0, 32793, 0, 65535}));
  EXPECT_EQ(Finish<int16_t>(Channels(1, DType::kI16), {-0.5f, 2, -7}),
            (std::vector<int16_t>{-16384, 32767, -32768}));
  EXPECT_EQ(Finish<uint32_t>(Channels(1, DType::kU32), {1, 2, -1}),
            (std::vector<uint32_t>{4294967295u, 4294967295u, 0}));
}

TEST(Finalize, FloatsComeOutUnchangedAlsoOutsideTheRange) {
  const std::vector<float> sums{1.02f, -7.5f, 1e30f, 0.1f};
  EXPECT_EQ(Finish<float>(Channels(1, DType::kF32), sums), sums);
  EXPECT_EQ(Finish<double>(Channels(1, DType::kF64), sums),
            std::vector<double>(sums.begin(), sums.end()));
  EXPECT_EQ(Finish<uint16_t>(Channels(1, DType::kF16), {1.0f, 65504.0f}),
            (std::vector<uint16_t>{0x3c00, 0x7bff}));
}

TEST(Finalize, AResultBeyondTheHalfRangeIsAnErrorAndNoSilentInfinity) {
  try {
    Finish<uint16_t>(Channels(1, DType::kF16), {1.0f, 70000.0f});
    FAIL() << "70000 went through";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::kModel);
    EXPECT_NE(std::string(e.what()).find("70000"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("65504"), std::string::npos) << e.what();
  }
}

TEST(Finalize, PostOperationsEqualTheScalarFormulasForAnyNumberOfVoxels) {
  for (int64_t voxels : {1, 511, 512, 1300}) {
    const auto logits = Logits(voxels * 3, voxels);
    Transfer t = Channels(3, DType::kF32);
    t.post = {{PostOp::Kind::kSoftmax, {}}};
    auto want = logits;
    for (int64_t v = 0; v < voxels; ++v) Softmax(want.data() + v * 3, 3, 1);
    EXPECT_EQ(Finish<float>(t, logits), want);

    t.post = {{PostOp::Kind::kScale, {2, -0.5}},
              {PostOp::Kind::kSigmoid, {}},
              {PostOp::Kind::kClamp, {0.25, 0.75}}};
    want = logits;
    for (float& v : want) v = Clamp(Sigmoid(ScaleBy(v, 2, -0.5)), 0.25f, 0.75f);
    EXPECT_EQ(Finish<float>(t, logits), want);

    t = Channels(3, DType::kU8);
    t.post = {{PostOp::Kind::kArgmax, {}}};
    t.out_channels = 1;
    t.labels = true;
    const auto labels = Finish<uint8_t>(t, logits);
    for (int64_t v = 0; v < voxels; ++v) ASSERT_EQ(labels[v], Argmax(logits.data() + v * 3, 3, 1));
  }
}

TEST(Finalize, ThresholdsAndLabelsGiveTheValuesNamed) {
  Transfer t = Channels(1, DType::kU8);
  t.post = {{PostOp::Kind::kThreshold, {0.5}}, {PostOp::Kind::kLabels, {0, 255}}};
  t.labels = true;
  EXPECT_EQ(Finish<uint8_t>(t, {0.2f, 0.5f, 0.50001f, 3}), (std::vector<uint8_t>{0, 0, 255, 255}));
  t = Channels(2, DType::kU16);
  t.post = {{PostOp::Kind::kArgmax, {}}, {PostOp::Kind::kLabels, {7, 4000}}};
  t.out_channels = 1;
  t.labels = true;
  EXPECT_EQ(Finish<uint16_t>(t, {1, 1, 1, 2}), (std::vector<uint16_t>{7, 4000}))
      << "the lowest index wins a tie; labels are never scaled";
}

TEST(Finalize, AlphaIsClampedToTheRangeAndLeftOutOfPost) {
  Transfer t = Channels(2, DType::kF32);
  t.passes[0].out = {0};
  t.passes[0].out_count = 1;
  t.passes.push_back({.in = {}, .out = {0}, .out_begin = 1, .is_alpha = true});
  t.post = {{PostOp::Kind::kScale, {10, 0}}};
  EXPECT_EQ(Finish<float>(t, {0.5f, 1.25f, 2, -3, 1, 0.5f}),
            (std::vector<float>{5, 1, 20, 0, 10, 0.5f}));
}

TEST(Finalize, NotANumberStaysInFloatsAndBecomesTheLowEndOfIntegers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Finish<float>(Channels(1, DType::kF32), {nan})[0]));
  EXPECT_EQ(Finish<uint8_t>(Channels(1, DType::kU8), {nan})[0], 0);
  EXPECT_EQ(Finish<int16_t>(Channels(1, DType::kI16), {nan})[0], 0);
  EXPECT_EQ(Finish<uint16_t>(Channels(1, DType::kF16), {nan})[0] & 0x7c00, 0x7c00);
}

TEST(Finalize, PlanarAndInterleavedSumsGiveTheSameBytesInAnyLayout) {
  const Index shape{2, 5, 700};
  const auto planar = Logits(3 * Product(shape), 4);
  std::vector<float> memory = planar, interleaved(planar.size());
  for (int64_t v = 0; v < Product(shape); ++v) {
    for (int64_t c = 0; c < 3; ++c) interleaved[v * 3 + c] = planar[c * Product(shape) + v];
  }
  Transfer t = Channels(3, DType::kU8);
  t.post = {{PostOp::Kind::kSigmoid, {}}};
  std::vector<std::byte> a(planar.size()), b(planar.size());
  Finalizer(t).FromSums({memory.data(), Box::Whole(shape), 3}, Box::Whole(shape),
                        DenseView(a.data(), DType::kU8, 3, shape, Layout::kInterleaved));
  FinalizeSums(interleaved.data(), shape, t,
               DenseView(b.data(), DType::kU8, 3, shape, Layout::kInterleaved));
  EXPECT_EQ(a, b);
  // Planar output holds the same samples, and a region is the crop of the whole.
  std::vector<std::byte> c(planar.size()), d(3 * 2 * 1 * 600);
  FinalizeSums(interleaved.data(), shape, t,
               DenseView(c.data(), DType::kU8, 3, shape, Layout::kPlanar));
  const Box region{{0, 3, 50}, {2, 4, 650}};
  Finalizer(t).FromSums({memory.data(), Box::Whole(shape), 3}, region,
                        DenseView(d.data(), DType::kU8, 3, region.shape(), Layout::kPlanar));
  for (int64_t k = 0; k < 3; ++k) {
    for (int64_t z = 0; z < 2; ++z) {
      for (int64_t x = 50; x < 650; ++x) {
        const std::byte want = a[((z * 5 + 3) * 700 + x) * 3 + k];
        ASSERT_EQ(c[k * 7000 + (z * 5 + 3) * 700 + x], want);
        ASSERT_EQ(d[(k * 2 + z) * 600 + x - 50], want);
      }
    }
  }
}

TEST(Finalize, OperationsThatContradictTheChannelsAreRefused) {
  Transfer t = Channels(3, DType::kU8);
  t.post = {{PostOp::Kind::kArgmax, {}}};
  EXPECT_THROW(Finalizer{t}, Error) << "argmax leaves one channel";
  t = Channels(3, DType::kU8);
  t.post = {{PostOp::Kind::kClamp, {1}}};
  EXPECT_THROW(Finalizer{t}, Error) << "clamp needs two values";
}

}  // namespace
}  // namespace tilery
