#include "worker/bands.h"

#include <algorithm>

namespace tilery {

std::vector<Box> CutBands(const Index& shape, int64_t bytes_per_voxel, int64_t max_bytes,
                          int64_t row_granularity) {
  std::vector<Box> bands;
  const auto [planes, rows, columns] = shape;
  const int64_t row_bytes = std::max<int64_t>(columns * bytes_per_voxel, 1);
  const int64_t plane_bytes = rows * row_bytes;
  if (planes > 1 && plane_bytes <= max_bytes) {
    const int64_t step = max_bytes / plane_bytes;
    for (int64_t z = 0; z < planes; z += step) {
      bands.push_back({{z, 0, 0}, {std::min(z + step, planes), rows, columns}});
    }
    return bands;
  }
  const int64_t step =
      std::max<int64_t>(max_bytes / row_bytes / row_granularity, 1) * row_granularity;
  for (int64_t z = 0; z < planes; ++z) {
    for (int64_t y = 0; y < rows; y += step) {
      bands.push_back({{z, y, 0}, {z + 1, std::min(y + step, rows), columns}});
    }
  }
  return bands;
}

}  // namespace tilery
