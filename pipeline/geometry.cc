#include "pipeline/geometry.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "io/error.h"

namespace tilery {
namespace {

constexpr const char* kAxisNames[] = {"z", "y", "x"};

// "<what> <value> along <axis>"
std::string Along(const char* what, int64_t value, int axis) {
  return std::string(what) + " " + std::to_string(value) + " along " + kAxisNames[axis];
}

int64_t Granularity(const Tiling& tiling, int axis) {
  return std::lcm(tiling.scale[axis].den, tiling.multiple[axis]);
}

// Refuses `value` unless it is a multiple, naming its valid neighbours from `lowest` on.
void CheckMultiple(const char* what, int64_t value, int64_t multiple, int64_t lowest, int axis) {
  if (value % multiple == 0) return;
  const int64_t below = value / multiple * multiple;
  std::string valid = std::to_string(below + multiple);
  if (below >= lowest) valid = std::to_string(below) + " and " + valid;
  throw Error(Fault::kUsage, Along(what, value, axis) + " is no multiple of " +
                                 std::to_string(multiple) +
                                 ", which the model needs; the nearest valid values are " + valid);
}

void CheckAxis(const Tiling& tiling, int axis) {
  const int64_t tile = tiling.tile[axis];
  const int64_t overlap = tiling.overlap[axis];
  const int64_t trim = tiling.trim[axis];
  if (tiling.multiple[axis] < 1) {
    throw Error(Fault::kUsage, Along("multiple", tiling.multiple[axis], axis) + " is below 1");
  }
  const int64_t step = Granularity(tiling, axis);
  if (tile < 1) {
    throw Error(Fault::kUsage,
                Along("tile", tile, axis) + " is below 1; the smallest is " + std::to_string(step));
  }
  CheckMultiple("tile", tile, step, step, axis);
  if (overlap < 0 || overlap >= tile) {
    throw Error(Fault::kUsage,
                Along("overlap", overlap, axis) + " must be at least 0 and less than the tile of " +
                    std::to_string(tile) + "; the largest is " + std::to_string(tile - step));
  }
  CheckMultiple("overlap", overlap, step, 0, axis);
  const int64_t den = tiling.scale[axis].den;
  if (trim < 0 || trim > overlap / 2) {
    throw Error(Fault::kUsage, Along("trim", trim, axis) +
                                   " must be at least 0 and at most half of the overlap of " +
                                   std::to_string(overlap) + "; the largest is " +
                                   std::to_string(overlap / 2 / den * den));
  }
  CheckMultiple("trim", trim, den, 0, axis);
}

}  // namespace

const char* PadModeName(PadMode mode) {
  switch (mode) {
    case PadMode::kReflect:
      return "reflect";
    case PadMode::kEdge:
      return "edge";
    case PadMode::kZero:
      return "zero";
  }
  throw Error(Fault::kInternal, "unknown pad mode");
}

const char* WindowKindName(WindowKind kind) {
  switch (kind) {
    case WindowKind::kLinear:
      return "linear";
    case WindowKind::kCosine:
      return "cosine";
    case WindowKind::kCrop:
      return "crop";
    case WindowKind::kHann:
      return "hann";
    case WindowKind::kGaussian:
      return "gaussian";
  }
  throw Error(Fault::kInternal, "unknown window");
}

void CheckTiling(const Tiling& tiling) {
  for (int axis = 0; axis < 3; ++axis) CheckAxis(tiling, axis);
}

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

int64_t PaddedExtent(int64_t n, int64_t tile, int64_t multiple) {
  return std::max(tile, RoundUp(n, multiple));
}

std::vector<int64_t> TileStarts(int64_t padded, int64_t tile, int64_t overlap) {
  if (padded <= tile) return {0};
  const int64_t stride = tile - overlap;
  std::vector<int64_t> starts;
  starts.reserve(static_cast<size_t>((padded - overlap + stride - 1) / stride));
  for (int64_t start = 0; start + tile < padded; start += stride) starts.push_back(start);
  starts.push_back(padded - tile);
  return starts;
}

int64_t PadSource(int64_t i, int64_t n, PadMode mode) {
  if (i < n) return i;
  switch (mode) {
    case PadMode::kEdge:
      return n - 1;
    case PadMode::kZero:
      return -1;
    case PadMode::kReflect:
      break;
  }
  if (n == 1) return 0;
  const int64_t period = 2 * (n - 1);
  const int64_t position = i % period;
  return position < n ? position : period - position;
}

TileGrid::TileGrid(const Index& item_shape, const Tiling& item_tiling)
    : shape(item_shape), tiling(item_tiling) {
  Product(shape);  // refuses what no arithmetic here could hold
  for (int axis = 0; axis < 3; ++axis) {
    if (shape[axis] < 1) {
      throw Error(Fault::kInternal, "tile grid over the empty shape " + ShapeToString(shape, 3));
    }
    padded[axis] = PaddedExtent(shape[axis], tiling.tile[axis], Granularity(tiling, axis));
    output_shape[axis] = tiling.scale[axis].Ceil(shape[axis]);
    starts[axis] = TileStarts(padded[axis], tiling.tile[axis], tiling.overlap[axis]);
  }
}

Index TileGrid::counts() const {
  Index counts;
  for (int axis = 0; axis < 3; ++axis) counts[axis] = static_cast<int64_t>(starts[axis].size());
  return counts;
}

int64_t TileGrid::tiles() const { return Product(counts()); }

Index TileGrid::tile_at(int64_t flat) const {
  const Index n = counts();
  return {flat / (n[1] * n[2]), flat / n[2] % n[1], flat % n[2]};
}

Box TileGrid::input_box(const Index& tile) const {
  Box box;
  for (int axis = 0; axis < 3; ++axis) {
    box.begin[axis] = starts[axis][static_cast<size_t>(tile[axis])];
    box.end[axis] = box.begin[axis] + tiling.tile[axis];
  }
  return box;
}

Box TileGrid::output_box(const Index& tile) const {
  Box box = input_box(tile);
  // Exact: starts and tiles are multiples of the scale's denominator.
  for (int axis = 0; axis < 3; ++axis) {
    box.begin[axis] = tiling.scale[axis].Floor(box.begin[axis]);
    box.end[axis] = tiling.scale[axis].Floor(box.end[axis]);
  }
  return box;
}

Index TileGrid::output_tile() const {
  Index tile;
  for (int axis = 0; axis < 3; ++axis) tile[axis] = tiling.scale[axis].Floor(tiling.tile[axis]);
  return tile;
}

}  // namespace tilery
