// Random grids for tests of the codec: of all types of numbers, with nodes anywhere, tiles, values
// that are no numbers, and leaves of every kind.
#pragma once

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/dtype.h"
#include "io/vdb_writer.h"

namespace tilery {

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
    constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
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

}  // namespace tilery
