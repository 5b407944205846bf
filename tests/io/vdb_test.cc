#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <cstring>
#include <random>

#include "io/vdb_pack.h"
#include "io/vdb_tree.h"
#include "io/vdb_writer.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

// A grid in memory: nodes as a file has them, and the values of the leaves among them.
struct Grid {
  VdbGrid about;
  std::string background;
  std::vector<VdbRootTile> tiles;
  std::vector<VdbNode> nodes;
  std::vector<std::vector<std::byte>> leaves;
};

std::string BytesOf(double number, const VdbNumbers& numbers) {
  std::string bytes;
  for (int c = 0; c < numbers.components; ++c) {
    const double value = number * (c + 1);
    const auto single = static_cast<float>(value);
    if (numbers.dtype == DType::kF64) {
      bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      bytes.append(reinterpret_cast<const char*>(&single), sizeof single);
    }
  }
  return bytes;
}

class VdbTest : public testing::Test {
 protected:
  // Numbers are quarters of small integers, which 16 bits hold, too.
  double Number() { return 0.25 * static_cast<double>(static_cast<int>(random_() % 1000) - 500); }
  void SetRandom(VdbMask* mask, int one_of, const VdbMask* but = nullptr) {
    for (int place = 0; place < mask->places(); ++place) {
      if (random_() % static_cast<unsigned>(one_of) == 0 && (but == nullptr || !but->on(place)))
        mask->SetOn(place);
    }
  }
  // Inactive values of six kinds, by turns.
  std::vector<std::byte> Values(const VdbNode& node, const Grid& grid, int kind) {
    const VdbNumbers numbers = *VdbNumbersOf(grid.about.type);
    const double background = 0.5;
    const double others[6][2] = {{background, background},
                                 {-background, -background},
                                 {7, 7},
                                 {-background, background},
                                 {9, background},
                                 {3, 4}};
    std::string all;
    const int places = VdbPlaces(node.level);
    for (int place = 0; place < places; ++place) {
      const bool child = node.level != VdbLevel::kLeaf && node.children.on(place);
      const double inactive = kind < 6 ? others[kind][random_() % 2] : Number();
      all += BytesOf(child ? 0 : node.active.on(place) ? Number() : inactive, numbers);
    }
    std::vector<std::byte> bytes(all.size());
    std::memcpy(bytes.data(), all.data(), all.size());
    return bytes;
  }
  Grid RandomGrid(const std::string& name, const std::string& type, bool half, uint32_t packing,
                  int uppers = 2) {
    Grid grid;
    grid.about.name = grid.about.stored = name;
    grid.about.type = type;
    grid.about.half = half;
    grid.about.packing = packing;
    grid.about.metadata = {{"name", "string", name}, {"frame", "int32", std::string(4, '\7')}};
    grid.about.transform = {"UniformScaleMap", std::string(15 * 8, 'x')};
    const VdbNumbers numbers = *VdbNumbersOf(type);
    grid.background = BytesOf(0.5, numbers);
    grid.tiles = {{{-8192, 4096, 0}, BytesOf(2.25, numbers), true},
                  {{8192, 0, 0}, BytesOf(-0.5, numbers), false}};
    int kind = 0;
    for (int u = 0; u < uppers; ++u) {
      VdbNode upper;
      upper.origin = {4096 * (u - 1), -4096, 2147479552 / 4096 * 4096};
      const std::vector<int> lowers = {5, 1000 + u, 32767};
      AddInner(&grid, &upper, lowers, kind++);
      for (const int place : lowers) {
        VdbNode lower;
        lower.level = VdbLevel::kLower;
        lower.origin = Below(upper, place);
        const std::vector<int> leaves = {0, 77, 78, 4095};
        AddInner(&grid, &lower, leaves, kind++ % 7);
        for (const int at : leaves) {
          VdbNode leaf;
          leaf.level = VdbLevel::kLeaf;
          leaf.origin = Below(lower, at);
          leaf.active = VdbMask(kVdbLeafVoxels);
          if (kind % 5 != 0) SetRandom(&leaf.active, 1 + kind % 3);
          grid.leaves.push_back(Values(leaf, grid, kind++ % 7));
          grid.nodes.push_back(std::move(leaf));
        }
      }
    }
    return grid;
  }
  void AddInner(Grid* grid, VdbNode* node, const std::vector<int>& below, int kind) {
    node->children = node->active = VdbMask(VdbPlaces(node->level));
    for (const int place : below) node->children.SetOn(place);
    SetRandom(&node->active, 50, &node->children);
    node->values = Values(*node, *grid, kind);
    grid->nodes.push_back(*node);
  }
  static VdbCoord Below(const VdbNode& node, int place) {
    VdbCoord origin = VdbPlaceOffset(node.level, place);
    for (int axis = 0; axis < 3; ++axis) origin[axis] += node.origin[axis];
    return origin;
  }

