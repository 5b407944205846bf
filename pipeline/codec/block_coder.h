// Codes the values of the leaves of a block: inactive ones exactly, active ones as RegionCoding
// says.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "io/vdb_pack.h"
#include "pipeline/codec/leaf_values.h"
#include "pipeline/codec/range_coder.h"
#include "pipeline/codec/value_coding.h"

namespace tilery {

// For one block. Encoder and decoder have to be told of the same leaves in the same order. Not
// thread-safe; `coding` outlives it.
class BlockCoder {
 public:
  explicit BlockCoder(const RegionCoding& coding);
  // `place`: of the leaf in its block; `values`: 512. `error`: added to, if there is one.
  void Encode(RangeEncoder* coder, int place, const LeafMask& mask,
              std::span<const std::byte> values, CodingError* error);
  void Decode(RangeDecoder* coder, int place, const LeafMask& mask, std::span<std::byte> values);

 private:
  using Ints = std::array<int32_t, kVdbLeafVoxels>;

  std::span<const std::byte> Background() const {
    return std::as_bytes(std::span(coding_.background));
  }
  void Raw(RangeEncoder* coder, const std::byte* value) const;
  void Raw(RangeDecoder* coder, std::byte* value) const;
  // False if a value is told by no whole number within the bound.
  bool Quantise(const VdbMask& active, std::span<const std::byte> values,
                std::vector<Ints>* numbers, CodingError* error) const;
  void EncodeExact(RangeEncoder* coder, int place, const LeafMask& mask, const VdbMask& active,
                   std::span<const std::byte> values, CodingError* error);
  void DecodeExact(RangeDecoder* coder, int place, const LeafMask& mask, const VdbMask& active,
                   std::span<std::byte> values);
  void EncodeInactive(RangeEncoder* coder, const VdbLeftOut& left_out, const VdbMask& active,
                      std::span<const std::byte> values);
  void DecodeInactive(RangeDecoder* coder, const VdbMask& active, std::span<std::byte> values);

  template <typename Byte>
  Byte* At(std::span<Byte> values, int voxel, size_t component = 0) const {
    return &values[static_cast<size_t>(voxel) * coding_.numbers.bytes() +
                   component * DTypeSize(coding_.numbers.dtype)];
  }

  const RegionCoding& coding_;
  std::vector<LeafValueModel> models_;
  AdaptiveBit raw_, second_, is_last_;
  std::array<AdaptiveBit, 2> is_background_;  // by whether the one before was
  std::array<AdaptiveBit, 8> inactive_;
};

}  // namespace tilery
