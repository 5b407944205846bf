#include "pipeline/codec/leaf_rest.h"

#include <algorithm>
#include <cstring>

namespace tilery {
namespace {

VdbMask MaskOf(const LeafMask& mask) {
  VdbMask active(kVdbLeafVoxels);
  std::copy(mask.begin(), mask.end(), active.words().begin());
  return active;
}

}  // namespace

void LeafRestModel::Encode(RangeEncoder* coder, const LeafMask& mask,
                           std::span<const std::byte> values, LeafKind kind) {
  const VdbMask active = MaskOf(mask);
  EncodeInactive(coder, VdbLeaveOut(coding_.numbers, Background(), active, VdbMask(0), values),
                 active, values);
  if (coding_.step == 0) return;
  const bool raw = kind == LeafKind::kRaw;
  coder->Encode(&raw_, raw);
  if (!raw && coding_.vq) coder->Encode(&codes_, kind == LeafKind::kCodes);
  for (int voxel = raw ? active.NextOn(0) : -1; voxel >= 0; voxel = active.NextOn(voxel + 1))
    Raw(coder, At(values, voxel));
}

LeafKind LeafRestModel::Decode(RangeDecoder* coder, const LeafMask& mask,
                               std::span<std::byte> values) {
  const VdbMask active = MaskOf(mask);
  DecodeInactive(coder, active, values);
  if (coding_.step == 0) return LeafKind::kNumbers;
  if (!coder->Decode(&raw_))
    return coding_.vq && coder->Decode(&codes_) ? LeafKind::kCodes : LeafKind::kNumbers;
  for (int voxel = active.NextOn(0); voxel >= 0; voxel = active.NextOn(voxel + 1))
    Raw(coder, At(values, voxel));
  return LeafKind::kRaw;
}

void LeafRestModel::Raw(RangeEncoder* coder, const std::byte* value) const {
  for (size_t i = 0; i < coding_.numbers.bytes(); ++i)
    coder->EncodeRaw(static_cast<uint32_t>(value[i]), 8);
}
void LeafRestModel::Raw(RangeDecoder* coder, std::byte* value) const {
  for (size_t i = 0; i < coding_.numbers.bytes(); ++i)
    value[i] = static_cast<std::byte>(coder->DecodeRaw(8));
}

// Inactive values, exactly: as OpenVDB leaves them out; where they are many, one by one.
void LeafRestModel::EncodeInactive(RangeEncoder* coder, const VdbLeftOut& left_out,
                                   const VdbMask& active, std::span<const std::byte> values) {
  const auto kind = static_cast<uint32_t>(left_out.inactive);
  for (int bit = 2, at = 1; bit >= 0; --bit) {
    coder->Encode(&inactive_[static_cast<size_t>(at)], kind >> bit & 1);
    at = 2 * at + static_cast<int>(kind >> bit & 1);
  }
  for (size_t i = 0; i < left_out.stored_values(); ++i) Raw(coder, left_out.others[i].data());
  if (!left_out.has_mask() && left_out.inactive != VdbInactive::kStored) return;
  const size_t size = coding_.numbers.bytes();
  const std::byte* last = Background().data();  // that was not the background
  size_t was_background = 1;
  for (int voxel = 0; voxel < kVdbLeafVoxels; ++voxel) {
    if (active.on(voxel)) continue;
    const std::byte* const value = At(values, voxel);
    if (left_out.inactive != VdbInactive::kStored) {
      coder->Encode(&second_, std::memcmp(value, left_out.others[1].data(), size) == 0);
      continue;
    }
    const bool background = std::memcmp(value, Background().data(), size) == 0;
    coder->Encode(&is_background_[was_background], background);
    was_background = background ? 1 : 0;
    if (background) continue;
    const bool same = std::memcmp(value, last, size) == 0;
    coder->Encode(&is_last_, same);
    if (!same) Raw(coder, value);
    last = value;
  }
}
void LeafRestModel::DecodeInactive(RangeDecoder* coder, const VdbMask& active,
                                   std::span<std::byte> values) {
  int at = 1;
  for (int bit = 2; bit >= 0; --bit)
    at = 2 * at + (coder->Decode(&inactive_[static_cast<size_t>(at)]) ? 1 : 0);
  // Damaged bytes may give a kind that there is not.
  VdbLeftOut left_out{static_cast<VdbInactive>(std::min(at - 8, 6)), {}};
  left_out.others[1].assign(Background().begin(), Background().end());
  left_out.others[0] = left_out.inactive == VdbInactive::kBackground
                           ? left_out.others[1]
                           : VdbNegative(Background(), coding_.numbers.dtype);
  for (size_t i = 0; i < left_out.stored_values(); ++i) Raw(coder, left_out.others[i].data());
  const size_t size = coding_.numbers.bytes();
  const std::byte* last = Background().data();
  size_t was_background = 1;
  for (int voxel = 0; voxel < kVdbLeafVoxels; ++voxel) {
    if (active.on(voxel)) continue;
    std::byte* const value = At(values, voxel);
    if (left_out.inactive != VdbInactive::kStored) {
      const bool second = left_out.has_mask() && coder->Decode(&second_);
      std::memcpy(value, left_out.others[second ? 1 : 0].data(), size);
      continue;
    }
    const bool background = coder->Decode(&is_background_[was_background]);
    was_background = background ? 1 : 0;
    if (background) {
      std::memcpy(value, Background().data(), size);
      continue;
    }
    if (coder->Decode(&is_last_)) {
      std::memcpy(value, last, size);
    } else {
      Raw(coder, value);
    }
    last = value;
  }
}

}  // namespace tilery
