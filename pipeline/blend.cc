#include <vector>

#include "pipeline/ops.h"

namespace tilery {
namespace {

// Kept apart from the loops around it so that the compiler sees rows that do not alias.
void BlendRow(const float* __restrict from, const float* __restrict wx, float wz, float wy,
              int64_t count, float* __restrict sums) {
  for (int64_t x = 0; x < count; ++x) sums[x] += Weight(wz, wy, wx[x]) * from[x];
}

void MeanRow(const float* __restrict from, int32_t channels, int64_t stride, int64_t count,
             float* __restrict to) {
  for (int64_t x = 0; x < count; ++x) to[x] = MeanOf(from + x, channels, stride);
}

}  // namespace

void BlendTile(const float* output, int32_t channels, const Box& output_box, const TileWindow& wz,
               const TileWindow& wy, const TileWindow& wx, const Pass& pass, const Sums& sums) {
  const Index shape = output_box.shape();
  const int64_t plane = shape[0] * shape[1] * shape[2];
  const auto count = static_cast<int64_t>(wx.weights.size());
  const bool mean = pass.op == Pass::Op::kModel && pass.reduce == Pass::Reduce::kMean;
  std::vector<float> mean_row(mean ? count : 0);
  for (int32_t k = 0; k < pass.out_count; ++k) {
    const int32_t channel = mean || pass.op != Pass::Op::kModel ? k : pass.out[k];
    for (int64_t z = wz.begin; z < wz.end(); ++z) {
      for (int64_t y = wy.begin; y < wy.end(); ++y) {
        const float* from =
            output + (mean ? 0 : channel * plane) +
            ((z - output_box.begin[0]) * shape[1] + y - output_box.begin[1]) * shape[2] + wx.begin -
            output_box.begin[2];
        if (mean) {
          MeanRow(from, channels, plane, count, mean_row.data());
          from = mean_row.data();
        }
        float* to = sums.row(pass.out_begin + k, z, y) + wx.begin - sums.box.begin[2];
        BlendRow(from, wx.weights.data(), wz.weights[z - wz.begin], wy.weights[y - wy.begin], count,
                 to);
      }
    }
  }
}

bool AllFinite(const float* values, int64_t count) {
  // Or-ed in blocks: the loop stays free of branches, and a bad tile is found early.
  constexpr int64_t kBlock = 1 << 14;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = begin + kBlock < count ? begin + kBlock : count;
    uint32_t any = 0;
    for (int64_t i = begin; i < end; ++i) any |= NonFiniteSign(values[i]);
    if (any >> 31) return false;
  }
  return true;
}

}  // namespace tilery