  static void WriteGrid(VdbWriter& writer, const Grid& grid) {
    writer.Begin(grid.about);
    uint32_t uppers = 0;
    for (const VdbNode& node : grid.nodes) uppers += node.level == VdbLevel::kUpper;
    writer.Root(std::as_bytes(std::span(grid.background)), grid.tiles, uppers);
    for (const VdbNode& node : grid.nodes) writer.Node(node);
    size_t leaf = 0;
    for (const VdbNode& node : grid.nodes) {
      if (node.level == VdbLevel::kLeaf) writer.Leaf(node, grid.leaves[leaf++]);
    }
    writer.End();
  }
  std::filesystem::path Write(const std::string& name, const std::vector<Grid>& grids) {
    OutputFile out(folder_ / name, "test");
    VdbWriter writer(out, 224, metadata_, static_cast<int32_t>(grids.size()));
    for (const Grid& grid : grids) WriteGrid(writer, grid);
    writer.Finish();
    out.Publish(Durability::kRename);
    return folder_ / name;
  }
  static Grid Read(const VdbFile& file, size_t index) {
    Grid grid;
    grid.about = file.grids().at(index);
    VdbTreeReader tree(file, grid.about);
    grid.background = tree.background();
    grid.tiles = tree.root_tiles();
    std::vector<std::byte> values(kVdbLeafVoxels * tree.numbers().bytes());
    for (VdbNode node; tree.Next(&node); grid.nodes.push_back(node)) {
      if (node.level != VdbLevel::kLeaf) continue;
      tree.ReadLeaf(node, values);
      grid.leaves.push_back(values);
    }
    tree.CheckEnd(true);
    return grid;
  }
  static void ExpectSame(const Grid& is, const Grid& should) {
    EXPECT_EQ(is.about.stored, should.about.stored);
    EXPECT_EQ(is.about.type, should.about.type);
    EXPECT_EQ(is.about.half, should.about.half);
    EXPECT_EQ(is.about.metadata, should.about.metadata);
    EXPECT_EQ(is.about.transform, should.about.transform);
    EXPECT_EQ(is.background, should.background);
    EXPECT_TRUE(is.tiles == should.tiles);
    EXPECT_TRUE(is.nodes == should.nodes);
    EXPECT_TRUE(is.leaves == should.leaves);
  }

  std::mt19937 random_{11};
  TempFolder folder_;
  std::vector<VdbMeta> metadata_ = {{"creator", "string", "a test"}};
};

constexpr uint32_t kPackings[] = {0, 1, 2, 3, 4, 6};

TEST_F(VdbTest, EveryTypeAndPackingComesBackBitForBit) {
  for (const char* type :
       {"Tree_float_5_4_3", "Tree_double_5_4_3", "Tree_vec3s_5_4_3", "Tree_vec3d_5_4_3"}) {
    for (const bool half : {false, true}) {
      for (const uint32_t packing : kPackings) {
        SCOPED_TRACE(std::string(type) + (half ? " half " : " ") + std::to_string(packing));
        const std::vector<Grid> grids = {RandomGrid("a", type, half, packing)};
        const VdbFile file(Write("a.vdb", grids));
        ASSERT_EQ(file.grids().size(), 1u);
        EXPECT_EQ(file.metadata(), metadata_);
        ExpectSame(Read(file, 0), grids[0]);
      }
    }
  }
}

TEST_F(VdbTest, ValuesThatAreNoNumbersKeepTheirBits) {
  Grid grid = RandomGrid("a", "Tree_float_5_4_3", false, 3);
  const float odd[] = {NAN, -NAN, INFINITY, -INFINITY, -0.0f, 1e-42f};
  for (size_t i = 0; i < grid.leaves.size(); ++i)
    std::memcpy(&grid.leaves[i][4 * i], &odd[i % 6], sizeof(float));
  for (const float background : {-0.0f, NAN}) {
    std::memcpy(grid.background.data(), &background, sizeof background);
    ExpectSame(Read(VdbFile(Write("a.vdb", {grid})), 0), grid);
  }
}

