// Stored samples that are no numbers: counted, and put back into the result at the voxels they map
// to.
#include <algorithm>
#include <cstring>
#include <limits>
#include <set>

#include "pipeline/ops.h"

namespace tilery {
namespace {

bool IsNonFinite(DType dtype, const std::byte* at) {
  if (dtype == DType::kF32) {
    float v;
    std::memcpy(&v, at, sizeof v);
    return !IsFinite(v);
  }
  if (dtype == DType::kF16) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return (bits & 0x7c00) == 0x7c00;
  }
  double v;
  std::memcpy(&v, at, sizeof v);
  return !IsFinite(static_cast<float>(v));
}

// Whether all of a dense run of samples are finite: a loop without branches, which compilers turn
// into vectors. `sign` gives a value whose highest bit says that one is not. The memory may be
// unaligned.
template <typename Sample, typename Sign>
bool NoSign(const std::byte* run, int64_t samples, const Sign& sign) {
  decltype(sign(Sample{})) any = 0;
  for (int64_t i = 0; i < samples; ++i) {
    Sample v;
    std::memcpy(&v, run + i * sizeof v, sizeof v);
    any |= sign(v);
  }
  return any >> (8 * sizeof any - 1) == 0;
}

bool RunIsFinite(DType dtype, const std::byte* run, int64_t samples) {
  switch (dtype) {
    case DType::kF16:  // an exponent of all ones carries into the sign's place
      return NoSign<uint16_t>(run, samples, [](uint16_t bits) {
        return static_cast<uint16_t>((bits & 0x7c00) + 0x0400);
      });
    case DType::kF32:
      return NoSign<float>(run, samples, [](float v) { return NonFiniteSign(v); });
    default:
      return NoSign<double>(run, samples,
                            [](double v) { return NonFiniteSign(static_cast<float>(v)); });
  }
}

// Rows of `view` in which something is not finite, quickly: most data has none.
bool RowIsFinite(const ConstView& view, int64_t z, int64_t y) {
  const auto size = static_cast<int64_t>(DTypeSize(view.dtype));
  if (view.stride[0] == size && view.stride[3] == view.channels * size) {
    return RunIsFinite(view.dtype, view.at(0, z, y, 0), view.channels * view.shape[2]);
  }
  if (view.stride[3] == size) {
    for (int64_t c = 0; c < view.channels; ++c) {
      if (!RunIsFinite(view.dtype, view.at(c, z, y, 0), view.shape[2])) return false;
    }
    return true;
  }
  for (int64_t c = 0; c < view.channels; ++c) {
    for (int64_t x = 0; x < view.shape[2]; ++x) {
      if (IsNonFinite(view.dtype, view.at(c, z, y, x))) return false;
    }
  }
  return true;
}

ConstView RegionOf(const GatherSource& source, const Box& region) {
  Index back;
  for (int a = 0; a < 3; ++a) back[a] = -source.input_box.begin[a];
  return source.input.Crop(Shift(region, back));
}

// Calls `visit(z, y, x)`, counting from the region's first voxel, wherever one of `channels` is not
// finite.
template <typename Visit>
void VisitNonFinite(const GatherSource& source, const std::set<int32_t>& channels,
                    const Box& region, const Visit& visit) {
  if (!IsFloat(source.input.dtype) || region.empty()) return;
  const ConstView view = RegionOf(source, region);
  for (int64_t z = 0; z < view.shape[0]; ++z) {
    for (int64_t y = 0; y < view.shape[1]; ++y) {
      if (RowIsFinite(view, z, y)) continue;
      for (int64_t x = 0; x < view.shape[2]; ++x) {
        for (int32_t c : channels) {
          if (!IsNonFinite(view.dtype, view.at(c, z, y, x))) continue;
          visit(z, y, x);
          break;
        }
      }
    }
  }
}

}  // namespace

int64_t CountNonFinite(const GatherSource& source, const std::vector<Pass>& passes,
                       const Box& region) {
  std::set<int32_t> channels;
  for (const Pass& pass : passes) channels.insert(pass.in.begin(), pass.in.end());
  int64_t count = 0;
  VisitNonFinite(source, channels, region, [&](int64_t, int64_t, int64_t) { ++count; });
  return count;
}

void RestoreNonFinite(const GatherSource& source, const std::vector<Pass>& passes,
                      const Sums& sums) {
  const TileGrid& grid = *source.grid;
  Box region;  // stored voxels that the sums' voxels cover
  for (int a = 0; a < 3; ++a) {
    const Rational back{grid.tiling.scale[a].den, grid.tiling.scale[a].num};
    region.begin[a] = back.Floor(sums.box.begin[a]);
    region.end[a] = std::min(back.Ceil(sums.box.end[a]), grid.shape[a]);
  }
  region = Intersect(region, source.input_box);
  for (const Pass& pass : passes) {
    const std::set<int32_t> channels(pass.in.begin(), pass.in.end());
    VisitNonFinite(source, channels, region, [&](int64_t z, int64_t y, int64_t x) {
      // Output o covers stored i if floor(o q/p) <= i < ceil((o+1) q/p): o from floor(i p/q) to
      // ceil((i+1) p/q).
      const Index at{region.begin[0] + z, region.begin[1] + y, region.begin[2] + x};
      Box to;
      for (int a = 0; a < 3; ++a) {
        to.begin[a] = grid.tiling.scale[a].Floor(at[a]);
        to.end[a] = grid.tiling.scale[a].Ceil(at[a] + 1);
      }
      to = Intersect(to, sums.box);
      if (to.empty()) return;
      for (int32_t k = 0; k < pass.out_count; ++k) {
        for (int64_t oz = to.begin[0]; oz < to.end[0]; ++oz) {
          for (int64_t oy = to.begin[1]; oy < to.end[1]; ++oy) {
            std::fill_n(sums.row(pass.out_begin + k, oz, oy) + to.begin[2] - sums.box.begin[2],
                        to.extent(2), std::numeric_limits<float>::quiet_NaN());
          }
        }
      }
    });
  }
}

}  // namespace tilery
