#include "io/huffman.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <queue>
#include <random>
#include <vector>

namespace tilery {
namespace {

std::vector<uint8_t> LengthsOf(const std::vector<uint32_t>& counts, int most) {
  std::vector<uint8_t> lengths(counts.size());
  HuffmanLengths(counts, most, lengths);
  return lengths;
}

// In units of a code of `most` bits: 2^most if the code is complete.
uint64_t KraftSum(const std::vector<uint8_t>& lengths, int most) {
  uint64_t sum = 0;
  for (const uint8_t length : lengths) {
    if (length > 0) sum += uint64_t{1} << (most - length);
  }
  return sum;
}

uint64_t Bits(const std::vector<uint32_t>& counts, const std::vector<uint8_t>& lengths) {
  uint64_t bits = 0;
  for (size_t i = 0; i < counts.size(); ++i) bits += uint64_t{counts[i]} * lengths[i];
  return bits;
}

// The fewest bits that any prefix code needs: the sum of all merged weights.
uint64_t FewestBits(const std::vector<uint32_t>& counts) {
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap;
  for (const uint32_t count : counts) {
    if (count > 0) heap.push(count);
  }
  uint64_t bits = 0;
  while (heap.size() > 1) {
    uint64_t merged = heap.top();
    heap.pop();
    merged += heap.top();
    heap.pop();
    heap.push(merged);
    bits += merged;
  }
  return bits;
}

TEST(HuffmanTest, TheCodeIsCompleteAndTheShortestThereIs) {
  std::minstd_rand random(3);
  for (int round = 0; round < 300; ++round) {
    std::vector<uint32_t> counts(2 + random() % 300);
    for (uint32_t& count : counts) count = random() % 3 == 0 ? 0 : 1 + (random() >> 8) % 50;
    counts[0] = counts[1] = 1;
    const std::vector<uint8_t> lengths = LengthsOf(counts, 15);
    EXPECT_EQ(KraftSum(lengths, 15), uint64_t{1} << 15);
    EXPECT_EQ(Bits(counts, lengths), FewestBits(counts));
    for (size_t i = 0; i < counts.size(); ++i) EXPECT_EQ(lengths[i] == 0, counts[i] == 0);
  }
}

TEST(HuffmanTest, NoCodeIsLongerThanTheLimit) {
  std::vector<uint32_t> counts = {1, 1};  // Fibonacci's numbers make the deepest tree
  while (counts.size() < 40) counts.push_back(counts[counts.size() - 2] + counts.back());
  for (const int most : {6, 7, 9, 14, 15}) {
    const std::vector<uint8_t> lengths = LengthsOf(counts, most);
    EXPECT_EQ(KraftSum(lengths, most), uint64_t{1} << most);
    EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), most);
  }
  // 128 symbols fit 7 bits in one way only.
  const std::vector<uint8_t> full = LengthsOf(std::vector<uint32_t>(128, 1), 7);
  EXPECT_EQ(full, std::vector<uint8_t>(128, 7));
}

TEST(HuffmanTest, OneSymbolAloneGetsANeighbour) {
  EXPECT_EQ(LengthsOf({0, 0, 9, 0}, 7), (std::vector<uint8_t>{1, 0, 1, 0}));
  EXPECT_EQ(LengthsOf({9, 0, 0}, 7), (std::vector<uint8_t>{1, 1, 0}));
  EXPECT_EQ(LengthsOf({0, 0, 0}, 7), (std::vector<uint8_t>{1, 1, 0}));
}

TEST(HuffmanTest, CodesAreThoseOfTheStandardsExample) {
  // RFC 1951, 3.2.2: ABCDEFGH with lengths 3, 3, 3, 3, 3, 2, 4, 4.
  const std::array<uint8_t, 8> lengths = {3, 3, 3, 3, 3, 2, 4, 4};
  std::array<uint16_t, 8> codes;
  HuffmanCodes(lengths, codes);
  const std::array<uint16_t, 8> backwards = {0b010, 0b110, 0b001,  0b101,
                                             0b011, 0b00,  0b0111, 0b1111};
  EXPECT_EQ(codes, backwards);
}

}  // namespace
}  // namespace tilery