TEST_F(VdbTest, InactiveValuesAreLeftOutWhereTheyMayBe) {
  const VdbNumbers numbers;
  const std::string background = BytesOf(0.5, numbers);
  const auto of = [&](std::vector<double> inactive) {
    VdbMask active(kVdbLeafVoxels);
    std::string all;
    for (int place = 0; place < kVdbLeafVoxels; ++place) {
      if (place % 3 == 0) active.SetOn(place);
      const size_t which = static_cast<size_t>(place) % inactive.size();
      all += BytesOf(place % 3 == 0 ? 100.0 + place : inactive[which], numbers);
    }
    return VdbLeaveOut(numbers, std::as_bytes(std::span(background)), active, VdbMask(0),
                       std::as_bytes(std::span(all)))
        .inactive;
  };
  EXPECT_EQ(of({0.5}), VdbInactive::kBackground);
  EXPECT_EQ(of({-0.5}), VdbInactive::kMinusBackground);
  EXPECT_EQ(of({2}), VdbInactive::kOne);
  EXPECT_EQ(of({0.5, -0.5}), VdbInactive::kSigns);
  EXPECT_EQ(of({-0.5, 0.5}), VdbInactive::kSigns);
  EXPECT_EQ(of({0.5, 2}), VdbInactive::kOneOrBackground);
  EXPECT_EQ(of({2, 0.5}), VdbInactive::kOneOrBackground);
  EXPECT_EQ(of({2, -0.5}), VdbInactive::kTwo);
  EXPECT_EQ(of({2, 3, 4, 5}), VdbInactive::kStored);
}

TEST_F(VdbTest, TheSameContentGivesTheSameBytes) {
  Grid grid = RandomGrid("a", "Tree_float_5_4_3", false, 3);
  const std::string first = ContentOf(Write("a.vdb", {grid}));
  EXPECT_EQ(ContentOf(Write("b.vdb", {grid})), first);
  grid.leaves[0][0] ^= std::byte{1};
  const std::string other = ContentOf(Write("c.vdb", {grid}));
  constexpr size_t kIdentityAt = 21;
  EXPECT_NE(other.substr(kIdentityAt, 36), first.substr(kIdentityAt, 36));
}

TEST_F(VdbTest, GridsOfOneNameHaveLabelsAndStayInOrder) {
  std::vector<Grid> grids;
  for (const char* stored : {"v\x1e"
                             "0",
                             "density",
                             "v\x1e"
                             "1",
                             ""}) {
    grids.push_back(RandomGrid("", "Tree_float_5_4_3", false, 2, 1));
    grids.back().about.stored = stored;
  }
  const VdbFile file(Write("a.vdb", grids));
  std::vector<std::string> names, labels;
  for (const VdbGrid& grid : file.grids()) {
    names.push_back(grid.name);
    labels.push_back(grid.label);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"v", "density", "v", ""}));
  EXPECT_EQ(labels, (std::vector<std::string>{"v[0]", "density", "v[1]", ""}));
  for (size_t i = 0; i < grids.size(); ++i) ExpectSame(Read(file, i), grids[i]);
}

TEST_F(VdbTest, AGridWithoutNodesAndOneOfTilesAlone) {
  Grid empty = RandomGrid("empty", "Tree_vec3s_5_4_3", true, 3, 0);
  empty.tiles.clear();
  const Grid tiles = RandomGrid("tiles", "Tree_float_5_4_3", false, 6, 0);
  const VdbFile file(Write("a.vdb", {empty, tiles}));
  ExpectSame(Read(file, 0), empty);
  ExpectSame(Read(file, 1), tiles);
}

TEST_F(VdbTest, GridsArePassedOnAsBytes) {
  const std::vector<Grid> grids = {RandomGrid("a", "Tree_float_5_4_3", false, 2, 1),
                                   RandomGrid("b", "Tree_vec3d_5_4_3", false, 3, 1)};
  const VdbFile from(Write("a.vdb", grids));
  OutputFile out(folder_ / "b.vdb", "test");
  VdbWriter writer(out, from.version(), from.metadata(), 3);
  writer.Copy(from, from.grids()[1]);
  writer.Copy(from, from.grids()[0]);
  VdbGrid twin = from.grids()[0];
  twin.stored = "twin";
  twin.twin_of = "a";
  twin.values = twin.end = twin.tree;
  writer.Copy(from, twin);
  writer.Finish();
  out.Publish(Durability::kRename);
  const VdbFile file(folder_ / "b.vdb");
  ExpectSame(Read(file, 0), grids[1]);
  ExpectSame(Read(file, 1), grids[0]);
  EXPECT_EQ(file.grids()[2].twin_of, "a");
  EXPECT_EQ(file.grids()[2].transform, twin.transform);
}

TEST_F(VdbTest, WhatIsTrueOfAFileAloneIsNotTakenOver) {
  Grid grid = RandomGrid("a", "Tree_float_5_4_3", false, 2, 1);
  const std::vector<VdbMeta> wanted = grid.about.metadata;
  grid.about.metadata.insert(grid.about.metadata.begin() + 1,
                             {"file_delayed_load", "__delayedload", std::string(5000, 'd')});
  const VdbFile file(Write("a.vdb", {grid}));
  EXPECT_EQ(file.grids()[0].metadata, wanted);
  grid.about.metadata = wanted;
  ExpectSame(Read(file, 0), grid);
}

