#include "io/png_filter.h"

#include <algorithm>
#include <cstdint>

namespace tilery {
namespace {

// Branches and bytes wider than the distances need would keep the compiler from vectors.
void Filter(const uint8_t* __restrict row, const uint8_t* __restrict above, size_t pixel,
            size_t size, uint8_t* __restrict out) {
  const auto distance = [](int16_t d) { return static_cast<int16_t>(d < 0 ? -d : d); };
  for (size_t i = pixel; i < size; ++i) {
    const int16_t a = row[i - pixel], b = above[i], c = above[i - pixel];
    const auto from_a = static_cast<int16_t>(b - c);  // a + b - c is so far from a
    const auto from_b = static_cast<int16_t>(a - c);
    const int16_t to_a = distance(from_a), to_b = distance(from_b);
    const int16_t to_c = distance(static_cast<int16_t>(from_a + from_b));
    const int16_t nearer = to_b <= to_c ? b : c;
    const int16_t predicted = to_a <= std::min(to_b, to_c) ? a : nearer;
    out[i] = static_cast<uint8_t>(row[i] - predicted);
  }
}

}  // namespace

void FilterPaeth(std::span<const std::byte> row, std::span<const std::byte> above, size_t pixel,
                 std::span<std::byte> out) {
  const auto* const r = reinterpret_cast<const uint8_t*>(row.data());
  const auto* const u = reinterpret_cast<const uint8_t*>(above.data());
  auto* const o = reinterpret_cast<uint8_t*>(out.data());
  // With nothing to the left the predictor is what lies above.
  for (size_t i = 0; i < std::min(pixel, row.size()); ++i) o[i] = static_cast<uint8_t>(r[i] - u[i]);
  Filter(r, u, pixel, row.size(), o);
}

}  // namespace tilery
