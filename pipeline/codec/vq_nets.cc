#include "pipeline/codec/vq_nets.h"

#include <algorithm>
#include <cstdlib>

#include "pipeline/codec/vq_layers.h"

namespace tilery {
namespace {

using Vectors = std::array<std::array<int16_t, kVqWidth>, kVqCells>;
using Leaf = BlockNumbers::Leaf;

// Memory for one leaf after the other.
class Nets {
 public:
  explicit Nets(VqKernel kernel) : layers_(kernel) {}

  void Begin(const LeafMask& mask) {
    mask_ = &mask;
    for (int cell = 0; cell < kVqCells; ++cell) active_[cell] = VqActive(mask.data(), cell);
  }

  // Where the numbers lie; fills the vectors of cells that have active voxels.
  VqPlace Encode(const Leaf& numbers, Vectors* vectors) {
    int64_t sum = 0, distances = 0;
    const int32_t count = CountOn(*mask_);
    ForOn(*mask_, [&](size_t voxel) { sum += numbers[voxel]; });
    const int32_t mean = VqMean(sum, count);
    ForOn(*mask_, [&](size_t voxel) { distances += std::abs(int64_t{numbers[voxel]} - mean); });
    const VqPlace place = VqPlaceOf(mean, distances, count);
    if (place.scale == 0) return place;

    // Voxels with a border of one, their values and whether they are active.
    constexpr int kSide = 10;
    std::array<int8_t, kSide * kSide * kSide> values{}, active{};
    const int32_t offset = VqOffset(place);
    const int64_t spread = VqSpread(place.scale);
    ForOn(*mask_, [&](size_t voxel) {
      const size_t at =
          (voxel / 64 + 1) * kSide * kSide + (voxel / 8 % 8 + 1) * kSide + voxel % 8 + 1;
      values[at] = VqInput(numbers[voxel], offset, spread);
      active[at] = kVqOne;
    });
    int8_t* to = patches_.data();
    for (size_t cell = 0; cell < kVqCells; ++cell) {
      for (const auto* const from : {&values, &active}) {
        for (size_t x = 0; x < 4; ++x) {
          for (size_t y = 0; y < 4; ++y, to += 4) {
            const size_t at =
                (cell / 16 * 2 + x) * kSide * kSide + (cell / 4 % 4 * 2 + y) * kSide + cell % 4 * 2;
            std::copy_n(&(*from)[at], 4, to);
          }
        }
      }
    }
    layers_.EncoderFirst(patches_.data(), sums_.data());
    Hidden(kVqFirstShift);
    layers_.EncoderSecond(hidden_, sums_.data());
    Second(kVqSecondShift);
    layers_.EncoderLast(second_.data(), sums_.data());
    const int32_t* sum_at = sums_.data();
    for (auto& vector : *vectors) {
      for (int16_t& number : vector) number = VqVector(*sum_at++);
    }
    return place;
  }

  // The nearest codes of a stage; takes their vectors from what is left.
  void Assign(int stage, Vectors* left, std::array<uint8_t, kVqCells>* codes) const {
    for (size_t cell = 0; cell < kVqCells; ++cell) {
      if (active_[cell] == 0) continue;
      auto& rest = (*left)[cell];
      const int code = layers_.Nearest(stage, rest.data());
      (*codes)[cell] = static_cast<uint8_t>(code);
      for (size_t i = 0; i < kVqWidth; ++i)
        rest[i] = static_cast<int16_t>(rest[i] - VqModel().codebooks[stage][code][i]);
    }
  }