TEST_F(VdbTest, CallsOutOfOrderAreRefused) {
  const Grid grid = RandomGrid("a", "Tree_float_5_4_3", false, 2, 1);
  OutputFile out(folder_ / "a.vdb", "test");
  VdbWriter writer(out, 224, {}, 1);
  ErrorOf(Fault::kInternal, [&] { writer.Finish(); });
  writer.Begin(grid.about);
  writer.Root(std::as_bytes(std::span(grid.background)), {}, 1);
  for (const VdbNode& node : grid.nodes) writer.Node(node);
  ErrorOf(Fault::kInternal, [&] { writer.End(); });
}

// ---- damage ----

int64_t PeakMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss << 10;
}

// Reads all; "" or what the error says.
std::string Try(const std::filesystem::path& path) {
  try {
    const VdbFile file(path);
    for (const VdbGrid& grid : file.grids()) {
      if (!VdbNumbersOf(grid.type) || !grid.twin_of.empty()) continue;
      VdbTreeReader tree(file, grid);
      std::vector<std::byte> values(kVdbLeafVoxels * tree.numbers().bytes());
      for (VdbNode node; tree.Next(&node);) {
        if (node.level == VdbLevel::kLeaf) tree.ReadLeaf(node, values);
      }
      tree.CheckEnd(true);
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kInput) << error.what();
    const std::string what = error.what();
    EXPECT_NE(what.find(path.filename().string()), std::string::npos) << what;
    EXPECT_LT(what.size(), 600u);
    return what;
  }
  return "";
}

TEST_F(VdbTest, ACutFileIsRefusedWhereverItIsCut) {
  const std::string whole =
      ContentOf(Write("a.vdb", {RandomGrid("a", "Tree_float_5_4_3", false, 3, 1),
                                RandomGrid("b", "Tree_vec3s_5_4_3", true, 6, 1)}));
  EXPECT_EQ(Try(folder_ / "a.vdb"), "");
  for (size_t length = 0; length < whole.size(); length += length < 2000 ? 1 : 997) {
    MakeFile(folder_ / "cut.vdb", whole.substr(0, length));
    ASSERT_NE(Try(folder_ / "cut.vdb"), "") << "cut to " << length << " of " << whole.size();
  }
}

TEST_F(VdbTest, WhateverIsDamagedMemoryStaysBounded) {
  const std::string whole =
      ContentOf(Write("a.vdb", {RandomGrid("a", "Tree_float_5_4_3", false, 3, 1),
                                RandomGrid("b", "Tree_double_5_4_3", false, 4, 1)}));
  Try(folder_ / "a.vdb");
  const int64_t before = PeakMemory();
  for (int round = 0; round < 1500; ++round) {
    std::string bad = whole;
    // Half of them where counts, lengths and places stand.
    const size_t among = round % 2 == 0 ? 900 : bad.size();
    for (int flips = 1 + round % 3; flips > 0; --flips)
      bad[random_() % among] ^= static_cast<char>(1 << random_() % 8);
    MakeFile(folder_ / "bad.vdb", bad);
    Try(folder_ / "bad.vdb");
  }
  EXPECT_LT(PeakMemory() - before, 64 << 20);
}

TEST_F(VdbTest, ClaimsOfMoreThanTheFileHoldsAreRefused) {
  const std::string whole =
      ContentOf(Write("a.vdb", {RandomGrid("a", "Tree_float_5_4_3", false, 3, 1)}));
  const int64_t before = PeakMemory();
  // Every place where four bytes could be a count.
  for (size_t at = 8; at < 800; ++at) {
    std::string bad = whole;
    const uint32_t claim = 0x7fffffff;
    std::memcpy(&bad[at], &claim, sizeof claim);
    MakeFile(folder_ / "bad.vdb", bad);
    Try(folder_ / "bad.vdb");
  }
  EXPECT_LT(PeakMemory() - before, 64 << 20);
}

TEST_F(VdbTest, WhatIsNoOpenVdbFileIsSaid) {
  MakeFile(folder_ / "a.vdb", "");
  EXPECT_NE(Try(folder_ / "a.vdb").find("no OpenVDB file"), std::string::npos);
  MakeFile(folder_ / "a.vdb", "#!/bin/sh\necho nothing of the kind\n");
  EXPECT_NE(Try(folder_ / "a.vdb").find("no OpenVDB file"), std::string::npos);
  std::string old = ContentOf(Write("b.vdb", {}));
  EXPECT_EQ(Try(folder_ / "b.vdb"), "");
  old[8] = static_cast<char>(213);
  MakeFile(folder_ / "a.vdb", old);
  EXPECT_NE(Try(folder_ / "a.vdb").find("version 213"), std::string::npos);
}

}  // namespace
}  // namespace tilery
