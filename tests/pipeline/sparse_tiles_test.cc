#include "pipeline/sparse_tiles.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <set>

#include "io/vdb_region.h"
#include "io/vdb_writer.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

// A file with one grid of leaves in the upper node that begins at `upper`: voxels of them, x, y, z.
class SparseTilesTest : public ::testing::Test {
 protected:
  VdbFile Write(const VdbCoord& upper, const std::set<VdbCoord>& voxels,
                const std::vector<VdbRootTile>& root_tiles = {}) {
    std::map<VdbCoord, std::map<VdbCoord, VdbMask>> lowers;  // lower -> leaf -> active
    for (const VdbCoord& voxel : voxels) {
      VdbCoord lower, leaf;
      for (size_t axis = 0; axis < 3; ++axis) {
        lower[axis] = voxel[axis] & -128;
        leaf[axis] = voxel[axis] & -8;
      }
      auto& mask = lowers[lower].try_emplace(leaf, VdbMask(kVdbLeafVoxels)).first->second;
      mask.SetOn(((voxel[0] & 7) * 8 + (voxel[1] & 7)) * 8 + (voxel[2] & 7));
    }
    const std::filesystem::path path = folder_ / "a.vdb";
    OutputFile out(path, "test");
    VdbWriter writer(out, 224, {}, 1);
    VdbGrid grid;
    grid.stored = "g";
    grid.type = "Tree_float_5_4_3";
    grid.packing = VdbPacking::kZip | VdbPacking::kActiveMask;
    grid.transform = {"UniformScaleMap", std::string(15 * 8, '\0')};
    writer.Begin(grid);
    const float background = 0.5f;
    writer.Root(std::as_bytes(std::span(&background, 1)), root_tiles, lowers.empty() ? 0 : 1);
    const auto node_of = [&](VdbLevel level, const VdbCoord& origin) {
      VdbNode node{level, origin, VdbMask(VdbPlaces(level)), VdbMask(VdbPlaces(level)), {}};
      for (int place = 0; place < VdbPlaces(level); ++place) {
        const auto bytes = std::as_bytes(std::span(&background, 1));
        node.values.insert(node.values.end(), bytes.begin(), bytes.end());
      }
      return node;
    };
    const auto place_of = [](VdbLevel level, const VdbCoord& above, const VdbCoord& at) {
      const int n = level == VdbLevel::kUpper ? 32 : 16;
      const int32_t edge = VdbPlaceEdge(level);
      return ((at[0] - above[0]) / edge * n + (at[1] - above[1]) / edge) * n +
             (at[2] - above[2]) / edge;
    };
    if (!lowers.empty()) {
      VdbNode top = node_of(VdbLevel::kUpper, upper);
      for (const auto& [origin, leaves] : lowers)
        top.children.SetOn(place_of(VdbLevel::kUpper, upper, origin));
      writer.Node(top);
    }
    std::vector<VdbNode> all;
    for (const auto& [origin, leaves] : lowers) {
      VdbNode lower = node_of(VdbLevel::kLower, origin);
      for (const auto& [leaf, mask] : leaves)
        lower.children.SetOn(place_of(VdbLevel::kLower, origin, leaf));
      writer.Node(lower);
      for (const auto& [leaf, mask] : leaves) {
        all.push_back({VdbLevel::kLeaf, leaf, VdbMask(0), mask, {}});
        writer.Node(all.back());
      }
    }
    for (const VdbNode& leaf : all) {
      std::vector<float> values(kVdbLeafVoxels, background);
      for (int voxel = leaf.active.NextOn(0); voxel >= 0; voxel = leaf.active.NextOn(voxel + 1)) {
        const VdbCoord at = VdbPlaceOffset(VdbLevel::kLeaf, voxel);
        values[static_cast<size_t>(voxel)] =
            ValueAt({leaf.origin[0] + at[0], leaf.origin[1] + at[1], leaf.origin[2] + at[2]});
      }
      writer.Leaf(leaf, std::as_bytes(std::span(values)));
    }
    writer.End();
    writer.Finish();
    out.Publish(Durability::kRename);
    return VdbFile(path);
  }
  static float ValueAt(const VdbCoord& at) {
    return static_cast<float>(at[0] % 97 * 3 + at[1] % 89 * 5 + at[2] % 83 * 7);
  }

