// How the values of a grid become whole numbers, within a bound on their error or exactly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/vdb_tree.h"
#include "pipeline/codec/context_formulas.h"
#include "pipeline/codec/leaf_masks.h"
#include "pipeline/codec/leaf_values.h"
#include "pipeline/codec/vq_nets.h"

namespace tilery {

// Leaves of a grid that are codes (vq_nets.h).
struct VqCoding {
  // Of what codes are off by, for each component; none where there is no bound.
  std::vector<ValueWeights> residual;
  int32_t least = 0, most = 0;  // whole number: what codes stand for is moved to between these
  // For encoding only:
  VqGoal goal;
  bool where_smaller = false;  // of a block its codes or its whole numbers, else always its codes
};

// What all regions of a grid are coded by.
struct RegionCoding {
  VdbNumbers numbers;
  bool half = false;       // numbers are rounded to 16 bits before they count
  std::string background;  // numbers.bytes()
  // Largest error of an active value, and the step in which they are told. Step 0: all exact. Bound
  // 0 and a step: there is none, and all leaves are codes or exact.
  double bound = 0, step = 0;
  // Of level sets: active values keep their sign and stay within this of 0. 0: no such rule.
  double limit = 0;
  // One for each component, of one kind: how whole numbers are coded.
  std::vector<ValueWeights> weights;       // under models that adapt (leaf_values.h)
  std::vector<ContextComponent> contexts;  // under the context model (context_coder.h)
  std::optional<VqCoding> vq;              // leaves may be codes
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

// Adds a leaf with the whole numbers of its active values to a block; not if there is one that none
// tells. `values`: 512 of RegionCoding::numbers. `error`: of what is added, added to, if there is
// one.
bool AddLeaf(int place, const LeafMask& mask, std::span<const std::byte> values,
             const RegionCoding& coding, BlockNumbers* block, CodingError* error);
// How far a block's leaf is from the values that it was made of.
CodingError ErrorOf(const BlockNumbers& block, size_t leaf, std::span<const std::byte> values,
                    const RegionCoding& coding);
// The other way round: the active values of a block's leaf.
void RestoreLeaf(const BlockNumbers& block, size_t leaf, const RegionCoding& coding,
                 std::span<std::byte> values);

// The NoiseBits of the active values of a leaf, as bytes: component by component.
void AppendNoise(const LeafMask& mask, std::span<const std::byte> values,
                 const RegionCoding& coding, std::vector<std::byte>* noise);
size_t NoiseBytes(const LeafMask& mask, const RegionCoding& coding);
// Adds them to values that RestoreLeaf has made. `noise`: NoiseBytes.
void RestoreNoise(const LeafMask& mask, std::span<const std::byte> noise,
                  const RegionCoding& coding, std::span<std::byte> values);

// A block as bytes, within `coding`. Decode fills the values of a block whose leaves are told; from
// damaged bytes it may make any numbers.
std::vector<std::byte> EncodeNumbers(const BlockNumbers& block, const RegionCoding& coding);
void DecodeNumbers(std::span<const std::byte> bytes, const RegionCoding& coding,
                   BlockNumbers* block);

}  // namespace tilery
