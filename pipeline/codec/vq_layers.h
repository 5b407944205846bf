// The layers of the nets of the method vq on a CPU: sums of products of int8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "pipeline/codec/vq_nets.h"

namespace tilery {

// What is known of each cell, with a border of zeros around them: 3^3 cells around one are nine
// runs of memory.
inline constexpr int kVqPaddedSide = 6;
template <int kInputs>
struct VqGrid {
  std::array<int8_t, kVqPaddedSide * kVqPaddedSide * kVqPaddedSide * kInputs> values{};
  static constexpr int At(int cell) {
    return ((cell / 16 + 1) * kVqPaddedSide * kVqPaddedSide + (cell / 4 % 4 + 1) * kVqPaddedSide +
            cell % 4 + 1) *
           kInputs;
  }
  int8_t* cell(int cell) { return &values[static_cast<size_t>(At(cell))]; }
};

// For all cells of a leaf: [cell][output], sums with their bias.
class VqLayers {
 public:
  explicit VqLayers(VqKernel kernel) : avx2_(kernel == VqKernel::kAvx2) {}
  // `patches`: [cell][kVqPatch].
  void EncoderFirst(const int8_t* patches, int32_t* sums) const;
  void EncoderSecond(const VqGrid<kVqHidden>& grid, int32_t* sums) const;
  void EncoderLast(const int8_t* hidden, int32_t* sums) const;  // [cell][kVqSecond]
  void DecoderFirst(const VqGrid<kVqCellInputs>& grid, int32_t* sums) const;
  void DecoderSecond(const VqGrid<kVqHidden>& grid, int32_t* sums) const;
  void DecoderLast(const int8_t* hidden, int32_t* sums) const;  // [cell][kVqSecond]
  // The code of a stage whose vector is nearest; of equally near ones the first. `rest`:
  // kVqWidth numbers within 2^12.
  int Nearest(int stage, const int16_t* rest) const;

 private:
  const bool avx2_;
};

}  // namespace tilery
