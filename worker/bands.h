// Cuts a shape into the full-width boxes in which containers are read and written in order.
#pragma once

#include <cstdint>
#include <vector>

#include "io/box.h"

namespace tilery {

// Whole planes where one fits into `max_bytes`, else rows of one plane; each band as large as fits, at least
// one row. Bands of rows begin at multiples of `row_granularity` rows and hold a multiple of it (at least
// that many rows, whatever `max_bytes` says), except the last of a plane.
std::vector<Box> CutBands(const Index& shape, int64_t bytes_per_voxel, int64_t max_bytes,
                          int64_t row_granularity = 1);

}  // namespace tilery
