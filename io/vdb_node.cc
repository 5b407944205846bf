#include "io/byte_order.h"
#include "io/vdb_tree.h"

namespace tilery {

VdbCoord VdbPlaceOffset(VdbLevel level, int place) {
  const int bits = level == VdbLevel::kUpper ? 5 : level == VdbLevel::kLower ? 4 : 3;
  const int32_t edge = VdbPlaceEdge(level), most = (1 << bits) - 1;
  return {(place >> 2 * bits) * edge, (place >> bits & most) * edge, (place & most) * edge};
}

double VdbNumberAt(const std::byte* at, DType dtype) {
  return dtype == DType::kF64 ? LoadLittle<double>(at) : LoadLittle<float>(at);
}

int VdbMask::CountOn() const {
  int count = 0;
  for (const uint64_t word : words_) count += std::popcount(word);
  return count;
}

int VdbMask::NextOn(int from) const {
  for (auto word = static_cast<size_t>(from) / 64; word < words_.size(); ++word) {
    uint64_t bits = words_[word];
    if (word == static_cast<size_t>(from) / 64) bits &= ~uint64_t{0} << (from % 64);
    if (bits != 0) return static_cast<int>(word) * 64 + std::countr_zero(bits);
  }
  return -1;
}

}  // namespace tilery