  // What the leaf's first `stages` stand for; 0 where the mask is off.
  void Decode(const VqLeaf& leaf, int stages, Leaf* numbers) {
    numbers->fill(0);
    const int32_t offset = VqOffset(leaf.place);
    if (stages == 0) {
      ForOn(*mask_, [&](size_t voxel) { (*numbers)[voxel] = offset; });
      return;
    }
    for (int cell = 0; cell < kVqCells; ++cell) {
      int8_t* const to = cells_.cell(cell);
      std::array<int32_t, kVqWidth> sum{};
      for (int stage = 0; stage < stages && active_[cell] != 0; ++stage) {
        const int8_t* const vector =
            VqModel().codebooks[stage]
                               [leaf.codes[static_cast<size_t>(stage)][static_cast<size_t>(cell)]];
        for (size_t i = 0; i < kVqWidth; ++i) sum[i] += vector[i];
      }
      for (size_t i = 0; i < kVqWidth; ++i)
        to[i] = static_cast<int8_t>(vq::Clamp(sum[i], -kVqMost, kVqMost));
      for (int corner = 0; corner < 8; ++corner)
        to[kVqWidth + corner] = (active_[cell] >> corner & 1) != 0 ? kVqOne : 0;
    }
    layers_.DecoderFirst(cells_, sums_.data());
    Hidden(kVqCodesShift);
    layers_.DecoderSecond(hidden_, sums_.data());
    Second(kVqSecondShift);
    layers_.DecoderLast(second_.data(), sums_.data());
    const int64_t spread = VqSpread(leaf.place.scale);
    for (int cell = 0; cell < kVqCells; ++cell) {
      for (int corner = 0; corner < 8; ++corner) {
        if ((active_[cell] >> corner & 1) == 0) continue;
        (*numbers)[static_cast<size_t>(VqVoxel(cell, corner))] =
            VqNumber(VqOutput(sums_[static_cast<size_t>(cell * 8 + corner)]), offset, spread);
      }
    }
  }

 private:
  void Hidden(int shift) {
    const int32_t* sum = sums_.data();
    for (int cell = 0; cell < kVqCells; ++cell) {
      int8_t* const to = hidden_.cell(cell);
      for (int i = 0; i < kVqHidden; ++i) to[i] = VqHidden(*sum++, shift);
    }
  }
  void Second(int shift) {
    for (size_t i = 0; i < second_.size(); ++i) second_[i] = VqHidden(sums_[i], shift);
  }

  const VqLayers layers_;
  const LeafMask* mask_ = nullptr;
  int active_[kVqCells] = {};  // VqActive
  std::array<int8_t, kVqCells * kVqPatch> patches_;
  VqGrid<kVqHidden> hidden_;
  VqGrid<kVqCellInputs> cells_;
  std::array<int8_t, kVqCells * kVqSecond> second_;
  std::array<int32_t, kVqCells * kVqSecond> sums_;
};

}  // namespace

std::vector<VqLeaf> VqCpu::Encode(std::span<const LeafMask* const> masks,
                                  std::span<const Leaf* const> numbers, const VqGoal& goal,
                                  std::span<Leaf* const> restored) {
  Nets nets(kernel_);
  Vectors left;
  std::vector<VqLeaf> leaves(masks.size());
  for (size_t i = 0; i < masks.size(); ++i) {
    VqLeaf& leaf = leaves[i];
    nets.Begin(*masks[i]);
    leaf.place = nets.Encode(*numbers[i], &left);
    nets.Decode(leaf, 0, restored[i]);
    const int64_t most = VqMostSquares(goal.square, CountOn(*masks[i]));
    while (leaf.place.scale != 0 && leaf.stages < goal.most_stages) {
      int64_t squares = 0;
      ForOn(*masks[i], [&](size_t voxel) {
        squares = VqAddSquare(squares, (*numbers[i])[voxel], (*restored[i])[voxel]);
      });
      if (squares <= most) break;
      nets.Assign(leaf.stages, &left, &leaf.codes[leaf.stages]);
      ++leaf.stages;
      nets.Decode(leaf, leaf.stages, restored[i]);
    }
  }
  return leaves;
}

void VqCpu::Decode(std::span<const LeafMask* const> masks, std::span<const VqLeaf> leaves,
                   std::span<Leaf* const> numbers) {
  Nets nets(kernel_);
  for (size_t i = 0; i < masks.size(); ++i) {
    nets.Begin(*masks[i]);
    nets.Decode(leaves[i], leaves[i].stages, numbers[i]);
  }
}

}  // namespace tilery
