// Random files of grids through the codec and back: whatever they hold, the bound holds, the rest
// is exact, and neither the bytes nor what comes back of them depends on how many threads there
// were, and on which device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "io/vdb_writer.h"
#include "pipeline/codec/grid_file.h"
#include "tests/io/temp_folder.h"
#include "tests/pipeline/codec/other_device.h"
#include "tests/pipeline/codec/random_grid.h"

namespace tilery {
namespace {

// Counts active finite values that are not exactly what they were.
int64_t Compare(const VdbFile& was, const VdbFile& is, size_t index, double bound) {
  const VdbGrid &a = was.grids()[index], &b = is.grids()[index];
  EXPECT_EQ(a.metadata, b.metadata);
  EXPECT_EQ(a.transform, b.transform);
  EXPECT_EQ(a.half, b.half);
  VdbTreeReader from(was, a), to(is, b);
  EXPECT_EQ(from.background(), to.background());
  EXPECT_EQ(from.root_tiles(), to.root_tiles());
  const VdbNumbers numbers = from.numbers();
  const size_t size = DTypeSize(numbers.dtype), values = numbers.bytes() / size * kVdbLeafVoxels;
  std::vector<std::byte> old(values * size), now(values * size);
  int64_t changed = 0;
  for (VdbNode node, other; from.Next(&node);) {
    if (!to.Next(&other) || node != other) {
      ADD_FAILURE() << "a node differs in " << a.name;
      return changed;
    }
    if (node.level != VdbLevel::kLeaf) continue;
    from.ReadLeaf(node, old);
    to.ReadLeaf(other, now);
    for (size_t i = 0; i < values; ++i) {
      if (std::memcmp(&old[i * size], &now[i * size], size) == 0) continue;
      ++changed;
      const auto voxel = static_cast<int>(i) / numbers.components;
      EXPECT_TRUE(node.active.on(voxel)) << "an inactive value differs in " << a.name;
      // Not so for values that are no numbers, either.
      EXPECT_LE(std::abs(VdbNumberAt(&old[i * size], numbers.dtype) -
                         VdbNumberAt(&now[i * size], numbers.dtype)),
                bound);
    }
  }
  VdbNode more;
  EXPECT_FALSE(to.Next(&more));
  return changed;
}

TEST(GridProperty, WhateverGridsHoldTheBoundHoldsAndTheRestIsExact) {
  const TempFolder folder;
  const char* const bounds[] = {"lossless", "0.1%", "1%", "20%", "0.003"};
  const auto bounds_of = [&](unsigned round) {
    constexpr GridMethod kMethods[] = {GridMethod::kBounded, GridMethod::kVq, GridMethod::kAuto};
    const GridMethod method = kMethods[round % 3];
    GridBounds wanted =
        ParseGridBounds(method == GridMethod::kVq && round % 2 == 0 ? "none" : bounds[round % 5]);
    wanted.method = method;
    return wanted;
  };
  const std::unique_ptr<NumberDevice> other = OtherDevice();
  const std::unique_ptr<VqDevice> other_vq = OtherVqDevice();
  if (!other) GTEST_SKIP() << "there is no other device";
  int64_t changed = 0;
  int contexts = 0, codes = 0;
  for (unsigned round = 0; round < 50; ++round) {
    SCOPED_TRACE(round);
    {
      OutputFile out(folder / "a.vdb", "test");
      VdbWriter writer(out, 224, {}, 4);
      for (int g = 0; g < 4; ++g)
        RandomGrid(1000 + 4 * round + static_cast<unsigned>(g), g).Write(writer);
      writer.Finish();
      out.Publish(Durability::kRename);
    }
    const VdbFile from(folder / "a.vdb");
    std::string packed, back;
    struct Way {
      int threads;
      bool encode_there, decode_there;  // on the other device
    };
    for (const Way& way : {Way{0, false, false}, Way{1, false, true}, Way{3, true, false}}) {
      SCOPED_TRACE(way.threads);
      std::optional<ThreadPool> pool;
      if (way.threads > 0) pool.emplace(way.threads);
      GridWork work;
      work.pool = pool ? &*pool : nullptr;
      {
        work.devices = {way.encode_there ? other.get() : nullptr,
                        way.encode_there ? other_vq.get() : nullptr};
        OutputFile out(folder / "a.tvdb", "test");
        CompressGrids(from, out, bounds_of(round), work);
        out.Publish(Durability::kRename);
      }
      {
        work.devices = {way.decode_there ? other.get() : nullptr,
                        way.decode_there ? other_vq.get() : nullptr};
        OutputFile out(folder / "b.vdb", "test");
        DecompressGrids(TvdbFile(folder / "a.tvdb"), out, work);
        out.Publish(Durability::kRename);
      }
      if (way.threads > 0) {
        EXPECT_TRUE(ContentOf(folder / "a.tvdb") == packed);
        EXPECT_TRUE(ContentOf(folder / "b.vdb") == back);
      }
      packed = ContentOf(folder / "a.tvdb");
      back = ContentOf(folder / "b.vdb");
    }
    const std::vector<GridReport> said = ReportsOf(TvdbFile(folder / "a.tvdb"));
    const VdbFile is(folder / "b.vdb");
    ASSERT_EQ(is.grids().size(), 4u);
    const GridRanges ranges = MeasureGrids(from);
    const GridBounds wanted = Resolve(bounds_of(round), from.grids(), ranges);
    for (size_t g = 0; g < 4; ++g) {
      const GridBound& bound = wanted.For(from.grids()[g]);
      double most = bound.kind == GridBound::Kind::kAbsolute ? bound.value : 0;
      if (bound.kind == GridBound::Kind::kNone) most = INFINITY;
      EXPECT_LE(said[g].max_error, most);
      changed += Compare(from, is, g, said[g].max_error);
      codes += said[g].codes ? 1 : 0;
      contexts += said[g].context ? 1 : 0;
    }
  }
  EXPECT_GT(changed, 10000);  // else no bound was put to the test
  EXPECT_GT(contexts, 20);    // else nothing was left to the other device
  EXPECT_GT(codes, 20);
}

TEST(GridProperty, AFileMayHaveMoreGridsThanAByteCounts) {
  const TempFolder folder;
  constexpr int kGrids = 300;
  {
    OutputFile out(folder / "a.vdb", "test");
    VdbWriter writer(out, 224, {}, kGrids);
    for (int g = 0; g < kGrids; ++g)
      RandomGrid(7000 + static_cast<unsigned>(g % 9), g).Write(writer);
    writer.Finish();
    out.Publish(Durability::kRename);
  }
  const VdbFile from(folder / "a.vdb");
  {
    OutputFile out(folder / "a.tvdb", "test");
    CompressGrids(from, out, ParseGridBounds("lossless"));
    out.Publish(Durability::kRename);
  }
  {
    OutputFile out(folder / "b.vdb", "test");
    DecompressGrids(TvdbFile(folder / "a.tvdb"), out);
    out.Publish(Durability::kRename);
  }
  const VdbFile is(folder / "b.vdb");
  ASSERT_EQ(is.grids().size(), size_t{kGrids});
  for (size_t g = 0; g < kGrids; ++g) {
    EXPECT_EQ(is.grids()[g].label, from.grids()[g].label);
    EXPECT_EQ(Compare(from, is, g, 0), 0);
  }
}

}  // namespace
}  // namespace tilery
