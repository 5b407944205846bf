#include "pipeline/codec/value_coding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "pipeline/codec/context_coder.h"

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
  // Without a bound what codes make of it counts, not the step.
  if (coding.bound > 0 && !(std::abs(restored - value) <= coding.bound)) return std::nullopt;
  if (!std::isfinite(restored)) return std::nullopt;
  if (surface && (restored < 0) != (value < 0)) return std::nullopt;
  return number;
}

namespace {

template <typename Byte>
Byte* NumberAt(std::span<Byte> values, size_t voxel, size_t component, const VdbNumbers& numbers) {
  return &values[voxel * numbers.bytes() + component * DTypeSize(numbers.dtype)];
}

}  // namespace

bool AddLeaf(int place, const LeafMask& mask, std::span<const std::byte> values,
             const RegionCoding& coding, BlockNumbers* block, CodingError* error) {
  CodingError here;
  block->Add(place, mask);
  bool told = true;
  for (size_t c = 0; c < block->values.size(); ++c) {
    BlockNumbers::Leaf& leaf = block->values[c].back();
    ForOn(mask, [&](size_t voxel) {
      const std::byte* const at = NumberAt(values, voxel, c, coding.numbers);
      ++here.numbers;
      if (coding.step == 0) {
        leaf[voxel] = static_cast<int32_t>(OrderedBits(at, coding) >> NoiseBits(coding));
        return;
      }
      const double value = VdbNumberAt(at, coding.numbers.dtype);
      const auto number = Quantised(value, coding);
      if (!number) {
        told = false;
        return;
      }
      leaf[voxel] = *number;
      const double off = std::abs(Restored(*number, coding) - value);
      here.most = std::max(here.most, off);
      here.squares += off * off;
    });
  }
  if (!told) {
    block->places.pop_back();
    block->masks.pop_back();
    for (auto& component : block->values) component.pop_back();
    return false;
  }
  if (error != nullptr) error->Add(here);
  return true;
}

CodingError ErrorOf(const BlockNumbers& block, size_t leaf, std::span<const std::byte> values,
                    const RegionCoding& coding) {
  CodingError error;
  for (size_t c = 0; c < block.values.size(); ++c) {
    ForOn(block.masks[leaf], [&](size_t voxel) {
      const double value =
          VdbNumberAt(NumberAt(values, voxel, c, coding.numbers), coding.numbers.dtype);
      const double off = std::abs(Restored(block.values[c][leaf][voxel], coding) - value);
      error.most = std::max(error.most, off);
      error.squares += off * off;
      ++error.numbers;
    });
  }
  return error;
}

void RestoreLeaf(const BlockNumbers& block, size_t leaf, const RegionCoding& coding,
                 std::span<std::byte> values) {
  for (size_t c = 0; c < block.values.size(); ++c) {
    const BlockNumbers::Leaf& from = block.values[c][leaf];
    ForOn(block.masks[leaf], [&](size_t voxel) {
      std::byte* const at = NumberAt(values, voxel, c, coding.numbers);
      if (coding.step == 0) {
        StoreOrdered(at, coding, int64_t{from[voxel]} << NoiseBits(coding));
      } else {
        StoreNumber(at, coding.numbers.dtype, Restored(from[voxel], coding));
      }
    });
  }
}

void AppendNoise(const LeafMask& mask, std::span<const std::byte> values,
                 const RegionCoding& coding, std::vector<std::byte>* noise) {
  const int bits = coding.step == 0 ? NoiseBits(coding) : 0;
  if (bits == 0) return;
  for (size_t c = 0; c < static_cast<size_t>(coding.numbers.components); ++c) {
    ForOn(mask, [&](size_t voxel) {
      const int64_t ordered = OrderedBits(NumberAt(values, voxel, c, coding.numbers), coding);
      for (int left = bits; left > 0; left -= 8)
        noise->push_back(static_cast<std::byte>(ordered >> (left - 8) & 0xff));
    });
  }
}

size_t NoiseBytes(const LeafMask& mask, const RegionCoding& coding) {
  const auto bytes = static_cast<size_t>(coding.step == 0 ? NoiseBits(coding) / 8 : 0);
  return static_cast<size_t>(CountOn(mask) * coding.numbers.components) * bytes;
}

void RestoreNoise(const LeafMask& mask, std::span<const std::byte> noise,
                  const RegionCoding& coding, std::span<std::byte> values) {
  const int bits = coding.step == 0 ? NoiseBits(coding) : 0;
  if (bits == 0) return;
  const std::byte* next = noise.data();
  for (size_t c = 0; c < static_cast<size_t>(coding.numbers.components); ++c) {
    ForOn(mask, [&](size_t voxel) {
      std::byte* const at = NumberAt(values, voxel, c, coding.numbers);
      int64_t ordered = OrderedBits(at, coding);
      for (int left = bits; left > 0; left -= 8)
        ordered += std::to_integer<int64_t>(*next++) << (left - 8);
      StoreOrdered(at, coding, ordered);
    });
  }
}

std::vector<std::byte> EncodeNumbers(const BlockNumbers& block, const RegionCoding& coding) {
  std::vector<std::byte> bytes;
  RangeEncoder coder(&bytes);
  if (!coding.contexts.empty()) {
    ContextCoder(coding.contexts).Encode(&coder, block);
  } else {
    for (size_t c = 0; c < block.values.size(); ++c) {
      LeafValueModel model(coding.weights[c]);
      for (size_t leaf = 0; leaf < block.places.size(); ++leaf)
        model.Encode(&coder, block.places[leaf], block.masks[leaf], block.values[c][leaf]);
    }
  }
  coder.Finish();
  return bytes;
}

void DecodeNumbers(std::span<const std::byte> bytes, const RegionCoding& coding,
                   BlockNumbers* block) {
  RangeDecoder coder(bytes);
  if (!coding.contexts.empty()) {
    ContextCoder(coding.contexts).Decode(&coder, block);
    return;
  }
  for (size_t c = 0; c < block->values.size(); ++c) {
    LeafValueModel model(coding.weights[c]);
    for (size_t leaf = 0; leaf < block->places.size(); ++leaf)
      model.Decode(&coder, block->places[leaf], block->masks[leaf], block->values[c][leaf]);
  }
}

}  // namespace tilery
