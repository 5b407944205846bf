#include "pipeline/window.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/pipeline/random_tiling.h"

namespace tilery {
namespace {

constexpr double kPi = 3.14159265358979323846;

constexpr WindowKind kAllKinds[] = {WindowKind::kLinear, WindowKind::kCosine, WindowKind::kCrop,
                                    WindowKind::kHann, WindowKind::kGaussian};

Tiling Line(int64_t tile, int64_t overlap, int64_t trim, WindowKind window) {
  Tiling tiling;
  tiling.tile = {1, 1, tile};
  tiling.overlap = {0, 0, overlap};
  tiling.trim = {0, 0, trim};
  tiling.window = window;
  return tiling;
}

// Weights of all tiles at every output coordinate, straight from the definition and in its own
// words: tile by tile over the whole axis, then divided by the sum.
std::vector<std::vector<double>> Definition(const TileGrid& grid, int axis) {
  const Rational scale = grid.tiling.scale[axis];
  const double tile = static_cast<double>(grid.tiling.tile[axis] * scale.num / scale.den);
  const double trim = static_cast<double>(grid.tiling.trim[axis] * scale.num / scale.den);
  const double ramp =
      static_cast<double>(grid.tiling.overlap[axis] * scale.num / scale.den) - 2 * trim;
  const size_t count = grid.starts[axis].size();
  const auto length = static_cast<size_t>(grid.output_shape[axis]);
  std::vector<std::vector<double>> weights(count, std::vector<double>(length, 0.0));
  for (size_t v = 0; v < length; ++v) {
    size_t nearest = 0;
    double nearest_distance = INFINITY;
    double sum = 0;
    for (size_t k = 0; k < count; ++k) {
      const double start = static_cast<double>(grid.starts[axis][k] * scale.num / scale.den);
      const double distance = std::abs(static_cast<double>(v) + 0.5 - (start + tile / 2));
      if (distance < nearest_distance) nearest = k, nearest_distance = distance;
      const double i = static_cast<double>(v) - start;
      if (i < 0 || i >= tile) continue;
      double weight = 1;
      for (const bool after : {false, true}) {
        if (after ? k + 1 == count : k == 0) continue;  // no neighbour on this side
        const double from_side = after ? tile - 1 - i : i;
        if (from_side < trim) {
          weight = 0;
        } else if (from_side < trim + ramp) {
          const double linear = (from_side - trim + 0.5) / ramp;
          if (grid.tiling.window == WindowKind::kLinear) weight *= linear;
          if (grid.tiling.window == WindowKind::kCosine)
            weight *= 0.5 - 0.5 * std::cos(kPi * linear);
        }
      }
      if (grid.tiling.window == WindowKind::kHann)
        weight *= 0.5 - 0.5 * std::cos(2 * kPi * (i + 0.5) / tile);
      if (grid.tiling.window == WindowKind::kGaussian)
        weight *= std::exp(-0.5 * std::pow((i - (tile - 1) / 2) / (tile / 8), 2));
      weights[k][v] = weight;
      sum += weight;
    }
    for (size_t k = 0; k < count; ++k) {
      weights[k][v] =
          grid.tiling.window == WindowKind::kCrop ? (k == nearest ? 1 : 0) : weights[k][v] / sum;
    }
  }
  return weights;
}

double At(const TileWindow& window, int64_t v) {
  return v < window.begin || v >= window.end()
             ? 0
             : window.weights[static_cast<size_t>(v - window.begin)];
}

TEST(Window, EqualsItsDefinitionAndSumsToOneForAnyGrid) {
  RandomTiling random(17);
  for (int round = 0; round < 3000; ++round) {
    const Tiling tiling = random.Next(2, 24);
    const TileGrid grid({1, 1, random.Pick(1, 150)}, tiling);
    const std::string where =
        std::string(WindowKindName(tiling.window)) + " n=" + std::to_string(grid.shape[2]) +
        " T=" + std::to_string(tiling.tile[2]) + " V=" + std::to_string(tiling.overlap[2]) +
        " R=" + std::to_string(tiling.trim[2]) + " scale " + tiling.scale[2].ToString();
    const std::vector<TileWindow> windows = MakeWindows(grid, 2);
    const std::vector<std::vector<double>> expected = Definition(grid, 2);
    ASSERT_EQ(windows.size(), expected.size());
    for (const TileWindow& window : windows) {
      ASSERT_FALSE(window.weights.empty()) << where;
      ASSERT_GE(window.begin, 0) << where;
      ASSERT_LE(window.end(), grid.output_shape[2]) << where;
      for (const float weight : window.weights) ASSERT_GT(weight, 0.0f) << where;
    }
    for (int64_t v = 0; v < grid.output_shape[2]; ++v) {
      double sum = 0;
      for (size_t k = 0; k < windows.size(); ++k) {
        ASSERT_NEAR(At(windows[k], v), expected[k][static_cast<size_t>(v)], 1e-6)
            << where << " at " << v;
        sum += At(windows[k], v);
      }
      ASSERT_NEAR(sum, 1.0, 1e-6) << where << " at " << v;
    }
  }
}

TEST(Window, AConstantImageStaysConstantWhereTheLastTileMovedBack) {
  for (const WindowKind kind : kAllKinds) {
    for (const int64_t n : {96, 100, 129}) {
      const TileGrid grid({1, 1, n}, Line(64, 16, 0, kind));
      const std::vector<TileWindow> windows = MakeWindows(grid, 2);
      for (int64_t v = 0; v < n; ++v) {
        float blended = 0;
        for (const TileWindow& window : windows)
          blended += 0.5f * static_cast<float>(At(window, v));
        ASSERT_NEAR(blended, 0.5f, 1e-6f) << WindowKindName(kind) << " n=" << n << " at " << v;
      }
    }
  }
}

TEST(Window, ASingleTileWeighsExactlyOneUpToItsCorners) {
  for (const WindowKind kind : kAllKinds) {
    for (const int64_t n : {1, 5, 63, 64}) {
      const std::vector<TileWindow> windows =
          MakeWindows(TileGrid({1, 1, n}, Line(64, 16, 4, kind)), 2);
      ASSERT_EQ(windows.size(), 1u);
      EXPECT_EQ(windows[0].begin, 0);
      EXPECT_EQ(windows[0].weights, std::vector<float>(static_cast<size_t>(n), 1.0f))
          << WindowKindName(kind);
    }
  }
}

TEST(Window, VoxelsThatOneTileCoversAloneWeighExactlyOne) {
  for (const WindowKind kind : kAllKinds) {
    const TileGrid grid({1, 1, 200}, Line(64, 16, 4, kind));
    const std::vector<TileWindow> windows = MakeWindows(grid, 2);
    for (int64_t v = 0; v < 200; ++v) {
      int covering = 0;
      double weight = 0;
      for (const TileWindow& window : windows) {
        covering += At(window, v) > 0;
        weight = std::max(weight, At(window, v));
      }
      if (covering == 1) {
        ASSERT_EQ(weight, 1.0) << WindowKindName(kind) << " at " << v;
      }
    }
  }
}

TEST(Window, TrimLeavesNoWeightAtSidesWithANeighbourAndAllOfItAtTheBorder) {
  for (const WindowKind kind :
       {WindowKind::kLinear, WindowKind::kCosine, WindowKind::kHann, WindowKind::kGaussian}) {
    const std::vector<TileWindow> windows =
        MakeWindows(TileGrid({1, 1, 160}, Line(64, 16, 8, kind)), 2);
    ASSERT_EQ(windows.size(), 3u);
    EXPECT_EQ(windows[0].begin, 0);
    EXPECT_EQ(windows[0].end(), 56);
    EXPECT_EQ(windows[1].begin, 56);
    EXPECT_EQ(windows[1].end(), 104);
    EXPECT_EQ(windows[2].begin, 104);
    EXPECT_EQ(windows[2].end(), 160);
  }
}

TEST(Window, TrimOfHalfTheOverlapSwitchesHalfWay) {
  for (const WindowKind kind : {WindowKind::kLinear, WindowKind::kCosine}) {
    const std::vector<TileWindow> windows =
        MakeWindows(TileGrid({1, 1, 112}, Line(64, 16, 8, kind)), 2);
    ASSERT_EQ(windows.size(), 2u);
    EXPECT_EQ(windows[0].weights, std::vector<float>(56, 1.0f));
    EXPECT_EQ(windows[1].weights, std::vector<float>(56, 1.0f));
  }
}

TEST(Window, LinearRampsOfTwoTilesCrossInTheMiddle) {
  const std::vector<TileWindow> windows =
      MakeWindows(TileGrid({1, 1, 12}, Line(8, 4, 0, WindowKind::kLinear)), 2);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].weights, (std::vector<float>{1, 1, 1, 1, 0.875f, 0.625f, 0.375f, 0.125f}));
  EXPECT_EQ(windows[1].weights, (std::vector<float>{0.125f, 0.375f, 0.625f, 0.875f, 1, 1, 1, 1}));
}

