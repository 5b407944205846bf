// Codes what of leaves is not told by whole numbers: inactive values, and active ones that no whole
// number tells within the bound. All of it exactly.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "io/vdb_pack.h"
#include "pipeline/codec/range_coder.h"
#include "pipeline/codec/value_coding.h"

namespace tilery {

// How the active values of a leaf are told.
enum class LeafKind : uint8_t { kNumbers, kRaw, kCodes };

// For the leaves of one region. Encoder and decoder have to be told of the same leaves in the same
// order. Not thread-safe; `coding` outlives it.
class LeafRestModel {
 public:
  explicit LeafRestModel(const RegionCoding& coding) : coding_(coding) {}
  // `values`: 512. kRaw: active ones are stored as they are; never where all is exact. kCodes: only
  // where leaves may be.
  void Encode(RangeEncoder* coder, const LeafMask& mask, std::span<const std::byte> values,
              LeafKind kind);
  // Fills what was told.
  LeafKind Decode(RangeDecoder* coder, const LeafMask& mask, std::span<std::byte> values);

 private:
  std::span<const std::byte> Background() const {
    return std::as_bytes(std::span(coding_.background));
  }
  void Raw(RangeEncoder* coder, const std::byte* value) const;
  void Raw(RangeDecoder* coder, std::byte* value) const;
  void EncodeInactive(RangeEncoder* coder, const VdbLeftOut& left_out, const VdbMask& active,
                      std::span<const std::byte> values);
  void DecodeInactive(RangeDecoder* coder, const VdbMask& active, std::span<std::byte> values);

  template <typename Byte>
  Byte* At(std::span<Byte> values, int voxel) const {
    return &values[static_cast<size_t>(voxel) * coding_.numbers.bytes()];
  }

  const RegionCoding& coding_;
  AdaptiveBit raw_, codes_, second_, is_last_;
  std::array<AdaptiveBit, 2> is_background_;  // by whether the one before was
  std::array<AdaptiveBit, 8> inactive_;
};

}  // namespace tilery
