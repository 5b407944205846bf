// Half-open boxes of voxels and the rational that joins two grids.
//
// All arithmetic is 64-bit. Axis order is z,y,x everywhere; a picture has z = 1. A box [begin, end)
// is empty if any extent is <= 0. Values are plain data: copy them freely between threads.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace tilery {

using Index = std::array<int64_t, 3>;  // z, y, x

struct Box {
  Index begin{0, 0, 0};
  Index end{0, 0, 0};

  static Box Whole(const Index& shape) { return {{0, 0, 0}, shape}; }
  int64_t extent(int axis) const { return end[axis] > begin[axis] ? end[axis] - begin[axis] : 0; }
  Index shape() const { return {extent(0), extent(1), extent(2)}; }
  int64_t voxels() const { return extent(0) * extent(1) * extent(2); }
  bool empty() const { return voxels() == 0; }
  bool contains(const Box& other) const;
  bool operator==(const Box&) const = default;
};

Box Intersect(const Box& a, const Box& b);  // empty boxes come back as {begin, begin}
Box Hull(const Box& a, const Box& b);       // smallest box around both; an empty one is ignored
Box Shift(const Box& box, const Index& by);
int64_t Product(const Index& shape);                      // throws Error(kUsage) beyond 2^62
std::string ToString(const Box& box);                     // "[z0:z1, y0:y1, x0:x1]"
std::string ShapeToString(const Index& shape, int dims);  // "512x2048x2048"; the last `dims` axes

// num/den > 0 in lowest terms: output voxels per input voxel along one axis.
struct Rational {
  int64_t num = 1;
  int64_t den = 1;

  static Rational Of(int64_t num, int64_t den);    // reduces; throws Error(kUsage) unless both > 0
  static Rational Parse(const std::string& text);  // "4", "1/8"; throws Error(kUsage)
  int64_t Floor(int64_t n) const;                  // floor(n * num / den), n >= 0
  int64_t Ceil(int64_t n) const;                   // ceil(n * num / den), n >= 0
  std::string ToString() const;                    // "4" or "1/8"
  bool operator==(const Rational&) const = default;
};
using Scale = std::array<Rational, 3>;  // z, y, x

}  // namespace tilery
