// Canonical Huffman codes as deflate has them. Source: RFC 1951, 3.2.2.
#pragma once

#include <cstdint>
#include <span>

namespace tilery {

// Code lengths of 1 to `most` for the symbols that occur, 0 for the others; the shortest code there
// is, unless `most` cuts it. Where fewer than two symbols occur, others get a code as well, so that
// it is complete. At least 2 and at most 512 symbols, whose counts add up to less than 2^32, and
// 2^most of them at least.
void HuffmanLengths(std::span<const uint32_t> counts, int most, std::span<uint8_t> lengths);

// The codes to these lengths (15 at most), the bit that goes out first lowest.
void HuffmanCodes(std::span<const uint8_t> lengths, std::span<uint16_t> codes);

}  // namespace tilery
