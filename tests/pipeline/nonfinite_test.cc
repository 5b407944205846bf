#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "pipeline/ops.h"

namespace tilery {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(NonFinite, IsCountedPerVoxelAndOnlyInChannelsThatAPassReads) {
  const Index shape{2, 3, 4};
  for (Layout layout : {Layout::kInterleaved, Layout::kPlanar}) {
    std::vector<float> values(Product(shape) * 3, 1.0f);
    const View view =
        DenseView(reinterpret_cast<std::byte*>(values.data()), DType::kF32, 3, shape, layout);
    const auto set = [&](int64_t c, int64_t z, int64_t y, int64_t x, double v) {
      *reinterpret_cast<float*>(view.at(c, z, y, x)) = static_cast<float>(v);
    };
    set(0, 0, 0, 0, kNan);
    set(1, 0, 0, 0, kInfinity);  // the same voxel
    set(1, 1, 2, 3, -kInfinity);
    set(2, 1, 0, 0, kNan);  // read by nobody
    const GatherSource source{view, Box::Whole(shape), nullptr, nullptr, false};
    const std::vector<Pass> passes{{.in = {0, 1}, .out = {}}};
    EXPECT_EQ(CountNonFinite(source, passes, Box::Whole(shape)), 2);
    EXPECT_EQ(CountNonFinite(source, passes, {{0, 0, 1}, {2, 3, 4}}), 1);
    EXPECT_EQ(CountNonFinite(source, {{.in = {2}, .out = {}}}, Box::Whole(shape)), 1);
  }
}

TEST(NonFinite, OfF64IsWhatF32CannotHold) {
  const std::vector<double> values{1, 1e300, kNan, -1e39};
  const Index shape{1, 1, 4};
  const ConstView view = DenseView(reinterpret_cast<const std::byte*>(values.data()), DType::kF64,
                                   1, shape, Layout::kInterleaved);
  EXPECT_EQ(CountNonFinite({view, Box::Whole(shape), nullptr, nullptr, false},
                           {{.in = {0}, .out = {}}}, Box::Whole(shape)),
            3);
}

TEST(NonFinite, OfF16IsFoundByItsExponent) {
  const std::vector<uint16_t> values{0x3c00, 0x7c00, 0xfc00, 0x7e00, 0x7bff};
  const Index shape{1, 1, 5};
  const ConstView view = DenseView(reinterpret_cast<const std::byte*>(values.data()), DType::kF16,
                                   1, shape, Layout::kInterleaved);
  EXPECT_EQ(CountNonFinite({view, Box::Whole(shape), nullptr, nullptr, false},
                           {{.in = {0}, .out = {}}}, Box::Whole(shape)),
            3);
}

TEST(NonFinite, IntegersHaveNone) {
  const std::vector<uint8_t> values(8, 255);
  const Index shape{1, 1, 8};
  const ConstView view = DenseView(reinterpret_cast<const std::byte*>(values.data()), DType::kU8, 1,
                                   shape, Layout::kInterleaved);
  EXPECT_EQ(CountNonFinite({view, Box::Whole(shape), nullptr, nullptr, false},
                           {{.in = {0}, .out = {}}}, Box::Whole(shape)),
            0);
}

// Output coordinates that are not a number after restoring along x, for one bad stored voxel.
std::vector<int64_t> Restored(int64_t n, int64_t bad, Rational scale) {
  const Index shape{1, 1, n};
  std::vector<float> values(n, 1.0f);
  values[bad] = static_cast<float>(kNan);
  Tiling tiling;
  tiling.tile = {1, 1, n};
  tiling.scale[2] = scale;
  const TileGrid grid(shape, tiling);
  const ConstView view = DenseView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                                   1, shape, Layout::kInterleaved);
  std::vector<float> sums(2 * grid.output_shape[2], 1.0f);
  RestoreNonFinite({view, Box::Whole(shape), &grid, nullptr, false},
                   {{.in = {0}, .out = {}, .out_begin = 1}},
                   {sums.data(), Box::Whole(grid.output_shape), 2});
  std::vector<int64_t> found;
  for (int64_t x = 0; x < grid.output_shape[2]; ++x) {
    EXPECT_EQ(sums[x], 1.0f) << "the other pass's channel";
    if (std::isnan(sums[grid.output_shape[2] + x])) found.push_back(x);
  }
  return found;
}

TEST(NonFinite, ComesBackWhereTheVoxelLiesAtTheOutputsScale) {
  EXPECT_EQ(Restored(8, 3, {1, 1}), (std::vector<int64_t>{3}));
  EXPECT_EQ(Restored(8, 3, {2, 1}), (std::vector<int64_t>{6, 7}));
  EXPECT_EQ(Restored(16, 9, {1, 8}), (std::vector<int64_t>{1}));
  EXPECT_EQ(Restored(8, 1, {3, 2}), (std::vector<int64_t>{1, 2})) << "voxel 1 covers [1.5, 3)";
}

}  // namespace
}  // namespace tilery
