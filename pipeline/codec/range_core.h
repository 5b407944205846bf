// The arithmetic of the range coder, for every device: both g++ and nvcc compile this file. C++17.
//
// Each outcome narrows an interval in proportion to the probability that it is given, so one that
// was expected costs little. Integer arithmetic throughout: what one machine writes, any other
// reads. Carries run into what is held back, as in LZMA's coder (Pavlov), but with an interval of
// 48 bits, so that probabilities of 16 bits lose nothing.
#pragma once

#include <cstdint>

#include "pipeline/formulas.h"

namespace tilery {

inline constexpr int kRangeWidth = 48, kRangeProbability = 16;
inline constexpr uint64_t kRangeTop = uint64_t{1} << kRangeWidth, kRangeLeast = kRangeTop >> 8;

// `Out` has Put(uint8_t), and Trim(), which takes zeros away at the end.
template <typename Out>
class RangeWriter {
 public:
  TILERY_HD explicit RangeWriter(const Out& out) : out_(out) {}

  // A bit for which 0 has a probability of `zero` in 1 << kRangeProbability.
  TILERY_HD void Bit(uint32_t zero, bool bit) {
    const uint64_t zeros = (range_ >> kRangeProbability) * zero;
    if (bit) low_ += zeros;
    range_ = bit ? range_ - zeros : zeros;
    Fill();
  }
  // `count` bits of equal probability, at most 32.
  TILERY_HD void Raw(uint32_t bits, int count) {
    while (count > 0) {
      range_ >>= 1;
      if ((bits >> --count & 1) != 0) low_ += range_;
      Fill();
    }
  }
  // One of several outcomes, which has `part` of 1 << kRangeProbability, at least 1, behind `below`
  // of those before it. The last one gets what division leaves.
  TILERY_HD void Part(uint32_t below, uint32_t part) {
    const uint64_t unit = range_ >> kRangeProbability;
    low_ += unit * below;
    range_ = below + part == uint32_t{1} << kRangeProbability ? range_ - unit * below : unit * part;
    Fill();
  }
  // Once, at the end: the number within the interval that has the most zeros at its end. What is
  // left out at the end reads as zeros.
  TILERY_HD void Finish() {
    for (int zeros = kRangeWidth - 1; zeros > 0; --zeros) {
      const uint64_t unit = uint64_t{1} << zeros;
      const uint64_t number = (low_ + unit - 1) & ~(unit - 1);
      if (number < low_ + range_) {
        low_ = number;
        break;
      }
    }
    range_ = kRangeLeast;
    for (int i = 0; i <= kRangeWidth; i += 8) Shift();
    out_.Trim();
  }
  TILERY_HD Out& out() { return out_; }

 private:
  TILERY_HD void Fill() {
    while (range_ < kRangeLeast) Shift();
  }
  // The highest byte of `low_` leaves, but a carry may still come into it: it is held back, with
  // all 0xFF that follow it.
  TILERY_HD void Shift() {
    // From here on the highest byte is 0xFF and there is no carry.
    constexpr uint64_t kUndecided = kRangeTop - kRangeLeast;
    if (low_ < kUndecided || low_ >= kRangeTop) {
      const auto carry = static_cast<uint8_t>(low_ >> kRangeWidth);
      if (held_count_ > 0) out_.Put(static_cast<uint8_t>(held_ + carry));
      for (; held_count_ > 1; --held_count_) out_.Put(static_cast<uint8_t>(0xff + carry));
      held_ = static_cast<uint8_t>(low_ >> (kRangeWidth - 8));
      held_count_ = 0;
    } else if (held_count_ == 0) {
      held_ = 0xff;  // the very first byte, into which nothing can be carried
    }
    ++held_count_;
    low_ = (low_ & (kRangeLeast - 1)) << 8;
    range_ <<= 8;
  }

  Out out_;
  uint64_t low_ = 0, range_ = kRangeTop - 1;
  uint8_t held_ = 0;        // may still be carried into
  int64_t held_count_ = 0;  // bytes held back: `held_`, then 0xFF
};

// `In` has Next(), a byte, 0 after the last one. Damaged bytes give wrong outcomes, in bounded
// time.
template <typename In>
class RangeReader {
 public:
  TILERY_HD explicit RangeReader(const In& in) : in_(in) {
    for (int i = 0; i < kRangeWidth; i += 8) code_ = code_ << 8 | in_.Next();
  }

  TILERY_HD bool Bit(uint32_t zero) {
    const uint64_t zeros = (range_ >> kRangeProbability) * zero;
    const bool bit = code_ >= zeros;
    if (bit) code_ -= zeros;
    range_ = bit ? range_ - zeros : zeros;
    Fill();
    return bit;
  }
  TILERY_HD uint32_t Raw(int count) {
    uint32_t bits = 0;
    for (; count > 0; --count) {
      range_ >>= 1;
      const bool bit = code_ >= range_;
      if (bit) code_ -= range_;
      bits = bits << 1 | (bit ? 1u : 0u);
      Fill();
    }
    return bits;
  }
  // Which part of 1 << kRangeProbability comes next: that of the outcome for which below <= Where()
  // < below + part. To be followed by Take with these.
  TILERY_HD uint32_t Where() const {
    const uint64_t where = code_ / (range_ >> kRangeProbability);
    constexpr uint32_t kMost = (uint32_t{1} << kRangeProbability) - 1;
    return where < kMost ? static_cast<uint32_t>(where) : kMost;
  }
  // Whether below <= Where().
  TILERY_HD bool Reaches(uint32_t below) const {
    return (range_ >> kRangeProbability) * below <= code_;
  }
  TILERY_HD void Take(uint32_t below, uint32_t part) {
    const uint64_t unit = range_ >> kRangeProbability;
    code_ -= unit * below;
    range_ = below + part == uint32_t{1} << kRangeProbability ? range_ - unit * below : unit * part;
    Fill();
  }

 private:
  TILERY_HD void Fill() {
    while (range_ < kRangeLeast) {
      range_ <<= 8;
      code_ = (code_ << 8 | in_.Next()) & (kRangeTop - 1);
    }
  }

  In in_;
  uint64_t code_ = 0, range_ = kRangeTop - 1;
};

}  // namespace tilery
