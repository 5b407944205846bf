#include "pipeline/codec/range_coder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace tilery {
namespace {

TEST(RangeCoder, BitsOfAnyProbabilityComeBack) {
  std::mt19937 random(1);
  for (const double ones : {0.0, 0.0001, 0.01, 0.3, 0.5, 0.97, 1.0}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{7}, size_t{20000}}) {
      std::vector<bool> bits;
      std::bernoulli_distribution bit(ones);
      for (size_t i = 0; i < count; ++i) bits.push_back(bit(random));
      std::vector<std::byte> bytes;
      RangeEncoder encoder(&bytes);
      AdaptiveBit model;
      for (const bool b : bits) encoder.Encode(&model, b);
      encoder.Finish();
      RangeDecoder decoder(bytes);
      AdaptiveBit again;
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(decoder.Decode(&again), bits[i]) << ones << " " << i;
    }
  }
}

// Within a few percent of what the entropy allows, the price of learning included.
TEST(RangeCoder, TakesWhatTheEntropySays) {
  std::mt19937 random(2);
  constexpr size_t kCount = 200000;
  for (const double ones : {0.002, 0.05, 0.2, 0.5}) {
    std::bernoulli_distribution bit(ones);
    std::vector<std::byte> bytes;
    RangeEncoder encoder(&bytes);
    AdaptiveBit model;
    for (size_t i = 0; i < kCount; ++i) encoder.Encode(&model, bit(random));
    encoder.Finish();
    const double entropy = -ones * std::log2(ones) - (1 - ones) * std::log2(1 - ones);
    const double is = static_cast<double>(bytes.size()) * 8 / kCount;
    EXPECT_LT(is, entropy * 1.05 + 0.002) << ones;
    EXPECT_GT(is, entropy * 0.95) << ones;
  }
}

// What follows a long run of 0xFF is carried through all of it.
TEST(RangeCoder, CarriesRunThroughWhatIsHeldBack) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> bytes;
    RangeEncoder encoder(&bytes);
    std::vector<uint32_t> words;
    for (int i = 0; i < 12; ++i) {
      // Raw ones put the interval's lower end just below a carry.
      words.push_back(random() % 3 == 0 ? random() : 0xffffffff);
      encoder.EncodeRaw(words.back(), 32);
    }
    AdaptiveBit model;
    for (int i = 0; i < 40; ++i) encoder.Encode(&model, i % 8 != 0);
    encoder.Finish();
    RangeDecoder decoder(bytes);
    for (const uint32_t word : words) ASSERT_EQ(decoder.DecodeRaw(32), word);
    AdaptiveBit again;
    for (int i = 0; i < 40; ++i) ASSERT_EQ(decoder.Decode(&again), i % 8 != 0);
  }
}

TEST(RangeCoder, WhatIsAppendedToStaysAsItWas) {
  std::vector<std::byte> bytes(3, std::byte{0});
  RangeEncoder encoder(&bytes);
  AdaptiveBit model;
  for (int i = 0; i < 100; ++i) encoder.Encode(&model, false);
  encoder.Finish();
  EXPECT_GE(bytes.size(), 3u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bytes[static_cast<size_t>(i)], std::byte{0});
}

TEST(RangeCoder, NumbersOfAnySizeComeBack) {
  using Limits = std::numeric_limits<int64_t>;
  std::vector<int64_t> numbers = {0,
                                  1,
                                  -1,
                                  2,
                                  -2,
                                  3,
                                  -3,
                                  255,
                                  -256,
                                  65536,
                                  Limits::max(),
                                  Limits::min(),
                                  Limits::max() - 1,
                                  Limits::min() + 1};
  std::mt19937_64 random(4);
  for (int i = 0; i < 20000; ++i) {
    const int64_t number = static_cast<int64_t>(random()) >> (random() % 64);
    numbers.push_back(number);
  }
  std::vector<std::byte> bytes;
  RangeEncoder encoder(&bytes);
  AdaptiveNumber model;
  for (const int64_t number : numbers) model.Encode(&encoder, number);
  encoder.Finish();
  RangeDecoder decoder(bytes);
  AdaptiveNumber again;
  for (const int64_t number : numbers) ASSERT_EQ(again.Decode(&decoder), number);
}

// A Laplace distribution costs its entropy and little more.
TEST(RangeCoder, SmallNumbersAreCheap) {
  std::mt19937 random(5);
  std::geometric_distribution<int> size(0.3);
  constexpr int kCount = 100000;
  std::vector<std::byte> bytes;
  RangeEncoder encoder(&bytes);
  AdaptiveNumber model;
  for (int i = 0; i < kCount; ++i) {
    const int number = size(random);
    model.Encode(&encoder, number == 0 ? 0 : random() % 2 == 0 ? number : -number);
  }
  encoder.Finish();
  // -0.3 log 0.3 - ... of a geometric distribution, and a bit of sign for all but zeros.
  const double entropy = (-0.3 * std::log2(0.3) - 0.7 * std::log2(0.7)) / 0.3 + 0.7;
  EXPECT_LT(static_cast<double>(bytes.size()) * 8 / kCount, entropy * 1.02);
}

TEST(RangeCoder, DamagedBytesEndInBoundedTime) {
  std::mt19937 random(6);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes(random() % 50);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    RangeDecoder decoder(bytes);
    AdaptiveNumber model;
    int64_t sum = 0;
    for (int i = 0; i < 2000; ++i) sum ^= model.Decode(&decoder);
    EXPECT_LE(sum, std::numeric_limits<int64_t>::max());
  }
}

}  // namespace
}  // namespace tilery
