// tile, overlap and trim of a job, with "auto" resolved. Pure.
//
//   tile auto      the model's suggestion, else 256 (2-D) or 96 (3-D) rounded up to the model's
//   grain overlap auto   the model's suggestion with its tile, else 2r where 2r <= T/2, else T/4
//   trim auto      r where 2r <= V (tiled equals untiled), else V/4; 0 where no radius is known
//
// with r the receptive radius, T the tile, V the overlap, all per axis in input voxels. The grain
// of an axis is lcm(q, k) for a scale p/q and multiples of k: T and V are multiples of it, trim is
// one of q.
#pragma once

#include <string>
#include <vector>

#include "scheduler/job.h"

namespace tilery {

struct ResolvedTiling {
  Tiling tiling;
  std::vector<int64_t> tile, overlap, trim;  // axis order without channels, `dims` of them
  bool exact = false;
  std::string inexact_reason;  // "" if exact
};

// Error(kUsage) naming key, axis, value, limit and the next valid values.
ResolvedTiling ResolveTiling(const Job& job, const Contract& contract, int dims);

}  // namespace tilery
