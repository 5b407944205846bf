#include "pipeline/blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/io/expect_error.h"
#include "tests/pipeline/random_tiling.h"

namespace tilery {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename Action>
void ForEach(const Box& box, Action action) {
  for (int64_t z = box.begin[0]; z < box.end[0]; ++z)
    for (int64_t y = box.begin[1]; y < box.end[1]; ++y)
      for (int64_t x = box.begin[2]; x < box.end[2]; ++x) action(Index{z, y, x});
}

// For each output voxel the units with weight there, found tile by tile.
std::map<Index, std::set<int64_t>> UnitsByVoxel(const ItemGeometry& geometry) {
  std::map<Index, std::set<int64_t>> units;
  for (int64_t unit = 0; unit < geometry.units(); ++unit) {
    ForEach(geometry.unit_tiles(unit), [&](const Index& tile) {
      ForEach(geometry.tile_cover(tile), [&](const Index& voxel) { units[voxel].insert(unit); });
    });
  }
  return units;
}

std::set<int64_t> AsSet(const std::vector<int64_t>& units) { return {units.begin(), units.end()}; }

struct Case {
  Index shape;
  Tiling tiling;
  UnitSizing sizing;
};

Case RandomCase(RandomTiling& random) {
  Case c;
  const int first_axis = static_cast<int>(random.Pick(0, 2));
  c.tiling = random.Next(first_axis, first_axis == 0 ? 6 : 12);
  c.shape = {1, 1, 1};
  for (int axis = first_axis; axis < 3; ++axis)
    c.shape[axis] = random.Pick(1, first_axis == 0 ? 14 : 40);
  if (first_axis > 0 && random.Pick(0, 3) == 0) c.shape[0] = random.Pick(1, 9);  // slices
  c.sizing.tiles = random.Pick(1, 20);
  c.sizing.channels = static_cast<int32_t>(random.Pick(1, 3));
  const int64_t tiles = TileGrid(c.shape, c.tiling).tiles();
  if (random.Pick(0, 1) == 0) c.sizing.tail_begin = random.Pick(0, tiles);
  return c;
}

std::string Describe(const Case& c) {
  std::string text = ShapeToString(c.shape, 3) + " tile " + ShapeToString(c.tiling.tile, 3) +
                     " overlap " + ShapeToString(c.tiling.overlap, 3) + " trim " +
                     ShapeToString(c.tiling.trim, 3) + " " + WindowKindName(c.tiling.window) +
                     " units of " + std::to_string(c.sizing.tiles) + " tail " +
                     std::to_string(c.sizing.tail_begin);
  return text;
}

TEST(ItemGeometry, EveryVoxelLiesInExactlyOneCellThatListsExactlyTheUnitsWithWeightThere) {
  RandomTiling random(5);
  for (int round = 0; round < 400; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(Describe(c));
    const ItemGeometry geometry(c.shape, c.tiling, c.sizing);
    const std::map<Index, std::set<int64_t>> expected = UnitsByVoxel(geometry);
    ASSERT_EQ(static_cast<int64_t>(expected.size()), Product(geometry.grid().output_shape))
        << "all covered";

    std::map<Index, int> seen;
    for (const SeamCell& cell : geometry.cells(Box::Whole(geometry.grid().output_shape))) {
      ASSERT_TRUE(std::is_sorted(cell.units.begin(), cell.units.end()));
      ASSERT_FALSE(cell.box.empty());
      ForEach(cell.box, [&](const Index& voxel) {
        ++seen[voxel];
        ASSERT_EQ(AsSet(cell.units), expected.at(voxel));
      });
    }
    ASSERT_EQ(seen.size(), expected.size());
    for (const auto& [voxel, times] : seen) ASSERT_EQ(times, 1);
  }
}

TEST(ItemGeometry, AUnitsInteriorAndSeamsMakeUpItsCover) {
  RandomTiling random(6);
  for (int round = 0; round < 400; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(Describe(c));
    const ItemGeometry geometry(c.shape, c.tiling, c.sizing);
    const std::map<Index, std::set<int64_t>> expected = UnitsByVoxel(geometry);
    int64_t seam_voxels = 0;
    for (int64_t unit = 0; unit < geometry.units(); ++unit) {
      std::map<Index, int> seen;
      ForEach(geometry.interior(unit), [&](const Index& voxel) {
        ++seen[voxel];
        ASSERT_EQ(expected.at(voxel), std::set<int64_t>{unit});
      });
      for (const SeamCell& cell : geometry.seams(unit)) {
        ASSERT_GE(cell.units.size(), 2u);
        ASSERT_TRUE(AsSet(cell.units).contains(unit));
        seam_voxels += cell.box.voxels();
        ForEach(cell.box, [&](const Index& voxel) {
          ++seen[voxel];
          ASSERT_EQ(AsSet(cell.units), expected.at(voxel));
        });
      }
      for (const auto& [voxel, times] : seen) ASSERT_EQ(times, 1);
      ASSERT_EQ(static_cast<int64_t>(seen.size()), geometry.unit_cover(unit).voxels());
      for (const auto& [voxel, times] : seen) {
        ASSERT_TRUE(geometry.unit_cover(unit).contains(
            {voxel, {voxel[0] + 1, voxel[1] + 1, voxel[2] + 1}}));
      }
    }
    ASSERT_EQ(geometry.seam_bytes(), seam_voxels * c.sizing.channels * 4);
  }
}

TEST(ItemGeometry, OfASparseItemOnlyBlocksWithTilesAreUnits) {
  RandomTiling random(8);
  for (int round = 0; round < 300; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(Describe(c));
    const ItemGeometry all(c.shape, c.tiling, c.sizing);
    TileSet tiles;
    for (int64_t tile = 0; tile < all.grid().tiles(); ++tile) {
      if (random.Pick(0, 3) == 0) tiles.push_back(tile);
    }
    if (tiles.empty()) tiles.push_back(random.Pick(0, all.grid().tiles() - 1));
    const ItemGeometry sparse(c.shape, c.tiling, c.sizing, std::make_shared<const TileSet>(tiles));

    std::map<Index, int64_t> of_all;  // first tile of a block -> its unit, among those with tiles
    TileSet listed;
    for (int64_t unit = 0; unit < sparse.units(); ++unit) {
      of_all[sparse.unit_tiles(unit).begin] = unit;
      const auto own = sparse.listed_tiles(unit);
      ASSERT_FALSE(own.empty());
      ASSERT_EQ(sparse.tiles_of(unit), static_cast<int64_t>(own.size()));
      ASSERT_TRUE(std::is_sorted(own.begin(), own.end()));
      for (const int64_t tile : own) {
        const Index at = sparse.grid().tile_at(tile);
        ASSERT_TRUE(sparse.unit_tiles(unit).contains({at, {at[0] + 1, at[1] + 1, at[2] + 1}}));
      }
      listed.insert(listed.end(), own.begin(), own.end());
    }
    std::sort(listed.begin(), listed.end());
    ASSERT_EQ(listed, tiles);

    // The cells are those of the whole partition, without the units that are none.
    const Box whole = Box::Whole(all.grid().output_shape);
    const std::vector<SeamCell> expected = all.cells(whole), cells = sparse.cells(whole);
    ASSERT_EQ(cells.size(), expected.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      ASSERT_EQ(cells[i].box, expected[i].box);
      std::vector<int64_t> units;
      for (const int64_t unit : expected[i].units) {
        const auto found = of_all.find(all.unit_tiles(unit).begin);
        if (found != of_all.end()) units.push_back(found->second);
      }
      ASSERT_EQ(cells[i].units, units);
      ASSERT_EQ(cells[i].interior, expected[i].interior && !units.empty());
    }
    int64_t seam_voxels = 0;
    for (int64_t unit = 0; unit < sparse.units(); ++unit) {
      int64_t voxels = sparse.interior(unit).voxels();
      for (const SeamCell& cell : sparse.seams(unit)) {
        ASSERT_TRUE(AsSet(cell.units).contains(unit));
        voxels += cell.box.voxels();
        seam_voxels += cell.box.voxels();
      }
      ASSERT_EQ(voxels, sparse.unit_cover(unit).voxels());
    }
    ASSERT_EQ(sparse.seam_bytes(), seam_voxels * c.sizing.channels * 4);
  }
}

TEST(ItemGeometry, UnitsPartitionTheTilesWithinTheirBounds) {
  RandomTiling random(7);
  for (int round = 0; round < 600; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(Describe(c));
    const ItemGeometry geometry(c.shape, c.tiling, c.sizing);
    std::map<Index, int> seen;
    for (int64_t unit = 0; unit < geometry.units(); ++unit) {
      ASSERT_GE(geometry.tiles_of(unit), 1);
      ASSERT_LE(geometry.tiles_of(unit), c.sizing.tiles);
      ForEach(geometry.unit_tiles(unit), [&](const Index& tile) { ++seen[tile]; });
    }
    ASSERT_EQ(static_cast<int64_t>(seen.size()), geometry.grid().tiles());
    for (const auto& [tile, times] : seen) ASSERT_EQ(times, 1);
  }
}

TEST(ItemGeometry, AUnitsInputIsTheSmallestBoxAroundAllThatItsTilesRead) {
  RandomTiling random(8);
  for (int round = 0; round < 600; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(Describe(c));
    const ItemGeometry geometry(c.shape, c.tiling, c.sizing);
    for (int64_t unit = 0; unit < geometry.units(); ++unit) {
      Box expected;
      ForEach(geometry.unit_tiles(unit), [&](const Index& tile) {
        const Box read = geometry.grid().input_box(tile);
        Box sources{{INT64_MAX, INT64_MAX, INT64_MAX}, {0, 0, 0}};
        for (int axis = 0; axis < 3; ++axis) {
          for (int64_t i = read.begin[axis]; i < read.end[axis]; ++i) {
            const int64_t source = PadSource(i, c.shape[axis], c.tiling.pad);
            if (source < 0) continue;
            sources.begin[axis] = std::min(sources.begin[axis], source);
            sources.end[axis] = std::max(sources.end[axis], source + 1);
          }
        }
        expected = Hull(expected, sources);
      });
      ASSERT_EQ(geometry.unit_input(unit), expected) << "unit " << unit;
    }
  }
}

TEST(ItemGeometry, CellsOfARegionAreThoseOfTheWholeCutToIt) {
  RandomTiling random(9);
  for (int round = 0; round < 300; ++round) {
    const Case c = RandomCase(random);
    SCOPED_TRACE(Describe(c));
    const ItemGeometry geometry(c.shape, c.tiling, c.sizing);
    const Index out = geometry.grid().output_shape;
    Box region;
    for (int axis = 0; axis < 3; ++axis) {
      region.begin[axis] = random.Pick(-2, out[axis]);
      region.end[axis] = random.Pick(region.begin[axis], out[axis] + 2);
    }
    std::vector<SeamCell> expected;
    for (SeamCell cell : geometry.cells(Box::Whole(out))) {
      cell.box = Intersect(cell.box, region);
      if (!cell.box.empty()) expected.push_back(cell);
    }
    const std::vector<SeamCell> cells = geometry.cells(region);
    ASSERT_EQ(cells.size(), expected.size());
    for (size_t i = 0; i < cells.size(); ++i) {
      ASSERT_EQ(cells[i].box, expected[i].box);
      ASSERT_EQ(cells[i].units, expected[i].units);
    }
  }
}

// The chosen partition against all even ones, by the seam bytes that geometry itself counts.
TEST(ItemGeometry, HasTheFewestSeamBytesOfAllEvenPartitions) {
  RandomTiling random(10);
  for (int round = 0; round < 150; ++round) {
    Case c = RandomCase(random);
    c.sizing.tail_begin = INT64_MAX;
    SCOPED_TRACE(Describe(c));
    const ItemGeometry geometry(c.shape, c.tiling, c.sizing);
    const Index counts = geometry.grid().counts();
    int64_t fewest = INT64_MAX;
    ForEach({{1, 1, 1}, {counts[0] + 1, counts[1] + 1, counts[2] + 1}}, [&](const Index& parts) {
      __int128 covers = 1, solos = 1;
      int64_t largest = 1;
      for (int axis = 0; axis < 3; ++axis) {
        int64_t cover = 0, solo = 0, tiles = 0;
        std::map<int64_t, std::set<int64_t>> blocks;
        for (int64_t part = 0; part < parts[axis]; ++part) {
          const int64_t begin = counts[axis] * part / parts[axis];
          const int64_t end = counts[axis] * (part + 1) / parts[axis];
          tiles = std::max(tiles, end - begin);
          for (int64_t tile = begin; tile < end; ++tile) {
            const TileWindow& window = geometry.windows(axis)[static_cast<size_t>(tile)];
            for (int64_t v = window.begin; v < window.end(); ++v) blocks[v].insert(part);
          }
        }
        for (const auto& [v, covering] : blocks) {
          cover += static_cast<int64_t>(covering.size());
          solo += covering.size() == 1;
        }
        covers *= cover;
        solos *= solo;
        largest *= tiles;
      }
      if (largest <= c.sizing.tiles)
        fewest = std::min(fewest, static_cast<int64_t>(covers - solos) * c.sizing.channels * 4);
    });
    ASSERT_EQ(geometry.seam_bytes(), fewest);
  }
}

Tiling Cubes(int64_t tile, int64_t overlap) {
  Tiling tiling;
  tiling.tile = {tile, tile, tile};
  tiling.overlap = {overlap, overlap, overlap};
  return tiling;
}

TEST(ItemGeometry, OneUnitHoldsAllOfASmallItemWithoutSeams) {
  const ItemGeometry geometry({20, 20, 20}, Cubes(8, 2), {.tiles = 64});
  EXPECT_EQ(geometry.units(), 1);
  EXPECT_EQ(geometry.interior(0), (Box::Whole({20, 20, 20})));
  EXPECT_TRUE(geometry.seams(0).empty());
  EXPECT_EQ(geometry.seam_bytes(), 0);
}

TEST(ItemGeometry, CropWindowsMakeNoSeams) {
  Tiling tiling = Cubes(8, 4);
  tiling.window = WindowKind::kCrop;
  const ItemGeometry geometry({40, 40, 40}, tiling, {.tiles = 8});
  EXPECT_GT(geometry.units(), 1);
  EXPECT_EQ(geometry.seam_bytes(), 0);
}

TEST(ItemGeometry, PlanesThatDoNotOverlapAreCutApartBeforeRowsThatDo) {
  Tiling tiling;
  tiling.tile = {1, 16, 16};
  tiling.overlap = {0, 4, 4};
  const ItemGeometry geometry({100, 50, 50}, tiling, {.tiles = 32});
  EXPECT_EQ(geometry.seam_bytes(), 0);
  EXPECT_EQ(geometry.unit_tiles(0).extent(1), 4);
  EXPECT_EQ(geometry.unit_tiles(0).extent(2), 4);
  EXPECT_EQ(geometry.unit_tiles(0).extent(0), 2);
}

TEST(ItemGeometry, TheAccumulatorStaysWithinItsBound) {
  const int64_t limit = 20'000;
  const UnitSizing sizing{.tiles = 1000, .accumulator_bytes = limit, .channels = 2};
  const ItemGeometry geometry({60, 60, 60}, Cubes(8, 2), sizing);
  for (int64_t unit = 0; unit < geometry.units(); ++unit) {
    EXPECT_LE(geometry.unit_cover(unit).voxels() * 2 * 4, limit);
  }
}

TEST(ItemGeometry, ATileBeyondTheBoundIsRefusedWithBothNumbers) {
  const UnitSizing sizing{.tiles = 16, .accumulator_bytes = 4000, .channels = 1};
  EXPECT_THAT(ErrorOf(Fault::kUsage,
                      [&] {
                        ItemGeometry({60, 60, 60}, Cubes(16, 4), sizing);
                      }),
              AllOf(HasSubstr("16384"), HasSubstr("4000")));
}

TEST(ItemGeometry, TheLastPartOfThePlanIsCutFourTimesAsFine) {
  const Tiling tiling = Cubes(8, 0);
  UnitSizing sizing{.tiles = 8 * 4};
  sizing.tail_begin = 32 * 4;  // 4 tiles a layer, 40 layers
  const ItemGeometry geometry({8 * 40, 16, 16}, tiling, sizing);
  for (int64_t unit = 0; unit < geometry.units(); ++unit) {
    const Box tiles = geometry.unit_tiles(unit);
    EXPECT_EQ(tiles.extent(0), tiles.begin[0] < 32 ? 8 : 2) << ToString(tiles);
  }
  EXPECT_EQ(geometry.units(), 4 + 4);
}

TEST(ItemGeometry, CostsMemoryPerAxisAndNotPerTile) {
  // 1.95 million tiles; a list of them all would be noticed in time and memory.
  const ItemGeometry geometry({10'000, 10'000, 10'000}, Cubes(96, 16),
                              {.tiles = 1024, .accumulator_bytes = int64_t{1} << 32});
  EXPECT_EQ(geometry.grid().tiles(), 125 * 125 * 125);
  EXPECT_GE(geometry.units(), 125 * 125 * 125 / 1024);
  const std::vector<SeamCell> cells = geometry.cells({{5000, 5000, 5000}, {5001, 5001, 5001}});
  EXPECT_EQ(cells.size(), 1u);
}

}  // namespace
}  // namespace tilery
