#include "pipeline/codec/range_coder.h"

namespace tilery {

// The highest byte of `low_` leaves, but a carry may still come into it: it is held back, with all
// 0xFF that follow it.
void RangeEncoder::Shift() {
  constexpr uint64_t kUndecided = kTop - kLeast;  // the highest byte is 0xFF and there is no carry
  if (low_ < kUndecided || low_ >= kTop) {
    const auto carry = static_cast<uint8_t>(low_ >> kWidth);
    if (held_count_ > 0) Put(static_cast<uint8_t>(held_ + carry));
    for (; held_count_ > 1; --held_count_) Put(static_cast<uint8_t>(0xff + carry));
    held_ = static_cast<uint8_t>(low_ >> (kWidth - 8));
    held_count_ = 0;
  } else if (held_count_ == 0) {
    held_ = 0xff;  // the very first byte, into which nothing can be carried
  }
  ++held_count_;
  low_ = (low_ & (kLeast - 1)) << 8;
  range_ <<= 8;
}

void RangeEncoder::Finish() {
  // The number within the interval that has the most zeros at its end.
  for (int zeros = kWidth - 1; zeros > 0; --zeros) {
    const uint64_t unit = uint64_t{1} << zeros;
    const uint64_t number = (low_ + unit - 1) / unit * unit;
    if (number < low_ + range_) {
      low_ = number;
      break;
    }
  }
  const size_t begin = out_->size();
  range_ = kLeast;
  for (int i = 0; i <= kWidth; i += 8) Shift();
  while (out_->size() > begin && out_->back() == std::byte{0}) out_->pop_back();
}

}  // namespace tilery