  TempFolder folder_;
};

std::set<VdbCoord> RandomVoxels(std::mt19937& random, const VdbCoord& upper, int count) {
  std::uniform_int_distribution<int32_t> at(0, 299), cluster(0, 3);
  std::set<VdbCoord> voxels;
  while (static_cast<int>(voxels.size()) < count) {
    VdbCoord voxel;
    for (size_t axis = 0; axis < 3; ++axis)
      voxel[axis] = upper[axis] + (cluster(random) == 0 ? 900 : 0) + at(random);
    voxels.insert(voxel);
  }
  return voxels;
}

TEST_F(SparseTilesTest, EachActiveVoxelHasAllTilesWithWeightThereAndNoneIsMoved) {
  std::mt19937 random(4);
  for (const VdbCoord& upper :
       {VdbCoord{0, 0, 0}, {-4096, 8192, -4096}, {2147479552, 0, -2147483648}}) {
    const std::set<VdbCoord> voxels = RandomVoxels(random, upper, 40);
    const VdbFile file = Write(upper, voxels);
    Tiling tiling;
    tiling.tile = {24, 32, 16};
    tiling.overlap = {8, 12, 6};
    tiling.trim = {2, 0, 3};
    const SparseTiles found = FindSparseTiles(file, file.grids()[0], tiling);
    const ItemGeometry all(found.shape, tiling, {});
    const TileGrid& grid = all.grid();
    ASSERT_EQ(grid.padded, found.shape) << "no tile sticks out";
    const std::set<int64_t> tiles(found.tiles->begin(), found.tiles->end());
    ASSERT_EQ(tiles.size(), found.tiles->size());
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t stride = tiling.tile[axis] - tiling.overlap[axis];
      for (const SparseTiles::Run& run : found.runs[axis])
        ASSERT_EQ(run.grid % stride, 0) << "tiles begin at multiples of the stride";
      for (size_t k = 0; k < grid.starts[axis].size(); ++k)
        ASSERT_EQ(grid.starts[axis][k], static_cast<int64_t>(k) * stride);
    }
    std::set<int64_t> needed;
    for (const VdbCoord& voxel : voxels) {
      Index at = found.ToItem({voxel[2], voxel[1], voxel[0]});
      for (size_t axis = 0; axis < 3; ++axis) at[axis] += voxel[2 - axis];
      const Box one{at, {at[0] + 1, at[1] + 1, at[2] + 1}};
      ASSERT_TRUE(Box::Whole(found.shape).contains(one));
      Box range;  // of tiles that may reach the voxel
      for (size_t axis = 0; axis < 3; ++axis) {
        const int64_t stride = tiling.tile[axis] - tiling.overlap[axis];
        range.begin[axis] = std::max<int64_t>(at[axis] / stride - 3, 0);
        range.end[axis] = std::min<int64_t>(at[axis] / stride + 1, grid.counts()[axis]);
      }
      for (int64_t z = range.begin[0]; z < range.end[0]; ++z) {
        for (int64_t y = range.begin[1]; y < range.end[1]; ++y) {
          for (int64_t x = range.begin[2]; x < range.end[2]; ++x) {
            if (!all.tile_cover({z, y, x}).contains(one)) continue;
            needed.insert((z * grid.counts()[1] + y) * grid.counts()[2] + x);
          }
        }
      }
    }
    for (const int64_t tile : needed) ASSERT_TRUE(tiles.contains(tile));
    // More than that only where active voxels of one leaf lie apart.
    ASSERT_LE(tiles.size(), needed.size() + needed.size() / 4);
  }
}

