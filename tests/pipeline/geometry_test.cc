#include "pipeline/geometry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tiling Line(int64_t tile, int64_t overlap) {
  Tiling tiling;
  tiling.tile = {1, 1, tile};
  tiling.overlap = {0, 0, overlap};
  return tiling;
}

std::string Refusal(const Tiling& tiling) {
  return ErrorOf(Fault::kUsage, [&] { CheckTiling(tiling); });
}

TEST(TileStarts, TheLastTileMovesBackSoThatAllAreFullSize) {
  EXPECT_THAT(TileStarts(13, 6, 2), ElementsAre(0, 4, 7));
  EXPECT_THAT(TileStarts(65, 64, 0), ElementsAre(0, 1)) << "a remainder of one voxel";
  EXPECT_THAT(TileStarts(484, 240, 0), ElementsAre(0, 240, 244));
  EXPECT_THAT(TileStarts(129, 64, 16), ElementsAre(0, 48, 65));
}

TEST(TileStarts, ExactFitsNeedNoExtraTile) {
  EXPECT_THAT(TileStarts(14, 6, 2), ElementsAre(0, 4, 8));
  EXPECT_THAT(TileStarts(64, 64, 16), ElementsAre(0));
  EXPECT_THAT(TileStarts(128, 64, 0), ElementsAre(0, 64));
  EXPECT_THAT(TileStarts(6, 1, 0), ElementsAre(0, 1, 2, 3, 4, 5))
      << "a thin axis: one tile a plane";
}

TEST(TileStarts, CoverTheAxisForAnySizeTileAndOverlap) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    const int64_t tile = 1 + random() % 40;
    const int64_t overlap = random() % tile;
    const int64_t n = tile + random() % 300;
    const std::vector<int64_t> starts = TileStarts(n, tile, overlap);
    ASSERT_EQ(starts.front(), 0);
    ASSERT_EQ(starts.back(), n - tile);
    for (size_t k = 1; k < starts.size(); ++k) {
      const int64_t step = starts[k] - starts[k - 1];
      ASSERT_GE(step, 1);
      ASSERT_LE(step, tile - overlap) << "neighbours share at least the overlap";
      if (k + 1 < starts.size()) {
        ASSERT_EQ(step, tile - overlap);
      }
    }
  }
}

TEST(CheckTiling, RefusesAnOverlapThatLeavesNoStrideNamingBothNumbers) {
  EXPECT_THAT(Refusal(Line(64, 64)), AllOf(HasSubstr("overlap 64"), HasSubstr("tile of 64")));
  EXPECT_THAT(Refusal(Line(64, 80)), AllOf(HasSubstr("overlap 80"), HasSubstr("tile of 64")));
  EXPECT_THAT(Refusal(Line(40, 64)), AllOf(HasSubstr("overlap 64"), HasSubstr("tile of 40")));
  EXPECT_THAT(Refusal(Line(64, -1)), HasSubstr("along x"));
  Tiling volume;
  volume.tile = {1, 64, 64};
  volume.overlap = {32, 32, 32};
  EXPECT_THAT(Refusal(volume), AllOf(HasSubstr("overlap 32 along z"), HasSubstr("tile of 1")));
}

TEST(CheckTiling, RefusesTilesBelowOneVoxel) {
  EXPECT_THAT(Refusal(Line(0, 0)), HasSubstr("tile 0 along x"));
  EXPECT_THAT(Refusal(Line(-8, 0)), HasSubstr("tile -8 along x"));
}

TEST(CheckTiling, RefusesWhatIsNoMultipleNamingTheNextValidValues) {
  Tiling tiling = Line(100, 16);
  tiling.multiple = {1, 1, 8};
  EXPECT_THAT(Refusal(tiling), AllOf(HasSubstr("tile 100"), HasSubstr("96 and 104")));
  tiling = Line(96, 12);
  tiling.multiple = {1, 1, 8};
  EXPECT_THAT(Refusal(tiling), AllOf(HasSubstr("overlap 12"), HasSubstr("8 and 16")));
  tiling = Line(5, 0);
  tiling.multiple = {1, 1, 8};
  EXPECT_THAT(Refusal(tiling), AllOf(HasSubstr("tile 5"), HasSubstr("values are 8")))
      << "0 is no tile";
}