TEST(Window, CropGivesTiesToTheLowerTile) {
  // Centres at 4 and 9 (voxel edges): voxel 6, whose centre is 6.5, is equally far from both.
  const std::vector<TileWindow> windows =
      MakeWindows(TileGrid({1, 1, 13}, Line(8, 3, 0, WindowKind::kCrop)), 2);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].end(), 7);
  EXPECT_EQ(windows[1].begin, 7);
}

TEST(Window, LivesAtOutputResolution) {
  Tiling tiling = Line(8, 4, 2, WindowKind::kCosine);
  tiling.scale[2] = Rational::Of(4, 1);
  const std::vector<TileWindow> windows = MakeWindows(TileGrid({1, 1, 12}, tiling), 2);
  ASSERT_EQ(windows.size(), 2u);
  EXPECT_EQ(windows[0].end(), 24);
  EXPECT_EQ(windows[1].begin, 24);
  EXPECT_EQ(windows[1].end(), 48);
}

TEST(Window, EndsWithTheItemAndNotWithItsPadding) {
  Tiling tiling = Line(8, 0, 0, WindowKind::kCosine);
  tiling.multiple[2] = 8;
  const std::vector<TileWindow> windows = MakeWindows(TileGrid({1, 1, 17}, tiling), 2);
  ASSERT_EQ(windows.size(), 3u);
  EXPECT_EQ(windows[2].begin, 16);
  EXPECT_EQ(windows[2].end(), 17);
}

// 3-D corner weights of a Gaussian are near 1e-10: zero in half precision, but not here.
TEST(Window, ProductsOverThreeAxesStayPositive) {
  for (const int64_t tile : {64, 128}) {
    const std::vector<TileWindow> windows =
        MakeWindows(TileGrid({1, 1, 3 * tile}, Line(tile, tile / 2, 0, WindowKind::kGaussian)), 2);
    for (const TileWindow& window : windows) {
      for (const float w : {window.weights.front(), window.weights.back()})
        EXPECT_GT(w * w * w, 0.0f);
    }
  }
}

TEST(Window, AxesThatAreNotTiledWeighOne) {
  const TileGrid grid({3, 1, 100}, Line(64, 16, 0, WindowKind::kHann));
  EXPECT_EQ(MakeWindows(grid, 1)[0].weights, std::vector<float>{1.0f});
  EXPECT_EQ(MakeWindows(grid, 0).size(), 3u);
}

}  // namespace
}  // namespace tilery
