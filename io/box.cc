#include "io/box.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "io/error.h"

namespace tilery {
namespace {

constexpr int64_t kLargest = int64_t{1} << 62;

// Products of two 64-bit numbers do not fit 64 bits; scales of large volumes come close enough.
using Wide = __int128;

int64_t Narrow(Wide value) {
  if (value > kLargest) {
    throw Error(Fault::kUsage, "a size beyond 2^62 voxels can't be handled");
  }
  return static_cast<int64_t>(value);
}

// A whole positive decimal number, nothing else; 0 if it is none.
int64_t ParsePositive(const char* begin, const char* end) {
  int64_t value = 0;
  const auto [stop, failed] = std::from_chars(begin, end, value);
  return failed == std::errc() && stop == end && begin != end && value > 0 ? value : 0;
}

}  // namespace

bool Box::contains(const Box& other) const {
  if (other.empty()) return true;
  for (int axis = 0; axis < 3; ++axis) {
    if (other.begin[axis] < begin[axis] || other.end[axis] > end[axis]) return false;
  }
  return true;
}

Box Intersect(const Box& a, const Box& b) {
  Box out;
  for (int axis = 0; axis < 3; ++axis) {
    out.begin[axis] = std::max(a.begin[axis], b.begin[axis]);
    out.end[axis] = std::min(a.end[axis], b.end[axis]);
  }
  if (out.empty()) out.end = out.begin;
  return out;
}

Box Hull(const Box& a, const Box& b) {
  if (a.empty()) return b;
  if (b.empty()) return a;
  Box out;
  for (int axis = 0; axis < 3; ++axis) {
    out.begin[axis] = std::min(a.begin[axis], b.begin[axis]);
    out.end[axis] = std::max(a.end[axis], b.end[axis]);
  }
  return out;
}

Box Shift(const Box& box, const Index& by) {
  Box out = box;
  for (int axis = 0; axis < 3; ++axis) {
    out.begin[axis] += by[axis];
    out.end[axis] += by[axis];
  }
  return out;
}

int64_t Product(const Index& shape) {
  int64_t product = 1;
  bool zero = false;
  for (const int64_t extent : shape) {
    if (extent < 0) {
      throw Error(Fault::kUsage, "shape " + ShapeToString(shape, 3) + " has a negative extent");
    }
    zero = zero || extent == 0;
  }
  if (zero) return 0;
  for (const int64_t extent : shape) {
    if (extent > kLargest / product) {
      throw Error(Fault::kUsage,
                  "shape " + ShapeToString(shape, 3) + " has more than 2^62 voxels, the limit");
    }
    product *= extent;
  }
  return product;
}

std::string ToString(const Box& box) {
  std::string text = "[";
  for (int axis = 0; axis < 3; ++axis) {
    if (axis > 0) text += ", ";
    text += std::to_string(box.begin[axis]) + ":" + std::to_string(box.end[axis]);
  }
  return text + "]";
}

std::string ShapeToString(const Index& shape, int dims) {
  std::string text;
  for (int axis = 3 - std::clamp(dims, 1, 3); axis < 3; ++axis) {
    if (!text.empty()) text += "x";
    text += std::to_string(shape[axis]);
  }
  return text;
}

Rational Rational::Of(int64_t num, int64_t den) {
  if (num <= 0 || den <= 0) {
    throw Error(Fault::kUsage, "scale " + std::to_string(num) + "/" + std::to_string(den) +
                                   " is not positive; both numbers must be at least 1");
  }
  const int64_t divisor = std::gcd(num, den);
  return {num / divisor, den / divisor};
}

Rational Rational::Parse(const std::string& text) {
  const size_t slash = text.find('/');
  const char* begin = text.data();
  const char* end = begin + text.size();
  const int64_t num = ParsePositive(begin, slash == std::string::npos ? end : begin + slash);
  const int64_t den = slash == std::string::npos ? 1 : ParsePositive(begin + slash + 1, end);
  if (num == 0 || den == 0) {
    throw Error(Fault::kUsage, "scale \"" + Printable(text, 40) +
                                   "\" is neither a positive integer (4) nor a fraction (1/8)");
  }
  return Of(num, den);
}

int64_t Rational::Floor(int64_t n) const { return Narrow(Wide{n} * num / den); }

int64_t Rational::Ceil(int64_t n) const { return Narrow((Wide{n} * num + den - 1) / den); }

std::string Rational::ToString() const {
  return den == 1 ? std::to_string(num) : std::to_string(num) + "/" + std::to_string(den);
}

}  // namespace tilery
