// A binary range coder whose probabilities adapt: the last stage of the grid codec.
//
// pipeline/codec/range_core.h has its arithmetic.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "pipeline/codec/range_core.h"

namespace tilery {

// The probability that a bit is 0. Learns fast at first, then slowly.
class AdaptiveBit {
 public:
  static constexpr int kBits = kRangeProbability;
  uint32_t zero() const { return zero_; }  // of 1 << kBits; never 0 and never all
  void Saw(bool bit) {
    const int rate = kRates[seen_];
    seen_ += seen_ + 1u < sizeof kRates ? 1 : 0;
    const int32_t goal = bit ? kLeast : (1 << kBits) - kLeast;
    zero_ = static_cast<uint16_t>(zero_ + (goal - zero_) / (1 << rate));
  }

 private:
  static constexpr int32_t kLeast = 32;
  // By how many bits were seen: roughly 1 / (n + 1.5), down to 1/64.
  static constexpr uint8_t kRates[] = {1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5,
                                       5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 5, 6};
  uint16_t zero_ = 1 << (kBits - 1);
  uint8_t seen_ = 0;
};

// Appends to a vector. Not thread-safe.
class RangeEncoder {
 public:
  explicit RangeEncoder(std::vector<std::byte>* out) : core_({out, out->size()}) {}

  void Encode(AdaptiveBit* model, bool bit) {
    core_.Bit(model->zero(), bit);
    model->Saw(bit);
  }
  // `count` bits of equal probability, at most 32.
  void EncodeRaw(uint32_t bits, int count) { core_.Raw(bits, count); }
  // Once, at the end. What is left out at the end reads as zeros.
  void Finish() { core_.Finish(); }
  auto& core() { return core_; }

 private:
  struct Out {
    std::vector<std::byte>* bytes;
    size_t begin;
    void Put(uint8_t byte) { bytes->push_back(static_cast<std::byte>(byte)); }
    void Trim() {
      while (bytes->size() > begin && bytes->back() == std::byte{0}) bytes->pop_back();
    }
  };
  RangeWriter<Out> core_;
};

// Reads what an encoder has written, given the same models in the same order. Never reads beyond
// `in`: damaged bytes give wrong bits, in bounded time. Not thread-safe.
class RangeDecoder {
 public:
  explicit RangeDecoder(std::span<const std::byte> in) : core_({in, 0}) {}

  bool Decode(AdaptiveBit* model) {
    const bool bit = core_.Bit(model->zero());
    model->Saw(bit);
    return bit;
  }
  uint32_t DecodeRaw(int count) { return core_.Raw(count); }
  auto& core() { return core_; }

 private:
  struct In {
    std::span<const std::byte> bytes;
    size_t at;
    uint8_t Next() { return at < bytes.size() ? static_cast<uint8_t>(bytes[at++]) : uint8_t{0}; }
  };
  RangeReader<In> core_;
};

// Models of a signed number of any size, small ones expected: whether it is 0, its sign, the length
// of its magnitude, and the upper bits of the rest; what is below them is taken as noise.
class AdaptiveNumber {
 public:
  void Encode(RangeEncoder* coder, int64_t number) {
    coder->Encode(&zero_, number == 0);
    if (number == 0) return;
    coder->Encode(&sign_, number < 0);
    const uint64_t size =
        number < 0 ? ~static_cast<uint64_t>(number) : static_cast<uint64_t>(number) - 1;
    // size + 1 has `length` bits below its highest.
    const int length = size == ~uint64_t{0} ? kLengths - 1 : std::bit_width(size + 1) - 1;
    for (int i = 0; i < length; ++i) coder->Encode(&lengths_[i], true);
    if (length < kLengths - 1) coder->Encode(&lengths_[length], false);
    const uint64_t rest = size + 1;
    for (int bit = length - 1, at = 1; bit >= 0; --bit) {
      const bool on = rest >> bit & 1;
      if (length - bit > kModelled) {
        coder->EncodeRaw(on ? 1 : 0, 1);
      } else {
        coder->Encode(&upper_[length - 1][at], on);
        at = 2 * at + (on ? 1 : 0);
      }
    }
  }
  int64_t Decode(RangeDecoder* coder) {
    if (coder->Decode(&zero_)) return 0;
    const bool negative = coder->Decode(&sign_);
    int length = 0;
    while (length < kLengths - 1 && coder->Decode(&lengths_[length])) ++length;
    uint64_t rest = 1;
    for (int bit = length - 1, at = 1; bit >= 0; --bit) {
      bool on;
      if (length - bit > kModelled) {
        on = coder->DecodeRaw(1) != 0;
      } else {
        on = coder->Decode(&upper_[length - 1][at]);
        at = 2 * at + (on ? 1 : 0);
      }
      rest = rest << 1 | (on ? 1 : 0);
    }
    const uint64_t size = rest - 1;
    return static_cast<int64_t>(negative ? ~size : size + 1);
  }

 private:
  static constexpr int kLengths = 64, kModelled = 3;
  AdaptiveBit zero_, sign_;
  AdaptiveBit lengths_[kLengths - 1];
  AdaptiveBit upper_[kLengths - 1][1 << kModelled];
};

}  // namespace tilery
