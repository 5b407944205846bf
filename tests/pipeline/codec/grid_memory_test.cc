// A program of its own: the peak of its memory is the codec's.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "io/vdb_writer.h"
#include "pipeline/codec/grid_reader.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

constexpr int kLeavesOfNode = 4096;

int64_t PeakMemory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} << 10;
}

// Full lower nodes, one active voxel in each leaf.
void WriteLeaves(const std::filesystem::path& path, int lowers) {
  OutputFile out(path, "test");
  VdbWriter writer(out, 224, {}, 1);
  VdbGrid about;
  about.name = about.stored = "density";
  about.type = "Tree_float_5_4_3";
  about.packing = VdbPacking::kActiveMask;
  about.transform = {"UniformScaleMap", std::string(15 * 8, '\1')};
  writer.Begin(about);
  writer.Root(std::vector<std::byte>(4), {}, 1);
  const auto inner = [](VdbLevel level, const VdbCoord& origin, int children) {
    const int places = VdbPlaces(level);
    VdbNode node{level, origin, VdbMask(places), VdbMask(places), {}};
    for (int place = 0; place < children; ++place) node.children.SetOn(place);
    node.values.resize(static_cast<size_t>(places) * 4);
    return node;
  };
  VdbNode leaf{VdbLevel::kLeaf, {}, VdbMask(0), VdbMask(kVdbLeafVoxels), {}};
  leaf.active.SetOn(77);
  writer.Node(inner(VdbLevel::kUpper, {}, lowers));
  for (int k = 0; k < lowers; ++k) {
    writer.Node(inner(VdbLevel::kLower, VdbPlaceOffset(VdbLevel::kUpper, k), kLeavesOfNode));
    for (int i = 0; i < kLeavesOfNode; ++i) writer.Node(leaf);
  }
  std::mt19937 random(1);
  std::vector<float> values(kVdbLeafVoxels);
  for (int i = 0; i < lowers * kLeavesOfNode; ++i) {
    values[77] = static_cast<float>(random() % 1000);
    writer.Leaf(leaf, std::as_bytes(std::span(values)));
  }
  writer.End();
  writer.Finish();
  out.Publish(Durability::kRename);
}

// There and back, to the same bytes.
void RoundTrip(const TempFolder& folder, int lowers) {
  WriteLeaves(folder / "a.vdb", lowers);
  {
    OutputFile out(folder / "a.tvdb", "test");
    CompressGrids(VdbFile(folder / "a.vdb"), out, ParseGridBounds("lossless"));
    out.Publish(Durability::kRename);
  }
  {
    OutputFile out(folder / "b.vdb", "test");
    DecompressGrids(TvdbFile(folder / "a.tvdb"), out);
    out.Publish(Durability::kRename);
  }
  {
    const GridReader reader(folder / "a.tvdb");
    LeafReader leaves(reader, 0);
    LeafReader::Leaf leaf;
    int count = 0;
    while (leaves.Next(&leaf)) ++count;
    EXPECT_EQ(count, lowers * kLeavesOfNode);
  }
  // Read as streams: whole files would be what memory peaks at.
  std::ifstream a(folder / "a.vdb", std::ios::binary), b(folder / "b.vdb", std::ios::binary);
  using Bytes = std::istreambuf_iterator<char>;
  EXPECT_TRUE(std::equal(Bytes(a), Bytes(), Bytes(b), Bytes()));
}

TEST(GridMemory, DoesNotGrowWithTheNumberOfLeaves) {
  const TempFolder folder;
  RoundTrip(folder, 25);  // 102,400 leaves
  const int64_t before = PeakMemory();
  RoundTrip(folder, 245);  // 1,003,520 leaves
  EXPECT_LT(before, int64_t{100} << 20);
  EXPECT_LT(PeakMemory() - before, int64_t{4} << 20);
}

}  // namespace
}  // namespace tilery
