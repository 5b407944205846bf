// How the values of a grid become whole numbers, within a bound on their error or exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/vdb_tree.h"
#include "pipeline/codec/leaf_masks.h"
#include "pipeline/codec/leaf_values.h"

namespace tilery {

// What all regions of a grid are coded by.
struct RegionCoding {
  VdbNumbers numbers;
  bool half = false;       // numbers are rounded to 16 bits before they count
  std::string background;  // numbers.bytes()
  // Largest error of an active value, and the step in which they are told; 0: all exact.
  double bound = 0, step = 0;
  // Of level sets: active values keep their sign and stay within this of 0. 0: no such rule.
  double limit = 0;
  std::vector<ValueWeights> weights;  // one for each component
};

// How far the values that come back are from those that went in.
struct CodingError {
  double most = 0, squares = 0;
  int64_t numbers = 0;
  void Add(const CodingError& other);
};

// What limits the values of a level set whose background is that of `coding`: the largest number of
// the grid's own type that is not above the background's magnitude. 0 if there is none.
double LevelSetLimit(const RegionCoding& coding);

// The whole number that tells a value, as exactly as `coding` says; nullopt if none does, since it
// is too large, not finite, or would come back beyond the bound, or of a level set's on the other
// side of its surface.
std::optional<int32_t> Quantised(double value, const RegionCoding& coding);

// What a whole number comes back as.
double Restored(int32_t number, const RegionCoding& coding);

// Bits of a number in an order that follows the numbers'. Exactly coded ones are these: the upper
// bits are predicted, the NoiseBits below them are not.
int64_t OrderedBits(const std::byte* at, const RegionCoding& coding);
void StoreOrdered(std::byte* at, const RegionCoding& coding, int64_t ordered);
int NoiseBits(const RegionCoding& coding);

void StoreNumber(std::byte* at, DType dtype, double value);  // kF32 or kF64

// The whole numbers of one component of a leaf's active values; 0 for those that none tells.
// `values`: 512 of RegionCoding::numbers.
void WholeNumbers(const LeafMask& mask, std::span<const std::byte> values, size_t component,
                  const RegionCoding& coding, std::span<int32_t, 512> numbers);

}  // namespace tilery
