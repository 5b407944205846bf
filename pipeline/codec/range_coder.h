// A binary range coder whose probabilities adapt: the last stage of the grid codec.
//
// Each bit narrows an interval in proportion to the probability that its model gives it, so a bit
// that was expected costs little. Integer arithmetic throughout: what one machine writes, any other
// reads. Carries run into what is held back, as in LZMA's coder (Pavlov), but with an interval of
// 48 bits, so that probabilities of 16 bits lose nothing.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tilery {

// The probability that a bit is 0. Learns fast at first, then slowly.
class AdaptiveBit {
 public:
  static constexpr int kBits = 16;
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
  explicit RangeEncoder(std::vector<std::byte>* out) : out_(out) {}

  void Encode(AdaptiveBit* model, bool bit) {
    const uint64_t zeros = (range_ >> AdaptiveBit::kBits) * model->zero();
    if (bit) low_ += zeros;
    range_ = bit ? range_ - zeros : zeros;
    model->Saw(bit);
    while (range_ < kLeast) Shift();
  }
  // `count` bits of equal probability, at most 32.
  void EncodeRaw(uint32_t bits, int count) {
    while (count > 0) {
      range_ >>= 1;
      if (bits >> --count & 1) low_ += range_;
      while (range_ < kLeast) Shift();
    }
  }
  // One of several outcomes, which has `part` of 1 << AdaptiveBit::kBits, at least 1, behind
  // `below` of those before it. The last one gets what division leaves.
  void EncodePart(uint32_t below, uint32_t part) {
    const uint64_t unit = range_ >> AdaptiveBit::kBits;
    low_ += unit * below;
    range_ = below + part == 1u << AdaptiveBit::kBits ? range_ - unit * below : unit * part;
    while (range_ < kLeast) Shift();
  }
  // Once, at the end. What is left out at the end reads as zeros.
  void Finish();

 private:
  friend class RangeDecoder;
  static constexpr int kWidth = 48;
  static constexpr uint64_t kTop = uint64_t{1} << kWidth, kLeast = kTop >> 8;
  void Shift();
  void Put(uint8_t byte) { out_->push_back(static_cast<std::byte>(byte)); }

  std::vector<std::byte>* const out_;
  uint64_t low_ = 0, range_ = kTop - 1;
  uint8_t held_ = 0;        // may still be carried into
  int64_t held_count_ = 0;  // bytes held back: `held_`, then 0xFF
};

// Reads what an encoder has written, given the same models in the same order. Never reads beyond
// `in`: damaged bytes give wrong bits, in bounded time. Not thread-safe.
class RangeDecoder {
 public:
  explicit RangeDecoder(std::span<const std::byte> in) : in_(in) {
    for (int i = 0; i < RangeEncoder::kWidth; i += 8) code_ = code_ << 8 | Next();
  }

  bool Decode(AdaptiveBit* model) {
    const uint64_t zeros = (range_ >> AdaptiveBit::kBits) * model->zero();
    const bool bit = code_ >= zeros;
    if (bit) code_ -= zeros;
    range_ = bit ? range_ - zeros : zeros;
    model->Saw(bit);
    Fill();
    return bit;
  }
  // Which part of 1 << AdaptiveBit::kBits comes next: that of the outcome for which below <= Part()
  // < below + part. To be followed by TakePart with these.
  uint32_t Part() const {
    constexpr uint64_t kMost = (1u << AdaptiveBit::kBits) - 1;
    return static_cast<uint32_t>(std::min(code_ / (range_ >> AdaptiveBit::kBits), kMost));
  }
  void TakePart(uint32_t below, uint32_t part) {
    const uint64_t unit = range_ >> AdaptiveBit::kBits;
    code_ -= unit * below;
    range_ = below + part == 1u << AdaptiveBit::kBits ? range_ - unit * below : unit * part;
    Fill();
  }
  uint32_t DecodeRaw(int count) {
    uint32_t bits = 0;
    for (; count > 0; --count) {
      range_ >>= 1;
      const bool bit = code_ >= range_;
      if (bit) code_ -= range_;
      bits = bits << 1 | (bit ? 1 : 0);
      Fill();
    }
    return bits;
  }

 private:
  void Fill() {
    while (range_ < RangeEncoder::kLeast) {
      range_ <<= 8;
      code_ = (code_ << 8 | Next()) & (RangeEncoder::kTop - 1);
    }
  }
  uint8_t Next() { return at_ < in_.size() ? static_cast<uint8_t>(in_[at_++]) : 0; }

  std::span<const std::byte> in_;
  size_t at_ = 0;
  uint64_t code_ = 0, range_ = RangeEncoder::kTop - 1;
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
