#include "pipeline/window.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "io/error.h"

namespace tilery {
namespace {

// The C library's cos and exp may differ in the last bit between processors, since it picks
// variants with or without fused multiply-add when the program starts. Windows must be the same
// everywhere, so these use plain arithmetic only (the build forbids contraction).

// Taylor series of cos or sin on [0, pi/4], by Horner: 1 - y/(a*(a+1)) * (1 - y/((a+2)*(a+3)) *
// ...).
double AlternatingSeries(double square, int first) {
  double sum = 1;
  for (int a = first + 20; a >= first; a -= 2) sum = 1 - square / (a * (a + 1.0)) * sum;
  return sum;
}

// cos(pi * x) for 0 <= x <= 2; exact at multiples of 1/2.
double CosPi(double x) {
  constexpr double kPi = 3.141592653589793238462643;
  if (x > 1) x = 2 - x;
  if (x > 0.5) return -CosPi(1 - x);
  if (x <= 0.25) return AlternatingSeries(kPi * x * (kPi * x), 1);
  const double y = kPi * (0.5 - x);
  return y * AlternatingSeries(y * y, 2);
}

// exp(-x) for 0 <= x <= 700: 2^-k * exp(r) with |r| <= ln(2) / 2.
double ExpMinus(double x) {
  constexpr double kLog2e = 1.442695040888963407359925;
  constexpr double kLn2High =
      6.93147180369123816490e-01;  // ln 2, its low bits apart: k times it is exact
  constexpr double kLn2Low = 1.90821492927058770002e-10;
  const double k = std::floor(x * kLog2e + 0.5);
  const double r = (k * kLn2High - x) + k * kLn2Low;
  double sum = 1;
  for (int n = 16; n >= 1; --n) sum = 1 + r / n * sum;
  return std::ldexp(sum, -static_cast<int>(k));
}

// All lengths at output resolution.
struct Axis {
  WindowKind kind;
  int64_t tile;
  int64_t trim;
  int64_t ramp;  // V': what two neighbours share after the trim
  int64_t item;  // output voxels of the item
  std::vector<int64_t> starts;

  Axis(const TileGrid& grid, int axis)
      : kind(grid.tiling.window),
        tile(grid.output_tile()[axis]),
        trim(grid.tiling.scale[axis].Floor(grid.tiling.trim[axis])),
        ramp(grid.tiling.scale[axis].Floor(grid.tiling.overlap[axis]) - 2 * trim),
        item(grid.output_shape[axis]) {
    starts.reserve(grid.starts[axis].size());
    for (const int64_t start : grid.starts[axis]) {
      starts.push_back(grid.tiling.scale[axis].Floor(start));
    }
  }
};

// Ramp of one side: `i` counts from that side.
double Ramp(const Axis& axis, int64_t i) {
  if (i < axis.trim) return 0;
  if (i >= axis.trim + axis.ramp) return 1;
  const double linear = (static_cast<double>(i - axis.trim) + 0.5) / static_cast<double>(axis.ramp);
  return axis.kind == WindowKind::kLinear ? linear : 0.5 - 0.5 * CosPi(linear);
}

// The window of all kinds but crop, before normalisation.
std::vector<double> RawWindow(const Axis& axis, bool neighbour_before, bool neighbour_after) {
  std::vector<double> window(static_cast<size_t>(axis.tile));
  const auto length = static_cast<double>(axis.tile);
  for (int64_t i = 0; i < axis.tile; ++i) {
    const int64_t before = neighbour_before ? i : axis.tile;  // beyond any ramp
    const int64_t after = neighbour_after ? axis.tile - 1 - i : axis.tile;
    double& weight = window[static_cast<size_t>(i)];
    if (before < axis.trim || after < axis.trim) {
      weight = 0;
    } else if (axis.kind == WindowKind::kHann) {
      weight = 0.5 - 0.5 * CosPi(2 * (static_cast<double>(i) + 0.5) / length);
    } else if (axis.kind == WindowKind::kGaussian) {
      const double distance = (static_cast<double>(i) - (length - 1) / 2) / (length / 8);
      weight = ExpMinus(0.5 * distance * distance);
    } else {
      weight = Ramp(axis, before) * Ramp(axis, after);
    }
  }
  return window;
}

// Each voxel to the tile with the nearest centre; ties to the lower tile. Centres are equally far
// from their tiles' starts, so the border between neighbours lies at the mean of their centres.
std::vector<TileWindow> CropWindows(const Axis& axis) {
  std::vector<TileWindow> windows(axis.starts.size());
  int64_t begin = 0;
  for (size_t k = 0; k < windows.size(); ++k) {
    int64_t end = axis.item;
    if (k + 1 < windows.size()) {
      // Voxel v with centre v + 1/2 stays here while 2v + 1 <= start + next start + tile.
      end = std::min(end, (axis.starts[k] + axis.starts[k + 1] + axis.tile - 1) / 2 + 1);
    }
    windows[k] = {begin,
                  std::vector<float>(static_cast<size_t>(std::max<int64_t>(end - begin, 0)), 1.0f)};
    begin = end;
  }
  return windows;
}

}  // namespace

std::vector<TileWindow> MakeWindows(const TileGrid& grid, int axis_number) {
  const Axis axis(grid, axis_number);
  if (axis.kind == WindowKind::kCrop) return CropWindows(axis);
  const size_t count = axis.starts.size();
  const std::vector<double> only = RawWindow(axis, count > 1, false);  // also the last of several
  const std::vector<double> first = count > 1 ? RawWindow(axis, false, true) : only;
  const std::vector<double> middle = count > 2 ? RawWindow(axis, true, true) : first;
  const auto raw = [&](size_t k) -> const std::vector<double>& {
    return k + 1 == count ? only : k == 0 ? first : middle;
  };

  std::vector<double> sums(static_cast<size_t>(axis.item), 0.0);
  const auto inside = [&](size_t k) { return std::min(axis.tile, axis.item - axis.starts[k]); };
  for (size_t k = 0; k < count; ++k) {
    double* sum = sums.data() + axis.starts[k];
    for (int64_t i = 0; i < inside(k); ++i) sum[i] += raw(k)[static_cast<size_t>(i)];
  }
  if (const auto hole = std::find(sums.begin(), sums.end(), 0.0); hole != sums.end()) {
    throw Error(Fault::kInternal, "no tile has weight at output voxel " +
                                      std::to_string(hole - sums.begin()) + " of axis " +
                                      std::to_string(axis_number));
  }

  std::vector<TileWindow> windows(count);
  for (size_t k = 0; k < count; ++k) {
    const std::vector<double>& weights = raw(k);
    int64_t begin = 0;
    int64_t end = inside(k);
    while (begin < end && weights[static_cast<size_t>(begin)] == 0) ++begin;
    while (end > begin && weights[static_cast<size_t>(end - 1)] == 0) --end;
    windows[k].begin = axis.starts[k] + begin;
    windows[k].weights.reserve(static_cast<size_t>(end - begin));
    for (int64_t i = begin; i < end; ++i) {
      windows[k].weights.push_back(static_cast<float>(
          weights[static_cast<size_t>(i)] / sums[static_cast<size_t>(axis.starts[k] + i)]));
    }
  }
  return windows;
}

}  // namespace tilery
