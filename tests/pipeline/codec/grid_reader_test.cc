#include "pipeline/codec/grid_reader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include "io/error.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/pipeline/codec/random_grid.h"
#include "tests/pipeline/codec/tvdb_mutate.h"
#include "tests/pipeline/codec/tvdb_sample.h"

namespace tilery {
namespace {

// All nodes of a grid, and a box of voxels from them in the plainest way.
class Nodes {
 public:
  Nodes(const VdbFile& file, const VdbGrid& grid)
      : tree_(file, grid), numbers_(tree_.numbers()), background_(tree_.background()) {
    for (VdbNode node; tree_.Next(&node);) {
      if (node.level == VdbLevel::kLeaf) {
        node.values.resize(kVdbLeafVoxels * numbers_.bytes());
        tree_.ReadLeaf(node, node.values);
        leaves.push_back(node);
      }
      all_.push_back(node);
    }
  }

  // Bytes of the values, and which are active.
  std::pair<std::string, std::string> Read(const VdbBox& box) const {
    std::pair<std::string, std::string> out;
    for (int64_t x = box.begin[0]; x < box.end[0]; ++x) {
      for (int64_t y = box.begin[1]; y < box.end[1]; ++y) {
        for (int64_t z = box.begin[2]; z < box.end[2]; ++z) {
          bool active = false;
          out.first += At({x, y, z}, &active);
          out.second += active ? '\1' : '\0';
        }
      }
    }
    return out;
  }

  std::vector<VdbNode> leaves;

 private:
  std::string At(const std::array<int64_t, 3>& at, bool* active) const {
    const auto inside = [&](const VdbCoord& origin, VdbLevel level) {
      for (size_t axis = 0; axis < 3; ++axis) {
        if (at[axis] < origin[axis] || at[axis] >= int64_t{origin[axis]} + VdbEdge(level))
          return false;
      }
      return true;
    };
    for (const VdbRootTile& tile : tree_.root_tiles()) {
      if (!inside(tile.origin, VdbLevel::kUpper)) continue;
      *active = tile.active;
      return tile.value;
    }
    for (const VdbNode& node : all_) {
      if (!inside(node.origin, node.level)) continue;
      const int64_t edge = VdbPlaceEdge(node.level), side = VdbEdge(node.level) / edge;
      int64_t place = 0;
      for (size_t axis = 0; axis < 3; ++axis)
        place = place * side + (at[axis] - node.origin[axis]) / edge;
      if (node.children.places() > 0 && node.children.on(static_cast<int>(place))) continue;
      *active = node.active.on(static_cast<int>(place));
      return {reinterpret_cast<const char*>(
                  &node.values[static_cast<size_t>(place) * numbers_.bytes()]),
              numbers_.bytes()};
    }
    return background_;
  }

  VdbTreeReader tree_;
  const VdbNumbers numbers_;
  const std::string background_;
  std::vector<VdbNode> all_;
};

template <typename Number>
std::pair<std::string, std::string> ReadBox(const GridReader& reader, size_t grid,
                                            const VdbBox& box) {
  size_t voxels = 1;
  for (size_t axis = 0; axis < 3; ++axis)
    voxels *= static_cast<size_t>(box.end[axis] - box.begin[axis]);
  std::vector<Number> values(
      voxels * static_cast<size_t>(reader.CodedTree(grid).coding.numbers.components), Number{99});
  std::string active(voxels, '\7');
  reader.Read(grid, box, values.data(), reinterpret_cast<uint8_t*>(active.data()));
  return {{reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Number)}, active};
}

std::pair<std::string, std::string> ReadOwn(const GridReader& reader, size_t grid,
                                            const VdbBox& box) {
  return reader.CodedTree(grid).coding.numbers.dtype == DType::kF64
             ? ReadBox<double>(reader, grid, box)
             : ReadBox<float>(reader, grid, box);
}

class GridReaderTest : public testing::Test {
 protected:
  // a.vdb, of these grids -> a.tvdb -> b.vdb
  void BothWays(unsigned seed, int grids, const std::string& bound) {
    {
      OutputFile out(folder_ / "a.vdb", "test");
      VdbWriter writer(out, 224, {}, grids);
      for (int g = 0; g < grids; ++g) RandomGrid(seed + static_cast<unsigned>(g), g).Write(writer);
      writer.Finish();
      out.Publish(Durability::kRename);
    }
    {
      OutputFile out(folder_ / "a.tvdb", "test");
      CompressGrids(VdbFile(folder_ / "a.vdb"), out, ParseGridBounds(bound));
      out.Publish(Durability::kRename);
    }
    OutputFile out(folder_ / "b.vdb", "test");
    DecompressGrids(TvdbFile(folder_ / "a.tvdb"), out);
    out.Publish(Durability::kRename);
  }
  // Somewhere at or near a voxel of a leaf, or a node of a grid.
  VdbBox Box(const Nodes& nodes, std::mt19937& random) {
    const auto below = [&random](int64_t most) {
      return static_cast<int64_t>(random() % static_cast<uint64_t>(most));
    };
    VdbBox box;
    const VdbNode* const leaf =
        nodes.leaves.empty()
            ? nullptr
            : &nodes.leaves[static_cast<size_t>(below(static_cast<int64_t>(nodes.leaves.size())))];
    const int64_t reach[] = {3, 20, 200, 5000};
    const int64_t off = reach[below(4)];
    for (size_t axis = 0; axis < 3; ++axis) {
      box.begin[axis] = (leaf != nullptr ? leaf->origin[axis] : 0) + below(2 * off) - off;
      box.end[axis] = box.begin[axis] + 1 + below(axis == 0 ? 5 : 30);
    }
    return box;
  }