TEST(CheckTiling, AShrinkingModelNeedsMultiplesOfItsDenominator) {
  Tiling tiling = Line(100, 24);
  tiling.scale[2] = Rational::Of(1, 8);
  EXPECT_THAT(Refusal(tiling), HasSubstr("96 and 104"));
  tiling.multiple = {1, 1, 12};  // lcm(8, 12) = 24
  EXPECT_THAT(Refusal(tiling), HasSubstr("96 and 120"));
  tiling.tile[2] = 120;
  tiling.trim[2] = 4;
  EXPECT_THAT(Refusal(tiling), AllOf(HasSubstr("trim 4"), HasSubstr("0 and 8")));
  tiling.trim[2] = 8;
  CheckTiling(tiling);
}

TEST(CheckTiling, RefusesATrimBeyondHalfOfTheOverlapNamingBothNumbers) {
  Tiling tiling = Line(64, 16);
  tiling.trim[2] = 8;
  CheckTiling(tiling);
  tiling.trim[2] = 9;
  EXPECT_THAT(Refusal(tiling),
              AllOf(HasSubstr("trim 9"), HasSubstr("overlap of 16"), HasSubstr("is 8")));
  tiling.trim[2] = -1;
  EXPECT_THAT(Refusal(tiling), HasSubstr("trim -1"));
}

// Walks to and fro over the axis as a reflection does, one step at a time.
std::vector<int64_t> Walk(int64_t n, int64_t length) {
  std::vector<int64_t> sources;
  int64_t at = 0;
  int64_t step = 1;
  for (int64_t i = 0; i < length; ++i) {
    sources.push_back(at);
    if (n == 1) continue;
    if (at + step < 0 || at + step >= n) step = -step;
    at += step;
  }
  return sources;
}

TEST(PadSource, ReflectionFoldsRepeatedlyForEverySizeFromOneVoxelOn) {
  for (int64_t n = 1; n <= 12; ++n) {
    const std::vector<int64_t> expected = Walk(n, 100);
    for (int64_t i = 0; i < 100; ++i) {
      ASSERT_EQ(PadSource(i, n, PadMode::kReflect), expected[static_cast<size_t>(i)])
          << n << " " << i;
    }
  }
}

TEST(PadSource, EdgeRepeatsTheLastVoxelAndZeroHasNoSource) {
  EXPECT_EQ(PadSource(4, 5, PadMode::kEdge), 4);
  EXPECT_EQ(PadSource(5, 5, PadMode::kEdge), 4);
  EXPECT_EQ(PadSource(99, 5, PadMode::kEdge), 4);
  EXPECT_EQ(PadSource(4, 5, PadMode::kZero), 4);
  EXPECT_EQ(PadSource(5, 5, PadMode::kZero), -1);
}

TEST(TileGrid, SmallItemsArePaddedToOneTile) {
  Tiling tiling;
  tiling.tile = {1, 64, 64};
  tiling.overlap = {0, 16, 16};
  tiling.scale = {Rational{}, Rational{4, 1}, Rational{4, 1}};
  for (const Index& shape : {Index{1, 5, 7}, Index{1, 1, 1}, Index{1, 1, 200}}) {
    const TileGrid grid(shape, tiling);
    EXPECT_EQ(grid.padded[1], 64);
    EXPECT_EQ(grid.output_shape, (Index{1, shape[1] * 4, shape[2] * 4}))
        << "scale times the item's size";
    EXPECT_EQ(grid.counts()[1], 1);
  }
  tiling.tile = {96, 96, 96};
  tiling.scale = {};
  tiling.overlap = {24, 24, 24};
  EXPECT_EQ(TileGrid({48, 48, 32}, tiling).tiles(), 1);
}

