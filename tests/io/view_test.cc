#include "io/view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

// The obvious copy, sample by sample.
void SlowCopy(const ConstView& from, const View& to) {
  for (int64_t c = 0; c < from.channels; ++c)
    for (int64_t z = 0; z < from.shape[0]; ++z)
      for (int64_t y = 0; y < from.shape[1]; ++y)
        for (int64_t x = 0; x < from.shape[2]; ++x)
          std::memcpy(to.at(c, z, y, x), from.at(c, z, y, x), DTypeSize(from.dtype));
}

std::vector<std::byte> Noise(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(DenseView, InterleavedAndPlanarDifferOnlyInStrides) {
  std::vector<std::byte> memory(2 * 3 * 4 * 5 * 2);
  const View interleaved =
      DenseView(memory.data(), DType::kU16, 2, {3, 4, 5}, Layout::kInterleaved);
  EXPECT_EQ(interleaved.stride, (std::array<int64_t, 4>{2, 80, 20, 4}));
  const View planar = DenseView(memory.data(), DType::kU16, 2, {3, 4, 5}, Layout::kPlanar);
  EXPECT_EQ(planar.stride, (std::array<int64_t, 4>{120, 40, 10, 2}));
  EXPECT_EQ(planar.bytes(), 240);
  EXPECT_TRUE(IsDense(interleaved, Layout::kInterleaved));
  EXPECT_FALSE(IsDense(interleaved, Layout::kPlanar));
  EXPECT_TRUE(IsDense(planar, Layout::kPlanar));
}

TEST(DenseView, OneChannelIsDenseInBothLayoutsAndACropOfRowsIsNot) {
  std::vector<std::byte> memory(4 * 5 * 6);
  const View view = DenseView(memory.data(), DType::kU8, 1, {4, 5, 6}, Layout::kPlanar);
  EXPECT_TRUE(IsDense(view, Layout::kInterleaved));
  EXPECT_TRUE(IsDense(view.Crop({{1, 0, 0}, {3, 5, 6}}), Layout::kInterleaved)) << "whole planes";
  EXPECT_TRUE(IsDense(view.Crop({{1, 2, 0}, {2, 4, 6}}), Layout::kInterleaved)) << "whole rows";
  EXPECT_FALSE(IsDense(view.Crop({{1, 2, 0}, {3, 4, 6}}), Layout::kInterleaved));
  EXPECT_FALSE(IsDense(view.Crop({{0, 0, 0}, {4, 5, 5}}), Layout::kInterleaved));
}

TEST(CopyView, EqualsTheObviousCopyForAnyTypeLayoutAndCrop) {
  std::mt19937 random(7);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int round = 0; round < 500; ++round) {
    const auto type = static_cast<DType>(pick(0, 8));
    const int64_t channels = pick(1, 4);
    const Index shape = {pick(1, 4), pick(1, 6), pick(1, 9)};
    const Index margin = {pick(0, 2), pick(0, 2), pick(0, 2)};
    const Index outer = {shape[0] + margin[0], shape[1] + margin[1], shape[2] + margin[2]};
    const auto size = static_cast<size_t>(channels * Product(outer)) * DTypeSize(type);
    const std::vector<std::byte> source = Noise(size, static_cast<uint32_t>(round));
    std::vector<std::byte> fast(size), slow(size);
    const Box crop =
        Shift(Box::Whole(shape), {pick(0, margin[0]), pick(0, margin[1]), pick(0, margin[2])});
    const auto from_layout = static_cast<Layout>(pick(0, 1));
    const auto to_layout = static_cast<Layout>(pick(0, 1));
    const ConstView from = DenseView(source.data(), type, channels, outer, from_layout).Crop(crop);
    CopyView(from, DenseView(fast.data(), type, channels, outer, to_layout).Crop(crop));
    SlowCopy(from, DenseView(slow.data(), type, channels, outer, to_layout).Crop(crop));
    ASSERT_EQ(fast, slow) << "round " << round;
  }
}

