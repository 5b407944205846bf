#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "pipeline/ops.h"

namespace tilery {
namespace {

std::vector<float> RandomValues(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> uniform(-3, 3);
  std::vector<float> values(count);
  for (float& v : values) v = uniform(random);
  return values;
}

Sums Over(std::vector<float>& memory, const Box& box, int64_t channels) {
  memory.assign(box.voxels() * channels, 0.0f);
  return {memory.data(), box, channels};
}

TEST(Blend, EqualsAFloat64LoopOverAllTilesOfAGrid) {
  Tiling tiling;
  tiling.tile = {4, 8, 10};
  tiling.overlap = {2, 4, 5};
  const TileGrid grid({9, 21, 27}, tiling);
  std::array<std::vector<TileWindow>, 3> windows;
  for (int a = 0; a < 3; ++a) windows[a] = MakeWindows(grid, a);
  const Pass pass{.in = {}, .out = {2, 0}, .out_begin = 1, .out_count = 2};
  std::vector<float> memory;
  const Sums sums = Over(memory, Box::Whole(grid.output_shape), 3);
  std::vector<double> want(memory.size(), 0.0);
  for (int64_t flat = 0; flat < grid.tiles(); ++flat) {
    const Index tile = grid.tile_at(flat);
    const Box box = grid.output_box(tile);
    const auto output = RandomValues(3 * box.voxels(), flat);
    const TileWindow &wz = windows[0][tile[0]], &wy = windows[1][tile[1]],
                     &wx = windows[2][tile[2]];
    BlendTile(output.data(), 3, box, wz, wy, wx, pass, sums);
    for (int64_t k = 0; k < 2; ++k) {
      for (int64_t z = wz.begin; z < wz.end(); ++z) {
        for (int64_t y = wy.begin; y < wy.end(); ++y) {
          for (int64_t x = wx.begin; x < wx.end(); ++x) {
            const int64_t from =
                (((pass.out[k] * 4 + z - box.begin[0]) * 8) + y - box.begin[1]) * 10 + x -
                box.begin[2];
            const double weight = static_cast<double>(wz.weights[z - wz.begin]) *
                                  wy.weights[y - wy.begin] * wx.weights[x - wx.begin];
            want[((1 + k) * 9 + z) * 21 * 27 + y * 27 + x] += weight * output[from];
          }
        }
      }
    }
  }
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(memory[i], want[i], 2e-6) << i;
  for (int64_t i = 0; i < 9 * 21 * 27; ++i) ASSERT_EQ(memory[i], 0.0f) << "not the pass's channel";
}

TEST(Blend, AVoxelThatOneTileCoversAloneKeepsTheModelsBits) {
  Tiling tiling;
  tiling.tile = {1, 8, 8};
  const TileGrid grid({1, 8, 8}, tiling);
  const auto output = RandomValues(64, 3);
  std::vector<float> memory;
  const Sums sums = Over(memory, Box::Whole({1, 8, 8}), 1);
  BlendTile(output.data(), 1, grid.output_box({0, 0, 0}), MakeWindows(grid, 0)[0],
            MakeWindows(grid, 1)[0], MakeWindows(grid, 2)[0], {.in = {}, .out = {0}}, sums);
  EXPECT_EQ(memory, output);
}

TEST(Blend, MeansOfTheOutputsAreWeightedLikeAnyOther) {
  Tiling tiling;
  tiling.tile = {1, 2, 2};
  const TileGrid grid({1, 2, 2}, tiling);
  const std::vector<float> output{1, 2, 3, 4, 10, 20, 30, 40, 100, 200, 300, 400};
  std::vector<float> memory;
  const Sums sums = Over(memory, Box::Whole({1, 2, 2}), 1);
  const Pass pass{.reduce = Pass::Reduce::kMean, .in = {}, .out = {}};
  BlendTile(output.data(), 3, grid.output_box({0, 0, 0}), MakeWindows(grid, 0)[0],
            MakeWindows(grid, 1)[0], MakeWindows(grid, 2)[0], pass, sums);
  EXPECT_EQ(memory, (std::vector<float>{37, 74, 111, 148}));
}

TEST(Blend, SumsMayCoverOnlyThePartWhereAUnitsTilesHaveWeight) {
  Tiling tiling;
  tiling.tile = {1, 1, 8};
  tiling.overlap = {0, 0, 4};
  tiling.trim = {0, 0, 1};
  const TileGrid grid({1, 1, 20}, tiling);
  const auto windows = MakeWindows(grid, 2);
  const std::vector<float> output(8, 1.0f);
  std::vector<float> memory;
  const Sums sums = Over(memory, {{0, 0, windows[1].begin}, {1, 1, windows[1].end()}}, 1);
  BlendTile(output.data(), 1, grid.output_box({0, 0, 1}), MakeWindows(grid, 0)[0],
            MakeWindows(grid, 1)[0], windows[1], {.in = {}, .out = {0}}, sums);
  EXPECT_EQ(memory, windows[1].weights);
}

TEST(Blend, OneBadValueAnywhereIsFound) {
  std::vector<float> values(100'000, 1.0f);
  EXPECT_TRUE(AllFinite(values.data(), 100'000));
  EXPECT_TRUE(AllFinite(values.data(), 0));
  for (int64_t at : {0, 1, 16383, 16384, 99'999}) {
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      values[at] = bad;
      EXPECT_FALSE(AllFinite(values.data(), 100'000)) << at;
      EXPECT_TRUE(AllFinite(values.data(), at));
      values[at] = 1;
    }
  }
}

}  // namespace
}  // namespace tilery