TEST(TileGrid, PadsToMultiplesOnlyWhereNeededAndCropsExactly) {
  Tiling tiling;
  tiling.tile = {1, 64, 64};
  tiling.overlap = {0, 16, 16};
  tiling.multiple = {1, 8, 8};
  EXPECT_EQ(TileGrid({1, 256, 256}, tiling).padded, (Index{1, 256, 256}));
  EXPECT_EQ(TileGrid({1, 223, 301}, tiling).padded, (Index{1, 224, 304}));
  EXPECT_EQ(TileGrid({1, 223, 301}, tiling).output_shape, (Index{1, 223, 301}));
  tiling.scale = {Rational{}, Rational{4, 1}, Rational{4, 1}};
  EXPECT_EQ(TileGrid({1, 223, 301}, tiling).output_shape, (Index{1, 892, 1204}));
  EXPECT_EQ(PaddedExtent(126, 7, 7), 126);
  EXPECT_EQ(PaddedExtent(127, 7, 7), 133);
}

TEST(TileGrid, AShrinkingScaleRoundsTheOutputUp) {
  Tiling tiling = Line(16, 8);
  tiling.scale[2] = Rational::Of(3, 8);
  const TileGrid grid({1, 1, 33}, tiling);
  EXPECT_EQ(grid.padded[2], 40);
  EXPECT_EQ(grid.output_shape[2], 13);  // 12.4 rounded up
  EXPECT_THAT(grid.starts[2], ElementsAre(0, 8, 16, 24));
  EXPECT_EQ(grid.output_box({0, 0, 1}), (Box{{0, 0, 3}, {1, 1, 9}}));
  EXPECT_EQ(grid.output_tile(), (Index{1, 1, 6}));
}

TEST(TileGrid, TilesAreNumberedWithXFastest) {
  Tiling tiling;
  tiling.tile = {4, 4, 4};
  const TileGrid grid({8, 12, 16}, tiling);
  EXPECT_EQ(grid.counts(), (Index{2, 3, 4}));
  EXPECT_EQ(grid.tiles(), 24);
  EXPECT_EQ(grid.tile_at(0), (Index{0, 0, 0}));
  EXPECT_EQ(grid.tile_at(5), (Index{0, 1, 1}));
  EXPECT_EQ(grid.tile_at(23), (Index{1, 2, 3}));
  EXPECT_EQ(grid.input_box({1, 2, 3}), (Box{{4, 8, 12}, {8, 12, 16}}));
}

TEST(TileGrid, AThinRoiHasATilePerPlane) {
  Tiling tiling;
  tiling.tile = {1, 4, 4};
  tiling.overlap = {0, 1, 1};
  const TileGrid grid({6, 12, 10}, tiling);
  EXPECT_EQ(grid.counts(), (Index{6, 4, 3}));
  EXPECT_EQ(grid.tiles(), 72);
}

TEST(Names, OfModesAndWindowsAreThoseOfTheJobFile) {
  EXPECT_STREQ(PadModeName(PadMode::kReflect), "reflect");
  EXPECT_STREQ(PadModeName(PadMode::kEdge), "edge");
  EXPECT_STREQ(PadModeName(PadMode::kZero), "zero");
  EXPECT_STREQ(WindowKindName(WindowKind::kLinear), "linear");
  EXPECT_STREQ(WindowKindName(WindowKind::kCosine), "cosine");
  EXPECT_STREQ(WindowKindName(WindowKind::kCrop), "crop");
  EXPECT_STREQ(WindowKindName(WindowKind::kHann), "hann");
  EXPECT_STREQ(WindowKindName(WindowKind::kGaussian), "gaussian");
}

}  // namespace
}  // namespace tilery
