// Random files of grids through the codec and back: whatever they hold, the bound holds, the rest
// is exact, and neither the bytes nor what comes back of them depends on how many threads there
// were, and on which device.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "io/vdb_writer.h"
#include "pipeline/codec/grid_file.h"
#include "tests/io/temp_folder.h"
#include "tests/pipeline/codec/other_device.h"

namespace tilery {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class RandomGrid {
 public:
  RandomGrid(unsigned seed, int name) : random_(seed) {
    const char* const types[] = {"Tree_float_5_4_3", "Tree_double_5_4_3", "Tree_vec3s_5_4_3",
                                 "Tree_vec3d_5_4_3"};
    about_.name = about_.stored = "g" + std::to_string(name);
    about_.type = types[Below(4)];
    about_.half = Below(4) == 0;
    about_.packing = VdbPacking::kZip | VdbPacking::kActiveMask;
    about_.transform.type = "UniformScaleMap";
    about_.transform.bytes = std::string(15 * 8, '\1');
    if (Below(3) == 0) about_.metadata.push_back({"class", "string", "level set"});
    numbers_ = *VdbNumbersOf(about_.type);
    scale_ = std::pow(10.0, about_.half ? Below(5) - 3 : Below(61) - 30);
    wild_ = Below(3) == 0;
    constant_ = Below(5) == 0;
    smooth_ = name % 2 == 0;
  }

  void Write(VdbWriter& writer) {
    std::vector<VdbCoord> origins;
    for (const int32_t x : {-2147483647 - 1, -4096, 0, 2147483647 - 4095}) {
      if (Below(3) == 0) origins.push_back({x, 4096 * (Below(5) - 2), -4096 * Below(3)});
    }
    std::vector<VdbRootTile> tiles;
    if (Below(3) == 0) tiles.push_back({{8192, 0, 0}, Text(Value()), Below(2) == 0});
    writer.Begin(about_);
    writer.Root(Bytes(Background()), tiles, static_cast<uint32_t>(origins.size()));
    std::vector<std::pair<VdbNode, std::vector<std::byte>>> leaves;
    for (const VdbCoord& origin : origins) {
      const VdbNode upper = Inner(VdbLevel::kUpper, origin, Below(3));
      writer.Node(upper);
      for (int place = upper.children.NextOn(0); place >= 0;
           place = upper.children.NextOn(place + 1)) {
        const VdbNode lower =
            Inner(VdbLevel::kLower, At(upper, place), smooth_ ? 8 + Below(24) : Below(7));
        writer.Node(lower);
        for (int at = lower.children.NextOn(0); at >= 0; at = lower.children.NextOn(at + 1)) {
          leaves.push_back(Leaf(At(lower, at)));
          writer.Node(leaves.back().first);
        }
      }
    }
    for (const auto& [leaf, values] : leaves) writer.Leaf(leaf, values);
    writer.End();
  }

 private:
  int Below(int most) { return static_cast<int>(random_() % static_cast<unsigned>(most)); }
  double Background() const { return 0.5 * scale_; }
  double Value() {
    const double wild[] = {kNaN, kInfinity, -kInfinity, -0.0, 1e-40, 1e30};
    if (wild_ && Below(50) == 0) return wild[Below(6)];
    if (constant_) return 0.25 * scale_;
    return scale_ * 0.001 * (Below(1001) - 500);
  }
  double SmoothValue(const VdbCoord& origin, int voxel) {
    if (constant_ || (wild_ && Below(500) == 0)) return Value();
    const double x = origin[0] % 1000 + voxel / 64, y = origin[1] % 1000 + voxel / 8 % 8,
                 z = origin[2] % 1000 + voxel % 8;
    return scale_ * (std::sin(0.11 * x + 0.05 * y) + std::cos(0.09 * z - 0.03 * x) +
                     0.003 * (Below(21) - 10));
  }
  std::string Text(double value) const {
    std::string text;
    for (int c = 0; c < numbers_.components; ++c) {
      double number = c == 1 ? -value : value;
      if (about_.half) number = HalfToFloat(FloatToHalf(static_cast<float>(number)));
      const auto single = static_cast<float>(number);
      const bool wide = numbers_.dtype == DType::kF64;
      text.append(
          wide ? reinterpret_cast<const char*>(&number) : reinterpret_cast<const char*>(&single),
          DTypeSize(numbers_.dtype));
    }
    return text;
  }
  std::vector<std::byte> Bytes(double value) const {
    const std::string text = Text(value);
    const auto bytes = std::as_bytes(std::span(text));
    return {bytes.begin(), bytes.end()};
  }
  static VdbCoord At(const VdbNode& node, int place) {
    VdbCoord at = VdbPlaceOffset(node.level, place);
    for (size_t axis = 0; axis < 3; ++axis) at[axis] += node.origin[axis];
    return at;
  }
  VdbNode Inner(VdbLevel level, const VdbCoord& origin, int children) {
    const int places = VdbPlaces(level);
    VdbNode node{level, origin, VdbMask(places), VdbMask(places), {}};
    const int first = Below(places);  // beside each other, so that they share blocks
    for (int i = 0; i < children; ++i) node.children.SetOn((first + i) % places);
    const bool tiles = Below(2) == 0;
    for (int place = 0; place < places; ++place) {
      const bool child = node.children.on(place), tile = !child && tiles && Below(200) == 0;
      if (tile && Below(2) == 0) node.active.SetOn(place);
      const std::vector<std::byte> value = Bytes(child ? 0 : tile ? Value() : Background());
      node.values.insert(node.values.end(), value.begin(), value.end());
    }
    return node;
  }
  std::pair<VdbNode, std::vector<std::byte>> Leaf(const VdbCoord& origin) {
    VdbNode node{VdbLevel::kLeaf, origin, VdbMask(0), VdbMask(kVdbLeafVoxels), {}};
    std::vector<std::byte> values;
    const int active = Below(5);  // of four; none of them in some leaves
    for (int voxel = 0; voxel < kVdbLeafVoxels; ++voxel) {
      const bool on = Below(4) < active;
      if (on) node.active.SetOn(voxel);
      const std::vector<std::byte> value = Bytes(!on && Below(30) != 0 ? Background()
                                                 : smooth_             ? SmoothValue(origin, voxel)
                                                                       : Value());
      values.insert(values.end(), value.begin(), value.end());
    }
    return {node, values};
  }

  std::mt19937 random_;
  VdbGrid about_;
  VdbNumbers numbers_;
  double scale_ = 1;
  bool wild_ = false, constant_ = false, smooth_ = false;
};

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
