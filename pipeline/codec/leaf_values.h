// Codes whole numbers that belong to the active voxels of leaves: values in steps of twice the
// bound on their error.
//
// Each is predicted as a weighted sum of neighbours that are known already, and what it differs by
// is coded under a model that depends on how much these neighbours differ, how many there are, and
// where between two whole numbers the prediction lies. All in integers: every machine and device
// decodes the same.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "pipeline/codec/block_numbers.h"
#include "pipeline/codec/leaf_masks.h"
#include "pipeline/codec/range_coder.h"

namespace tilery {

// Weights of the 13 neighbours and of one, in 1/4096.
using ValueWeights = std::array<int16_t, 14>;

class BlockValues;

// Finds the weights that predict best in the sense of least squares. Not thread-safe.
class WeightsFit {
 public:
  WeightsFit();
  ~WeightsFit();
  void BeginBlock();
  void Add(int place, const LeafMask& mask, std::span<const int32_t, 512> values);
  ValueWeights Weights() const;  // all 0 if nothing was added

 private:
  static constexpr size_t kTerms = std::tuple_size_v<ValueWeights>;
  std::vector<double>
      products_;  // kTerms x (kTerms + 1): of the terms with each other and the value
  std::unique_ptr<BlockValues> block_;
};

// Encoder and decoder have to be told of the same leaves in the same order. Not thread-safe.
class LeafValueModel {
 public:
  explicit LeafValueModel(const ValueWeights& weights);
  ~LeafValueModel();
  LeafValueModel(LeafValueModel&&) noexcept;
  // Another block follows: what was learnt stays, but none of its leaves is known.
  void BeginBlock();
  // `place`: of the leaf in its block, (x * 4 + y) * 4 + z, ascending within a block. Of the
  // values, in OpenVDB's order, those of active voxels count; at most kLargestCodedValue in size.
  void Encode(RangeEncoder* coder, int place, const LeafMask& mask,
              std::span<const int32_t, 512> values);
  // Leaves the others as they are. From damaged bytes it may make any numbers, none larger.
  void Decode(RangeDecoder* coder, int place, const LeafMask& mask, std::span<int32_t, 512> values);

 private:
  template <typename Code>
  void Run(int place, const LeafMask& mask, const Code& code);

  const ValueWeights weights_;
  std::vector<AdaptiveNumber> models_;
  std::unique_ptr<BlockValues> block_;
};

}  // namespace tilery
