// How OpenVDB packs an array of values; shared by reading and writing trees. Internal to io.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/vdb_tree.h"

namespace tilery {

// What stands before an array: which inactive values it leaves out. OpenVDB's numbers.
enum class VdbInactive : uint8_t {
  kBackground = 0,       // all are the background
  kMinusBackground = 1,  // all are its negative
  kOne = 2,              // all are one value, which follows
  kSigns = 3,            // the background or its negative, by a mask
  kOneOrBackground = 4,  // one value, which follows, or the background, by a mask
  kTwo = 5,              // two values, which follow, by a mask
  kStored = 6,           // none is left out
};

// The negative of each component.
std::vector<std::byte> VdbNegative(std::span<const std::byte> value, DType dtype);

// How the inactive values of an array can be left out. `others`: where the mask is off, and on.
struct VdbLeftOut {
  VdbInactive inactive = VdbInactive::kStored;
  std::array<std::vector<std::byte>, 2> others;
  bool has_mask() const {
    return inactive == VdbInactive::kSigns || inactive == VdbInactive::kOneOrBackground ||
           inactive == VdbInactive::kTwo;
  }
  // Of `others`, so many values stand in the file.
  size_t stored_values() const {
    if (inactive == VdbInactive::kTwo) return 2;
    return inactive == VdbInactive::kOne || inactive == VdbInactive::kOneOrBackground ? 1 : 0;
  }
};
// `children`: places that have no value at all, or a mask of no places.
VdbLeftOut VdbLeaveOut(const VdbNumbers& numbers, std::span<const std::byte> background,
                       const VdbMask& active, const VdbMask& children,
                       std::span<const std::byte> values);

// Appends `bytes` packed as `packing` says (VdbPacking; numbers of `number_bytes` each).
void VdbAppendPacked(uint32_t packing, size_t number_bytes, std::span<const std::byte> bytes,
                     std::vector<std::byte>* to);
// False if that is no packed array of exactly so many bytes.
bool VdbUnpack(uint32_t packing, std::span<const std::byte> packed, std::span<std::byte> into);

// Reads the packed arrays of one grid's tree. Not thread-safe. Error(kInput) as VdbInput's.
class VdbArrays {
 public:
  VdbArrays(const VdbGrid& grid, const std::string& background);
  const VdbNumbers& numbers() const { return numbers_; }
  // An array as OpenVDB packs it: `active` says which are there, the others are inactive.
  void Read(VdbInput& in, const VdbMask& active, std::span<std::byte> values);
  void Skip(VdbInput& in, const VdbMask& active);

 private:
  VdbLeftOut ReadLeftOut(VdbInput& in, VdbMask* second);
  bool StoresAll(const VdbLeftOut& out) const {
    return (packing_ & VdbPacking::kActiveMask) == 0 || out.inactive == VdbInactive::kStored;
  }
  void Unpack(VdbInput& in, std::span<std::byte> into);
  // Of so many bytes as a grid of this kind stores: what stands there is packed, and how long.
  int64_t PackedSize(VdbInput& in, size_t stored) const;  // 0: it is not packed

  const VdbNumbers numbers_;
  const bool half_;
  const uint32_t packing_;
  const std::string background_;
  std::vector<std::byte> packed_, unpacked_;
};

}  // namespace tilery