TEST(CopyView, RepeatsSamplesOverStridesOfZero) {
  const uint16_t sample = 0xABCD;
  std::vector<uint16_t> out(3 * 4 * 5, 0);
  ConstView from{
      reinterpret_cast<const std::byte*>(&sample), DType::kU16, 3, {1, 4, 5}, {0, 0, 0, 0}};
  CopyView(from, DenseView(reinterpret_cast<std::byte*>(out.data()), DType::kU16, 3, {1, 4, 5},
                           Layout::kPlanar));
  EXPECT_EQ(out, std::vector<uint16_t>(60, 0xABCD));
}

TEST(CopyView, RepeatsARowOverAllPlanesAndRows) {
  std::vector<float> row(6);
  std::iota(row.begin(), row.end(), 1.0f);
  std::vector<float> out(2 * 3 * 6);
  const ConstView from{
      reinterpret_cast<const std::byte*>(row.data()), DType::kF32, 1, {2, 3, 6}, {0, 0, 0, 4}};
  CopyView(from, DenseView(reinterpret_cast<std::byte*>(out.data()), DType::kF32, 1, {2, 3, 6},
                           Layout::kPlanar));
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], row[i % 6]);
}

TEST(CopyView, FollowsNegativeStrides) {
  const std::vector<uint8_t> row = {1, 2, 3, 4, 5};
  std::vector<uint8_t> out(5);
  const ConstView from{
      reinterpret_cast<const std::byte*>(row.data() + 4), DType::kU8, 1, {1, 1, 5}, {0, 0, 0, -1}};
  CopyView(from, DenseView(reinterpret_cast<std::byte*>(out.data()), DType::kU8, 1, {1, 1, 5},
                           Layout::kPlanar));
  EXPECT_EQ(out, (std::vector<uint8_t>{5, 4, 3, 2, 1}));
}

TEST(CopyView, LeavesWhatLiesOutsideTheCropAlone) {
  const std::vector<uint8_t> ones(6, 1);
  std::vector<uint8_t> out(20, 9);
  CopyView(
      DenseView(reinterpret_cast<const std::byte*>(ones.data()), DType::kU8, 1, {1, 2, 3},
                Layout::kPlanar),
      DenseView(reinterpret_cast<std::byte*>(out.data()), DType::kU8, 1, {1, 4, 5}, Layout::kPlanar)
          .Crop({{0, 1, 1}, {1, 3, 4}}));
  EXPECT_EQ(out,
            (std::vector<uint8_t>{9, 9, 9, 9, 9, 9, 1, 1, 1, 9, 9, 1, 1, 1, 9, 9, 9, 9, 9, 9}));
}

TEST(CopyView, RefusesViewsOfUnlikeTypeChannelsOrShape) {
  std::vector<std::byte> memory(64);
  const View view = DenseView(memory.data(), DType::kU16, 2, {1, 2, 3}, Layout::kPlanar);
  const auto refused = [&](DType type, int64_t channels, const Index& shape) {
    return ErrorOf(Fault::kInternal, [&] {
      CopyView(DenseView(memory.data(), type, channels, shape, Layout::kPlanar), view);
    });
  };
  EXPECT_THAT(refused(DType::kI16, 2, {1, 2, 3}), ::testing::HasSubstr("i16"));
  refused(DType::kU16, 1, {1, 2, 3});
  refused(DType::kU16, 2, {1, 3, 2});
}

TEST(CopyView, CopiesNothingForEmptyViews) {
  CopyView(
      DenseView(static_cast<const std::byte*>(nullptr), DType::kF64, 1, {0, 4, 4}, Layout::kPlanar),
      DenseView(static_cast<std::byte*>(nullptr), DType::kF64, 1, {0, 4, 4}, Layout::kPlanar));
  std::vector<std::byte> memory(8);
  const View channelless = DenseView(memory.data(), DType::kU8, 0, {1, 2, 2}, Layout::kPlanar);
  CopyView(channelless, channelless);
  EXPECT_EQ(memory, std::vector<std::byte>(8));
}

}  // namespace
}  // namespace tilery
