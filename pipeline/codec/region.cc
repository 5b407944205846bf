#include "pipeline/codec/region.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "io/byte_packer.h"
#include "io/error.h"
#include "io/vdb_pack.h"
#include "pipeline/codec/inner_nodes.h"

namespace tilery {
namespace {

constexpr int kLeafSide = 16;  // leaves along a lower node
using Ints = std::array<int32_t, kVdbLeafVoxels>;

double NumberAt(const std::byte* at, DType dtype) {
  if (dtype == DType::kF64) {
    double value;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  float value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

void StoreNumber(std::byte* at, DType dtype, double value) {
  if (dtype == DType::kF64) {
    std::memcpy(at, &value, sizeof value);
  } else {
    const auto single = static_cast<float>(value);
    std::memcpy(at, &single, sizeof single);
  }
}

// What a whole number comes back as.
double Restored(int32_t number, const RegionCoding& coding) {
  const double value = number * coding.step;
  if (coding.half) return HalfToFloat(FloatToHalf(static_cast<float>(value)));
  return coding.numbers.dtype == DType::kF64 ? value : static_cast<float>(value);
}

// Bits of a number in an order that follows the numbers': the upper ones are coded, of the lower
// ones so many are taken as noise.
int NoiseBits(const RegionCoding& coding) {
  return coding.half ? 0 : coding.numbers.dtype == DType::kF64 ? 40 : 8;
}
int64_t OrderedBits(const std::byte* at, const RegionCoding& coding) {
  if (coding.half) {
    const uint16_t bits = FloatToHalf(static_cast<float>(NumberAt(at, coding.numbers.dtype)));
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

// The values of a block's leaves, in either direction.
class BlockCoder {
 public:
  explicit BlockCoder(const RegionCoding& coding) : coding_(coding) {
    for (const ValueWeights& weights : coding.weights) models_.emplace_back(weights);
    for (LeafValueModel& model : models_) model.BeginBlock();
  }

  void Encode(RangeEncoder* coder, int place, const LeafMask& mask,
              std::span<const std::byte> values, CodingError* error) {
    const VdbMask active = MaskOf(mask);
    const VdbLeftOut inactive =
        VdbLeaveOut(coding_.numbers, Background(), active, VdbMask(0), values);
    EncodeInactive(coder, inactive, active, values);
    if (coding_.step == 0) return EncodeExact(coder, place, mask, active, values, error);
    std::vector<Ints> numbers(models_.size());
    CodingError here;
    const bool coded = Quantise(active, values, &numbers, &here);
    coder->Encode(&raw_, !coded);
    if (!coded) {
      for (int voxel = active.NextOn(0); voxel >= 0; voxel = active.NextOn(voxel + 1))
        Raw(coder, At(values, voxel));
      here = {.numbers = active.CountOn() * coding_.numbers.components};
    } else {
      for (size_t c = 0; c < models_.size(); ++c) models_[c].Encode(coder, place, mask, numbers[c]);
    }
    if (error != nullptr) error->Add(here);
  }

  void Decode(RangeDecoder* coder, int place, const LeafMask& mask, std::span<std::byte> values) {
    const VdbMask active = MaskOf(mask);
    DecodeInactive(coder, active, values);
    if (coding_.step == 0) return DecodeExact(coder, place, mask, active, values);
    if (coder->Decode(&raw_)) {
      for (int voxel = active.NextOn(0); voxel >= 0; voxel = active.NextOn(voxel + 1))
        Raw(coder, At(values, voxel));
      return;
    }
    for (size_t c = 0; c < models_.size(); ++c) {
      Ints numbers;
      models_[c].Decode(coder, place, mask, numbers);
      for (int voxel = active.NextOn(0); voxel >= 0; voxel = active.NextOn(voxel + 1))
        StoreNumber(At(values, voxel, c), coding_.numbers.dtype,
                    Restored(numbers[static_cast<size_t>(voxel)], coding_));
    }
  }

 private:
  static VdbMask MaskOf(const LeafMask& mask) {
    VdbMask active(kVdbLeafVoxels);
    std::copy(mask.begin(), mask.end(), active.words().begin());
    return active;
  }
  std::span<const std::byte> Background() const {
    return std::as_bytes(std::span(coding_.background));
  }
  template <typename Byte>
  Byte* At(std::span<Byte> values, int voxel, size_t component = 0) const {
    return &values[static_cast<size_t>(voxel) * coding_.numbers.bytes() +
                   component * DTypeSize(coding_.numbers.dtype)];
  }
  void Raw(RangeEncoder* coder, const std::byte* value) const {
    for (size_t i = 0; i < coding_.numbers.bytes(); ++i)
      coder->EncodeRaw(static_cast<uint32_t>(value[i]), 8);
  }
  void Raw(RangeDecoder* coder, std::byte* value) const {
    for (size_t i = 0; i < coding_.numbers.bytes(); ++i)
      value[i] = static_cast<std::byte>(coder->DecodeRaw(8));
  }

  bool Quantise(const VdbMask& active, std::span<const std::byte> values,
                std::vector<Ints>* numbers, CodingError* error) const {
    for (int voxel = active.NextOn(0); voxel >= 0; voxel = active.NextOn(voxel + 1)) {
      for (size_t c = 0; c < numbers->size(); ++c) {
        const double value = NumberAt(At(values, voxel, c), coding_.numbers.dtype);
        const auto number = Quantised(value, coding_);
        if (!number) return false;
        (*numbers)[c][static_cast<size_t>(voxel)] = *number;
        const double off = std::abs(Restored(*number, coding_) - value);
        error->most = std::max(error->most, off);
        error->squares += off * off;
        ++error->numbers;
      }
    }
    return true;
  }

  void EncodeExact(RangeEncoder* coder, int place, const LeafMask& mask, const VdbMask& active,
                   std::span<const std::byte> values, CodingError* error) {
    const int noise = NoiseBits(coding_);
    for (size_t c = 0; c < models_.size(); ++c) {
      Ints numbers{};
      for (int voxel = active.NextOn(0); voxel >= 0; voxel = active.NextOn(voxel + 1))
        numbers[static_cast<size_t>(voxel)] =
            static_cast<int32_t>(OrderedBits(At(values, voxel, c), coding_) >> noise);
      models_[c].Encode(coder, place, mask, numbers);
      for (int voxel = active.NextOn(0); voxel >= 0; voxel = active.NextOn(voxel + 1)) {
        const int64_t bits = OrderedBits(At(values, voxel, c), coding_);
        for (int left = noise; left > 0; left -= 8)
          coder->EncodeRaw(static_cast<uint32_t>(bits >> (left - 8) & 0xff), 8);
      }
    }
    if (error != nullptr) error->numbers += active.CountOn() * coding_.numbers.components;
  }
  void DecodeExact(RangeDecoder* coder, int place, const LeafMask& mask, const VdbMask& active,
                   std::span<std::byte> values) {
    const int noise = NoiseBits(coding_);
    for (size_t c = 0; c < models_.size(); ++c) {
      Ints numbers;
      models_[c].Decode(coder, place, mask, numbers);
      for (int voxel = active.NextOn(0); voxel >= 0; voxel = active.NextOn(voxel + 1)) {
        int64_t bits = numbers[static_cast<size_t>(voxel)];
        for (int left = noise; left > 0; left -= 8) bits = bits << 8 | coder->DecodeRaw(8);
        StoreOrdered(At(values, voxel, c), coding_, bits);
      }
    }
  }

  // Inactive values, exactly: as OpenVDB leaves them out; where they are many, one by one.
  void EncodeInactive(RangeEncoder* coder, const VdbLeftOut& left_out, const VdbMask& active,
                      std::span<const std::byte> values) {
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
  void DecodeInactive(RangeDecoder* coder, const VdbMask& active, std::span<std::byte> values) {
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

  const RegionCoding& coding_;
  std::vector<LeafValueModel> models_;
  AdaptiveBit raw_, second_, is_last_;
  std::array<AdaptiveBit, 2> is_background_;  // by whether the one before was
  std::array<AdaptiveBit, 8> inactive_;
};

const LeafMask* Beside(const Region* other, int place) {
  if (other == nullptr || !other->node.children.on(place)) return nullptr;
  size_t index = 0;
  for (size_t word = 0; word < static_cast<size_t>(place) / 64; ++word)
    index += static_cast<size_t>(std::popcount(other->node.children.words()[word]));
  const uint64_t below = (uint64_t{1} << (place % 64)) - 1;
  index += static_cast<size_t>(
      std::popcount(other->node.children.words()[static_cast<size_t>(place) / 64] & below));
  return &other->masks[index];
}

}  // namespace

void CodingError::Add(const CodingError& other) {
  most = std::max(most, other.most);
  squares += other.squares;
  numbers += other.numbers;
}

std::optional<int32_t> Quantised(double value, const RegionCoding& coding) {
  const double steps = value / coding.step;
  if (!(std::abs(steps) <= kLargestCodedValue)) return std::nullopt;
  const auto number = static_cast<int32_t>(std::nearbyint(steps));
  if (!(std::abs(Restored(number, coding) - value) <= coding.bound)) return std::nullopt;
  return number;
}

void WholeNumbers(const Region& region, size_t leaf, size_t component, const RegionCoding& coding,
                  std::span<int32_t, 512> numbers) {
  const size_t number = DTypeSize(coding.numbers.dtype), bytes = coding.numbers.bytes();
  for (size_t voxel = 0; voxel < kVdbLeafVoxels; ++voxel) {
    numbers[voxel] = 0;
    if (!(region.masks[leaf][voxel / 64] >> (voxel % 64) & 1)) continue;
    const std::byte* const at =
        &region.values[(leaf * kVdbLeafVoxels + voxel) * bytes + component * number];
    numbers[voxel] = coding.step == 0
                         ? static_cast<int32_t>(OrderedBits(at, coding) >> NoiseBits(coding))
                         : Quantised(NumberAt(at, coding.numbers.dtype), coding).value_or(0);
  }
}

std::vector<RegionBlock> BlocksOf(const VdbNode& node) {
  constexpr int kBlocks = kLeafSide / kBlockLeaves;
  std::vector<RegionBlock> all(kBlocks * kBlocks * kBlocks);
  size_t leaf = 0;
  for (int place = node.children.NextOn(0); place >= 0;
       place = node.children.NextOn(place + 1), ++leaf) {
    const int x = place / (kLeafSide * kLeafSide), y = place / kLeafSide % kLeafSide,
              z = place % kLeafSide;
    const int block = (x / kBlockLeaves * kBlocks + y / kBlockLeaves) * kBlocks + z / kBlockLeaves;
    RegionBlock& of = all[static_cast<size_t>(block)];
    of.leaves.push_back(leaf);
    of.places.push_back((x % kBlockLeaves * kBlockLeaves + y % kBlockLeaves) * kBlockLeaves +
                        z % kBlockLeaves);
  }
  std::erase_if(all, [](const RegionBlock& block) { return block.leaves.empty(); });
  return all;
}

std::vector<std::byte> EncodeRegion(const Region& region, const Region* other,
                                    const RegionCoding& coding, CodingError* error) {
  BytePacker out;
  const auto put = [&](const std::vector<std::byte>& stream) {
    out.Put(static_cast<uint32_t>(stream.size()));
    out.PutBytes(stream.data(), stream.size());
  };
  {
    std::vector<std::byte> stream;
    RangeEncoder coder(&stream);
    InnerNodeModel(VdbLevel::kLower, coding.background).Encode(&coder, region.node);
    LeafMaskModel masks;
    size_t leaf = 0;
    const VdbMask& children = region.node.children;
    for (int place = children.NextOn(0); place >= 0; place = children.NextOn(place + 1))
      masks.Encode(&coder, place, region.masks[leaf++], Beside(other, place));
    coder.Finish();
    put(stream);
  }
  const size_t leaf_bytes = kVdbLeafVoxels * coding.numbers.bytes();
  for (const RegionBlock& block : BlocksOf(region.node)) {
    std::vector<std::byte> stream;
    RangeEncoder coder(&stream);
    BlockCoder values(coding);
    for (size_t i = 0; i < block.leaves.size(); ++i) {
      const size_t leaf = block.leaves[i];
      values.Encode(&coder, block.places[i], region.masks[leaf],
                    std::span(region.values).subspan(leaf * leaf_bytes, leaf_bytes), error);
    }
    coder.Finish();
    put(stream);
  }
  return {out.bytes().begin(), out.bytes().end()};
}

Region DecodeRegion(std::span<const std::byte> bytes, const VdbCoord& origin, const Region* other,
                    const RegionCoding& coding, bool masks_only) {
  const auto next = [&bytes] {
    ByteUnpacker length(bytes);
    const auto size = length.Get<uint32_t>();
    if (length.failed() || size > length.left())
      throw Error(Fault::kInput, "a region that ends early");
    const auto stream = bytes.subspan(sizeof size, size);
    bytes = bytes.subspan(sizeof size + size);
    return stream;
  };
  Region region;
  RangeDecoder coder(next());
  InnerNodeModel(VdbLevel::kLower, coding.background).Decode(&coder, &region.node);
  region.node.origin = origin;
  LeafMaskModel masks;
  const VdbMask& children = region.node.children;
  for (int place = children.NextOn(0); place >= 0; place = children.NextOn(place + 1))
    region.masks.push_back(masks.Decode(&coder, place, Beside(other, place)));
  if (masks_only) return region;
  const size_t leaf_bytes = kVdbLeafVoxels * coding.numbers.bytes();
  region.values.resize(region.masks.size() * leaf_bytes);
  for (const RegionBlock& block : BlocksOf(region.node)) {
    RangeDecoder block_coder(next());
    BlockCoder values(coding);
    for (size_t i = 0; i < block.leaves.size(); ++i) {
      const size_t leaf = block.leaves[i];
      values.Decode(&block_coder, block.places[i], region.masks[leaf],
                    std::span(region.values).subspan(leaf * leaf_bytes, leaf_bytes));
    }
  }
  if (!bytes.empty()) throw Error(Fault::kInput, "bytes follow a region");
  return region;
}

}  // namespace tilery