  TempFolder folder_;
};

TEST_F(GridReaderTest, BoxesAndLeavesAreWhatDecompressionGives) {
  std::mt19937 random(5);
  int64_t active = 0;
  int halves = 0, doubles = 0, vectors = 0;
  for (unsigned round = 0; round < 12; ++round) {
    SCOPED_TRACE(round);
    BothWays(2000 + 4 * round, 4, round % 2 == 0 ? "1%" : "lossless");
    const VdbFile file(folder_ / "b.vdb");
    const GridReader reader(folder_ / "a.tvdb");
    ASSERT_EQ(reader.reports().size(), 4u);
    for (size_t g = 0; g < 4; ++g) {
      SCOPED_TRACE(g);
      const Nodes nodes(file, file.grids()[g]);
      const VdbNumbers numbers = reader.CodedTree(g).coding.numbers;
      halves += file.grids()[g].half ? 1 : 0;
      doubles += numbers.dtype == DType::kF64 ? 1 : 0;
      vectors += numbers.components == 3 ? 1 : 0;
      for (int i = 0; i < 20; ++i) {
        const VdbBox box = Box(nodes, random);
        const auto is = ReadOwn(reader, g, box), was = nodes.Read(box);
        ASSERT_TRUE(is == was) << box.begin[0] << ' ' << box.begin[1] << ' ' << box.begin[2];
        active += std::count(is.second.begin(), is.second.end(), '\1');
      }
      LeafReader leaves(reader, g);
      LeafReader::Leaf leaf;
      for (const VdbNode& node : nodes.leaves) {
        ASSERT_TRUE(leaves.Next(&leaf));
        ASSERT_EQ(leaf.origin, node.origin);
        ASSERT_TRUE(
            std::equal(leaf.active.begin(), leaf.active.end(), node.active.words().begin()));
        ASSERT_TRUE(std::equal(leaf.values.begin(), leaf.values.end(), node.values.begin(),
                               node.values.end()));
      }
      EXPECT_FALSE(leaves.Next(&leaf));
      EXPECT_FALSE(leaves.Next(&leaf));
    }
  }
  EXPECT_GT(active, 10000);
  EXPECT_GT(std::min({halves, doubles, vectors}), 3);
}

TEST_F(GridReaderTest, DoublesAreRoundedAndFloatsWidened) {
  ASSERT_EQ(WriteTvdbSample((folder_ / "s.tvdb").c_str()), 0);
  const GridReader reader(folder_ / "s.tvdb");
  const VdbBox box{{-8, -8, -8}, {-6, -4, -1}};
  for (const size_t grid : {0, 1}) {
    const auto single = ReadBox<float>(reader, grid, box).first;
    const auto wide = ReadBox<double>(reader, grid, box).first;
    ASSERT_EQ(wide.size(), 2 * single.size());
    for (size_t i = 0; i < single.size() / sizeof(float); ++i) {
      float is;
      double was;
      std::memcpy(&is, &single[i * sizeof is], sizeof is);
      std::memcpy(&was, &wide[i * sizeof was], sizeof was);
      ASSERT_EQ(is, static_cast<float>(was));
    }
  }
}

TEST_F(GridReaderTest, ManyUpperNodesAreReadOneByOne) {
  // More than are kept.
  constexpr int kUppers = 600;
  static_assert(kUppers * (32768 * 4 + 8192) > GridReader::kKeptUppers);
  {
    OutputFile out(folder_ / "a.vdb", "test");
    VdbWriter writer(out, 224, {}, 1);
    VdbGrid about;
    about.name = about.stored = "density";
    about.type = "Tree_float_5_4_3";
    about.transform = {"TranslationMap", std::string(3 * 8, '\0')};
    writer.Begin(about);
    writer.Root(std::vector<std::byte>(4), {}, kUppers);
    VdbNode upper{VdbLevel::kUpper, {}, VdbMask(32768), VdbMask(32768), {}};
    for (int k = 0; k < kUppers; ++k) {
      upper.origin = {4096 * (k - kUppers / 2), 0, 0};
      upper.values.assign(size_t{32768} * 4, std::byte{0});
      const float value = static_cast<float>(k);
      std::memcpy(upper.values.data(), &value, sizeof value);
      writer.Node(upper);
    }
    writer.End();
    writer.Finish();
    out.Publish(Durability::kRename);
  }
  {
    OutputFile out(folder_ / "a.tvdb", "test");
    CompressGrids(VdbFile(folder_ / "a.vdb"), out, ParseGridBounds("lossless"));
    out.Publish(Durability::kRename);
  }
  const GridReader reader(folder_ / "a.tvdb");
  for (const int k : {0, 1, 299, 599}) {
    float values[2];
    const int64_t x = 4096 * (k - kUppers / 2);
    reader.Read(0, {{x, 127, 0}, {x + 1, 129, 1}}, values, nullptr);
    EXPECT_EQ(values[0], static_cast<float>(k));
    EXPECT_EQ(values[1], 0);
  }
}

TEST_F(GridReaderTest, DamageHurtsWhatIsReadThereAndNothingElse) {
  ASSERT_EQ(WriteTvdbSample((folder_ / "s.tvdb").c_str()), 0);
  std::string content = ContentOf(folder_ / "s.tvdb");
  const VdbBox left{{-8, -8, -8}, {0, 0, 0}}, right{{256, 0, 0}, {264, 8, 8}},
      tile{{130, 1, 1}, {132, 2, 2}};
  {
    const TvdbFile file(folder_ / "s.tvdb");
    const GridIndex index(file);
    const TvdbPiece* const piece = index.grid(0).regions.at({256, 0, 0});
    content[static_cast<size_t>(piece->offset + piece->bytes / 2)] ^= 1;
  }
  const GridReader whole(folder_ / "s.tvdb");
  MakeFile(folder_ / "bad.tvdb", content);
  const GridReader bad(folder_ / "bad.tvdb");
  for (const size_t grid : {0, 2}) {  // the second shares the tree of the first
    EXPECT_EQ(ReadOwn(bad, grid, left), ReadOwn(whole, grid, left));
    EXPECT_EQ(ReadOwn(bad, grid, tile), ReadOwn(whole, grid, tile));
    const std::string said = ErrorOf(Fault::kInput, [&] { ReadOwn(bad, grid, right); });
    EXPECT_NE(said.find("bad.tvdb"), std::string::npos) << said;
    EXPECT_NE(said.find("of grid 0 at 256, 0, 0"), std::string::npos) << said;
  }
  // Whoever wants all leaves gets those that there are.
  LeafReader leaves(bad, 0);
  LeafReader::Leaf leaf;
  EXPECT_TRUE(leaves.Next(&leaf));
  EXPECT_EQ(leaf.origin, (VdbCoord{-8, -8, -8}));
  ErrorOf(Fault::kInput, [&] { leaves.Next(&leaf); });
  EXPECT_FALSE(leaves.Next(&leaf));
}

// Checksums are right in all of these.
TEST_F(GridReaderTest, FilesThatContradictThemselvesAreRefused) {
  ASSERT_EQ(WriteTvdbSample((folder_ / "s.tvdb").c_str()), 0);
  TvdbParts sample;
  ASSERT_TRUE(TakeApart(ContentOf(folder_ / "s.tvdb"), &sample));
  const auto first = [](TvdbParts& parts, PieceKind kind) {
    return std::find_if(parts.pieces.begin(), parts.pieces.end(), [kind](const auto& piece) {
      return piece.kind == static_cast<uint32_t>(kind);
    });
  };
  const auto twice = [&](PieceKind kind) {
    return [&first, kind](TvdbParts& parts) { parts.pieces.push_back(*first(parts, kind)); };
  };
  const auto changed = [&](const std::function<void(GridPiece&)>& change) {
    return [&first, change](TvdbParts& parts) {
      std::string& bytes = first(parts, PieceKind::kGrid)->bytes;
      GridPiece piece = UnpackGrid(std::as_bytes(std::span(bytes)));
      change(piece);
      const std::vector<std::byte> packed = PackGrid(piece);
      bytes.assign(reinterpret_cast<const char*>(packed.data()), packed.size());
    };
  };
  struct Case {
    const char* what;
    std::function<void(TvdbParts&)> change;
  };
  const Case cases[] = {
      {"the file is described twice", twice(PieceKind::kFile)},
      {"grid 0 is described twice", twice(PieceKind::kGrid)},
      {"is there twice", twice(PieceKind::kRegion)},
      {"nothing is said of the file",
       [&](TvdbParts& parts) { parts.pieces.erase(first(parts, PieceKind::kFile)); }},
      {"nothing is said of grid 0",
       [&](TvdbParts& parts) { parts.pieces.erase(first(parts, PieceKind::kGrid)); }},
      {"it is missing",
       [&](TvdbParts& parts) { parts.pieces.erase(first(parts, PieceKind::kRegion)); }},
      {"it has no bytes", [&](TvdbParts& parts) { first(parts, PieceKind::kRegion)->bytes = ""; }},
      {"needs the masks of a grid before it",
       [&](TvdbParts& parts) { first(parts, PieceKind::kRegion)->bytes[0] = 1; }},
      {"a piece of grid 9 of 4",
       [&](TvdbParts& parts) { first(parts, PieceKind::kRegion)->grid = 9; }},
      {"unknown kind 77", [&](TvdbParts& parts) { first(parts, PieceKind::kRegion)->kind = 77; }},
      {"a transform that is none",
       changed([](GridPiece& piece) { piece.about.transform.bytes.pop_back(); })},
      {"a transform that is none",
       changed([](GridPiece& piece) { piece.about.transform.type = "NonlinearFrustumMap"; })},
      {"there are regions of it, but it is not coded",
       changed([](GridPiece& piece) { piece.how = GridPiece::How::kOpaque; })},
      {"an upper node at 5", changed([](GridPiece& piece) {
         piece.upper_stream.clear();
         piece.uppers = 0;
         UpperWriter uppers(piece.coding, &piece);
         VdbNode node{VdbLevel::kUpper, {5, 0, 0}, VdbMask(32768), VdbMask(32768), {}};
         node.values.resize(size_t{32768} * 4);
         uppers.Add(node);
         uppers.Finish();
       })}};
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.what);
    TvdbParts parts = sample;
    wrong.change(parts);
    MakeFile(folder_ / "bad.tvdb", parts.Together());
    const std::string read = ErrorOf(Fault::kInput, [&] {
      const GridReader reader(folder_ / "bad.tvdb");
      LeafReader leaves(reader, 0);
      for (LeafReader::Leaf leaf; leaves.Next(&leaf);) continue;
    });
    const std::string decompressed = ErrorOf(Fault::kInput, [&] {
      OutputFile out(folder_ / "bad.vdb", "test");
      DecompressGrids(TvdbFile(folder_ / "bad.tvdb"), out);
    });
    for (const std::string& said : {read, decompressed}) {
      EXPECT_NE(said.find(wrong.what), std::string::npos) << said;
      EXPECT_EQ(said.find((folder_ / "bad.tvdb").string()), 0u) << said;
    }
  }
  // A grid whose tree is another's that there is not: no matter to decompression.
  TvdbParts parts = sample;
  for (TvdbParts::Piece& piece : parts.pieces) {
    const size_t at = piece.bytes.rfind("density");
    if (piece.kind == static_cast<uint32_t>(PieceKind::kGrid) && piece.grid == 2)
      piece.bytes[at] = 'D';
  }
  MakeFile(folder_ / "bad.tvdb", parts.Together());
  EXPECT_NE(ErrorOf(Fault::kInput, [&] { GridReader(folder_ / "bad.tvdb"); })
                .find("'again' shares the tree of 'Density', which there is not"),
            std::string::npos);
  MakeFile(folder_ / "same.tvdb", sample.Together());
  EXPECT_EQ(ContentOf(folder_ / "same.tvdb"), ContentOf(folder_ / "s.tvdb"));
}

TEST_F(GridReaderTest, ThreadsReadOneFileAtTheSameTime) {
  BothWays(3001, 4, "1%");
  const VdbFile file(folder_ / "b.vdb");
  const GridReader reader(folder_ / "a.tvdb"), other(folder_ / "a.tvdb");
  std::vector<std::thread> threads;
  for (unsigned k = 0; k < 4; ++k) {
    threads.emplace_back([&, k] {
      std::mt19937 random(k);
      for (size_t g = 0; g < 4; ++g) {
        const Nodes nodes(file, file.grids()[g]);
        for (int i = 0; i < 5; ++i) {
          const VdbBox box = Box(nodes, random);
          EXPECT_TRUE(ReadOwn(reader, g, box) == ReadOwn(other, g, box));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tilery
