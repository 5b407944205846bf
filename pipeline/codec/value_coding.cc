#include "pipeline/codec/value_coding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace tilery {

void StoreNumber(std::byte* at, DType dtype, double value) {
  if (dtype == DType::kF64) {
    std::memcpy(at, &value, sizeof value);
  } else {
    const auto single = static_cast<float>(value);
    std::memcpy(at, &single, sizeof single);
  }
}

double Restored(int32_t number, const RegionCoding& coding) {
  // Of level sets in the middle of steps, so that no value comes to lie on the surface.
  const double value = coding.limit > 0
                           ? std::clamp((number + 0.5) * coding.step, -coding.limit, coding.limit)
                           : number * coding.step;
  if (coding.half) return HalfToFloat(FloatToHalf(static_cast<float>(value)));
  return coding.numbers.dtype == DType::kF64 ? value : static_cast<float>(value);
}

double LevelSetLimit(const RegionCoding& coding) {
  const double most = std::abs(VdbNumberAt(
      reinterpret_cast<const std::byte*>(coding.background.data()), coding.numbers.dtype));
  if (!std::isfinite(most)) return 0;
  if (!coding.half) return most;
  const uint16_t bits = FloatToHalf(static_cast<float>(most));
  const bool above = HalfToFloat(bits) > most;
  return HalfToFloat(static_cast<uint16_t>(bits - (above ? 1 : 0)));
}

int NoiseBits(const RegionCoding& coding) {
  return coding.half ? 0 : coding.numbers.dtype == DType::kF64 ? 40 : 8;
}

int64_t OrderedBits(const std::byte* at, const RegionCoding& coding) {
  if (coding.half) {
    const uint16_t bits = FloatToHalf(static_cast<float>(VdbNumberAt(at, coding.numbers.dtype)));
    return bits & 0x8000 ? -int64_t{bits & 0x7fff} - 1 : bits;
  }
  if (coding.numbers.dtype == DType::kF64) {
    uint64_t bits;
    std::memcpy(&bits, at, sizeof bits);
    constexpr uint64_t kSign = uint64_t{1} << 63;
    return bits & kSign ? ~static_cast<int64_t>(bits ^ kSign) : static_cast<int64_t>(bits);
  }
  uint32_t bits;
  std::memcpy(&bits, at, sizeof bits);
  return bits >> 31 ? ~int64_t{bits & 0x7fffffff} : bits;
}

void StoreOrdered(std::byte* at, const RegionCoding& coding, int64_t ordered) {
  const bool negative = ordered < 0;
  const uint64_t rest = static_cast<uint64_t>(negative ? ~ordered : ordered);
  if (coding.half) {
    const auto bits = static_cast<uint16_t>((rest & 0x7fff) | (negative ? 0x8000 : 0));
    StoreNumber(at, coding.numbers.dtype, HalfToFloat(bits));
  } else if (coding.numbers.dtype == DType::kF64) {
    const uint64_t bits = rest | (negative ? uint64_t{1} << 63 : 0);
    std::memcpy(at, &bits, sizeof bits);
  } else {
    const auto bits = static_cast<uint32_t>((rest & 0x7fffffff) | (negative ? 0x80000000u : 0));
    std::memcpy(at, &bits, sizeof bits);
  }
}

void CodingError::Add(const CodingError& other) {
  most = std::max(most, other.most);
  squares += other.squares;
  numbers += other.numbers;
}

std::optional<int32_t> Quantised(double value, const RegionCoding& coding) {
  const double steps = value / coding.step;
  if (!(std::abs(steps) <= kLargestCodedValue)) return std::nullopt;
  const bool surface = coding.limit > 0;
  const auto number = static_cast<int32_t>(surface ? std::floor(steps) : std::nearbyint(steps));
  const double restored = Restored(number, coding);
  if (!(std::abs(restored - value) <= coding.bound)) return std::nullopt;
  if (surface && (restored < 0) != (value < 0)) return std::nullopt;
  return number;
}

void WholeNumbers(const LeafMask& mask, std::span<const std::byte> values, size_t component,
                  const RegionCoding& coding, std::span<int32_t, 512> numbers) {
  const size_t number = DTypeSize(coding.numbers.dtype), bytes = coding.numbers.bytes();
  for (size_t voxel = 0; voxel < kVdbLeafVoxels; ++voxel) {
    numbers[voxel] = 0;
    if (!(mask[voxel / 64] >> (voxel % 64) & 1)) continue;
    const std::byte* const at = &values[voxel * bytes + component * number];
    numbers[voxel] = coding.step == 0
                         ? static_cast<int32_t>(OrderedBits(at, coding) >> NoiseBits(coding))
                         : Quantised(VdbNumberAt(at, coding.numbers.dtype), coding).value_or(0);
  }
}

}  // namespace tilery