TEST_F(SparseTilesTest, WhatLiesBetweenVoxelsFarFromEachOtherIsNotPartOfTheItem) {
  const VdbFile file = Write({0, 0, 0}, {{5, 6, 7}, {3000, 6, 7}, {3050, 6, 900}});
  Tiling tiling;
  tiling.tile = {16, 16, 24};
  tiling.overlap = {0, 8, 16};  // tiles 1, 2 and 3 strides apart have no voxel in common
  const SparseTiles found = FindSparseTiles(file, file.grids()[0], tiling);
  EXPECT_EQ(found.runs[0], (std::vector<SparseTiles::Run>{{0, 0}, {16, 896}}));
  EXPECT_EQ(found.runs[1], (std::vector<SparseTiles::Run>{{0, -8}}));
  EXPECT_EQ(found.runs[2], (std::vector<SparseTiles::Run>{{0, -16}, {40, 2984}, {80, 3032}}));
  EXPECT_EQ(found.shape, (Index{32, 24, 120}));
  // Each tile has in the item what it has in the grid.
  const ItemGeometry all(found.shape, tiling, {}, found.tiles);
  EXPECT_EQ(found.tiles->size(), 3u * 2 * 3);
  std::set<Index> begins;
  for (const int64_t tile : *found.tiles) {
    const Box box = all.grid().input_box(all.grid().tile_at(tile));
    found.VisitParts(box, [&](const Box& part, const Box& in_grid) {
      EXPECT_EQ(part, box) << "a tile is cut";
      EXPECT_EQ(in_grid.shape(), box.shape());
      begins.insert(in_grid.begin);
    });
  }
  std::set<Index> wanted;
  for (const auto& [z, first] : {std::pair{0, -16}, {0, 2984}, {896, 3032}}) {
    for (int tile = 0; tile < 6; ++tile) wanted.insert({z, tile / 3 * 8 - 8, first + tile % 3 * 8});
  }
  EXPECT_EQ(begins, wanted);
  int parts = 0;
  found.VisitParts(Box::Whole(found.shape), [&](const Box&, const Box&) { ++parts; });
  EXPECT_EQ(parts, 6);
}

TEST_F(SparseTilesTest, BoxesOfVoxelsAreReadAnywhere) {
  std::mt19937 random(5);
  const VdbCoord upper{-4096, 0, 4096};
  const std::set<VdbCoord> voxels = RandomVoxels(random, upper, 30000);
  const VdbFile file = Write(upper, voxels);
  const VdbRegions regions(file, file.grids()[0]);
  std::uniform_int_distribution<int64_t> begin(-20, 1150), extent(1, 60);
  int active = 0;
  for (int round = 0; round < 120; ++round) {
    Box box;
    for (size_t axis = 0; axis < 3; ++axis) {
      box.begin[axis] = upper[2 - axis] + begin(random);
      box.end[axis] = box.begin[axis] + extent(random);
    }
    std::vector<float> values(static_cast<size_t>(box.voxels()), -1.0f);
    regions.Read(box, DenseView(reinterpret_cast<std::byte*>(values.data()), DType::kF32, 1,
                                box.shape(), Layout::kInterleaved));
    size_t next = 0;
    for (int64_t z = box.begin[0]; z < box.end[0]; ++z) {
      for (int64_t y = box.begin[1]; y < box.end[1]; ++y) {
        for (int64_t x = box.begin[2]; x < box.end[2]; ++x) {
          const VdbCoord at{static_cast<int32_t>(x), static_cast<int32_t>(y),
                            static_cast<int32_t>(z)};
          const bool on = voxels.contains(at);
          active += on ? 1 : 0;
          ASSERT_EQ(values[next++], on ? ValueAt(at) : 0.5f);
        }
      }
    }
  }
  EXPECT_GT(active, 20);
}

TEST_F(SparseTilesTest, AGridWithoutActiveVoxelsHasOneTileAndOneWithoutEndIsRefused) {
  const VdbFile none = Write({0, 0, 0}, {});
  Tiling tiling;
  tiling.tile = {16, 16, 16};
  EXPECT_EQ(*FindSparseTiles(none, none.grids()[0], tiling).tiles, TileSet{0});
  const float value = 1;
  const std::string bytes(reinterpret_cast<const char*>(&value), sizeof value);
  const VdbFile endless = Write({0, 0, 0}, {}, {{{0, 0, 0}, bytes, true}});
  EXPECT_NE(ErrorOf(Fault::kInput, [&] { FindSparseTiles(endless, endless.grids()[0], tiling); })
                .find("4096^3"),
            std::string::npos);
}

}  // namespace
}  // namespace tilery
