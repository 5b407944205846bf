#include <gtest/gtest.h>

#include <chrono>

#include "scheduler/planner.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/plan_inputs.h"

namespace tilery {
namespace {

constexpr int64_t kGiB = 1 << 30;

Tiling TilingOf(int64_t tile, int64_t overlap, bool volume = false) {
  Tiling tiling;
  tiling.tile = {volume ? tile : 1, tile, tile};
  tiling.overlap = {volume ? overlap : 0, overlap, overlap};
  return tiling;
}

// A plan of gray u8 items of these shapes, sized.
Plan PlanOf(const std::vector<Index>& shapes, const Tiling& tiling, Access access = Access::kRandom,
            int64_t unit_memory = kGiB) {
  Plan plan;
  ItemParams params;
  params.tiling = tiling;
  params.transfer.accumulators = 1;
  params.transfer.out_channels = 1;
  params.transfer.passes.resize(1);
  plan.params.push_back(params);
  for (const Index& shape : shapes) {
    Item item;
    item.header = HeaderOf("npy", shape, 1);
    item.header.access = access;
    plan.items.push_back(item);
  }
  SizeUnits(plan, unit_memory);
  return plan;
}

TEST(GridTilesTest, CountsWhatTheGridHas) {
  Tiling tiling = TilingOf(12, 4);
  for (const int64_t multiple : {1, 4}) {
    tiling.multiple = {1, multiple, multiple};
    for (int64_t n = 1; n < 80; ++n) {
      const Index shape{1, n, 2 * n + 1};
      EXPECT_EQ(GridTiles(shape, tiling), TileGrid(shape, tiling).tiles()) << n << " " << multiple;
    }
  }
  EXPECT_EQ(GridTiles({512, 2048, 2048}, TilingOf(128, 32, true)), 5 * 21 * 21);
}

TEST(SizeUnitsTest, SmallItemsAreOneUnitEachAlsoInTheTail) {
  const Plan plan = PlanOf(std::vector<Index>(100, Index{1, 200, 200}), TilingOf(64, 16));
  EXPECT_EQ(plan.units, 100);
  EXPECT_EQ(plan.tiles, 1600);
  for (const Item& item : plan.items) {
    EXPECT_EQ(item.infer_units, 1);
    EXPECT_EQ(item.scratch_bytes, 0);
    EXPECT_EQ(item.output_bytes, 200 * 200);
  }
}

TEST(SizeUnitsTest, ALargeItemIsSpreadOverUnitsThatCoverItsTilesOnce) {
  const Plan plan = PlanOf({{512, 2048, 2048}}, TilingOf(128, 32, true));
  EXPECT_GE(plan.units, 64);
  int64_t tiles = 0;
  for (int64_t unit = 0; unit < plan.units; ++unit) tiles += plan.TilesOf(unit);
  EXPECT_EQ(tiles, 5 * 21 * 21);
  EXPECT_EQ(plan.tiles, tiles);
  const Item& item = plan.items[0];
  EXPECT_EQ(item.output_bytes, int64_t{512} * 2048 * 2048);
  EXPECT_GT(item.seam_bytes, 0);
  EXPECT_GE(item.scratch_bytes, item.output_bytes + item.seam_bytes);
}

TEST(SizeUnitsTest, TheLastFifthHasSmallerUnits) {
  const Plan plan = PlanOf({{1, 3088, 3088}}, TilingOf(64, 16));
  const std::shared_ptr<const ItemGeometry> geometry = plan.Geometry(0);
  EXPECT_LE(geometry->tiles_of(0), 16);
  EXPECT_LT(geometry->tiles_of(geometry->units() - 1), geometry->tiles_of(0));
}

TEST(SizeUnitsTest, AnItemsPlaceInTheJobDoesNotDecideItsUnits) {
  const std::vector<Index> few = {{1, 2048, 1024}, {1, 1024, 1024}};
  std::vector<Index> more = few;
  more.push_back({1, 1500, 1700});
  const Plan before = PlanOf(few, TilingOf(64, 0));
  const Plan after = PlanOf(more, TilingOf(64, 0));
  for (size_t i = 0; i < few.size(); ++i) {
    EXPECT_EQ(before.items[i].sizing, after.items[i].sizing);
    EXPECT_EQ(before.items[i].sizing.tail_begin, before.items[i].tiles - before.items[i].tiles / 5);
  }
}

TEST(SizeUnitsTest, UnitsGrowWithTheJobUpToALimit) {
  EXPECT_EQ(PlanOf({{1, 64, 64 * 5000}}, TilingOf(64, 0)).items[0].sizing.tiles, 16);
  EXPECT_EQ(PlanOf({{1, 640, 64 * 5000}}, TilingOf(64, 0)).items[0].sizing.tiles, 128);
  EXPECT_EQ(PlanOf({{1, 64 * 1000, 64 * 1000}}, TilingOf(64, 0)).items[0].sizing.tiles, 1024);
}

TEST(SizeUnitsTest, UnitsOfTilesWithFewVoxelsMayHaveMoreOfThem) {
  const Plan leaves = PlanOf({{1024, 1024, 1024}}, TilingOf(8, 0, true));
  EXPECT_EQ(leaves.items[0].sizing.tiles, 8192);
  EXPECT_LT(leaves.units, 600);
  EXPECT_EQ(PlanOf({{1, 8000, 16000}}, TilingOf(16, 0)).items[0].sizing.tiles, 1024);
  EXPECT_EQ(PlanOf({{1, 32000, 64000}}, TilingOf(16, 0)).items[0].sizing.tiles, 16384);
  EXPECT_EQ(PlanOf({{2048, 2048, 2048}}, TilingOf(16, 0, true)).items[0].sizing.tiles, 1024);
}

TEST(SizeUnitsTest, UnitMemoryBoundsTheAccumulator) {
  const Plan plan = PlanOf({{1, 256, 256}}, TilingOf(64, 0), Access::kRandom, 64 * 64 * 4 * 2);
  EXPECT_EQ(plan.items[0].infer_units, 8);
}

TEST(SizeUnitsTest, OnlyRowsReadBySeveralUnitsAreStaged) {
  EXPECT_FALSE(PlanOf({{1, 200, 200}}, TilingOf(64, 16), Access::kRows).items[0].staged);
  const Plan rows = PlanOf({{1, 2000, 2000}}, TilingOf(64, 16), Access::kRows);
  EXPECT_TRUE(rows.items[0].staged);
  EXPECT_EQ(rows.Find(0).kind, UnitKind::kStage);
  const Plan random = PlanOf({{1, 2000, 2000}}, TilingOf(64, 16), Access::kRandom);
  EXPECT_FALSE(random.items[0].staged);
  EXPECT_EQ(rows.items[0].scratch_bytes - random.items[0].scratch_bytes, 2000 * 2000);
}

TEST(SizeUnitsTest, AnItemOfManyTerapixelsIsPlanned) {
  const Plan plan = PlanOf({{1, 1 << 24, 1 << 24}}, TilingOf(256, 32));
  EXPECT_EQ(plan.items[0].refused, "");
  EXPECT_GT(plan.units, 5'000'000);
  EXPECT_LE(plan.units, kMostUnits);
}

TEST(SizeUnitsTest, AnItemOfTooManyUnitsIsRefusedWithBothNumbersAndTheOthersAreSizedWithoutIt) {
  // The first two are found out by counting tiles and bytes, the third by its real cuts.
  const auto begin = std::chrono::steady_clock::now();
  const Index small{1, 500, 500};
  const std::vector<std::pair<Index, std::string>> beyond = {
      {{1, int64_t{1} << 31, int64_t{1} << 31}, "at least 89756059271"},
      {{int64_t{1} << 20, int64_t{1} << 20, int64_t{1} << 20}, "at least 22437643264"},
      {{1, 24'330'000, 24'330'000}, " voxels make 18"}};
  for (const auto& [shape, units] : beyond) {
    const Plan plan = PlanOf({shape, small}, TilingOf(256, 32));
    ExpectWords(plan.items[0].refused, {ShapeToString(shape, 3), units, "16777216", "tile"});
    EXPECT_EQ(plan.items[1].refused, "");
    EXPECT_EQ(plan.items[1].sizing.tiles, 16);
    EXPECT_EQ(plan.units, plan.items[1].units());
    EXPECT_EQ(plan.tiles, plan.items[1].tiles);
  }
  const Plan memory =
      PlanOf({{1, 1 << 20, 1 << 20}}, TilingOf(64, 0), Access::kRandom, 64 * 64 * 4);
  ExpectWords(memory.items[0].refused, {"at least 268435456", "16777216", "unit_memory"});
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(took.count(), 60) << "a limit only for a failure: it takes a second";
}

TEST(SizeUnitsTest, AnItemWhoseWindowsWouldFillTheMemoryIsRefusedWithBothNumbers) {
  const Plan plan = PlanOf({{1, 1, int64_t{1} << 31}}, TilingOf(256, 32));
  ExpectWords(plan.items[0].refused, {"1x2147483648", "windows", "536870912"});
  // Not many tiles, but more samples than bytes can be counted.
  const Plan wide = PlanOf({{1, int64_t{1} << 31, int64_t{1} << 31}}, TilingOf(1 << 20, 0),
                           Access::kRandom, int64_t{1} << 46);
  ExpectWords(wide.items[0].refused, {"4611686018427387904 samples", "144115188075855872"});
}

TEST(SizeUnitsTest, AlphaCountsItsOwnRunsOfTheModel) {
  Plan plan = PlanOf({{1, 200, 200}}, TilingOf(64, 16));
  plan.params[0].transfer.passes.resize(2);
  SizeUnits(plan, kGiB);
  EXPECT_EQ(plan.tiles, 32);
  EXPECT_EQ(plan.TilesOf(0), 32);
}

}  // namespace
}  // namespace tilery
