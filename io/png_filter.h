// Filters of PNG. Source: the PNG specification, clause 9.
#pragma once

#include <cstddef>
#include <span>

namespace tilery {

inline constexpr std::byte kPngPaeth{4};  // its number in front of a row

// out[i] = row[i] less the Paeth predictor of the bytes to the left, above, and above to the left,
// `pixel` bytes apart; left of the first pixel lies 0. All three are of one size and do not
// overlap.
void FilterPaeth(std::span<const std::byte> row, std::span<const std::byte> above, size_t pixel,
                 std::span<std::byte> out);

}  // namespace tilery
