#include "io/dtype.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;

// Samples of a half by its definition, in float64.
double ValueOfHalf(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(DType, NamesSurviveARoundTripAndSizesAreRight) {
  const std::pair<const char*, size_t> all[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},
                                                {"i16", 2}, {"u32", 4}, {"i32", 4},
                                                {"f16", 2}, {"f32", 4}, {"f64", 8}};
  for (const auto& [name, size] : all) {
    const DType type = DTypeFromName(name);
    EXPECT_STREQ(DTypeName(type), name);
    EXPECT_EQ(DTypeSize(type), size);
    EXPECT_EQ(IsFloat(type), name[0] == 'f');
    EXPECT_NE(IsFloat(type), IsInteger(type));
  }
}

TEST(DType, AWrongNameIsRefusedWithAllValidOnes) {
  EXPECT_THAT(ErrorOf(Fault::kUsage, [] { DTypeFromName("uint8"); }),
              HasSubstr("u8, i8, u16, i16, u32, i32, f16, f32, f64"));
}

TEST(DType, RangesAreThoseOfTheTypes) {
  EXPECT_EQ(LowestOf(DType::kU8), 0);
  EXPECT_EQ(HighestOf(DType::kU8), 255);
  EXPECT_EQ(LowestOf(DType::kI16), -32768);
  EXPECT_EQ(HighestOf(DType::kU32), 4294967295.0);
  EXPECT_EQ(LowestOf(DType::kI32), -2147483648.0);
  EXPECT_EQ(HighestOf(DType::kF16), 65504);
  EXPECT_EQ(LowestOf(DType::kF32), -static_cast<double>(std::numeric_limits<float>::max()));
}

TEST(Half, EveryBitPatternConvertsExactlyAndBack) {
  for (uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = HalfToFloat(half);
    const double expected = ValueOfHalf(half);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
    } else {
      ASSERT_EQ(static_cast<double>(value), expected) << bits;
      ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    }
    ASSERT_EQ(FloatToHalf(value), half) << bits;
  }
}

TEST(Half, RoundsToNearestAndTiesToEven) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {  // all neighbours among finite positive halves
    const auto low = static_cast<uint16_t>(bits);
    const auto high = static_cast<uint16_t>(bits + 1);
    const float middle =
        static_cast<float>((ValueOfHalf(low) + ValueOfHalf(high)) / 2);  // exact in float
    const uint16_t even = (low & 1) == 0 ? low : high;
    ASSERT_EQ(FloatToHalf(middle), even) << bits;
    ASSERT_EQ(FloatToHalf(-middle), even | 0x8000) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 0.0f)), low) << bits;
    ASSERT_EQ(FloatToHalf(std::nextafter(middle, 1e9f)), high) << bits;
  }
}

TEST(Half, OverflowsToInfinityAndUnderflowsToZero) {
  EXPECT_EQ(FloatToHalf(65504.0f), 0x7BFF);
  EXPECT_EQ(FloatToHalf(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
  EXPECT_EQ(FloatToHalf(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToHalf(-1e30f), 0xFC00);
  EXPECT_EQ(FloatToHalf(INFINITY), 0x7C00);
  EXPECT_EQ(FloatToHalf(0x1p-25f), 0) << "a tie with zero, which is even";
  EXPECT_EQ(FloatToHalf(std::nextafter(0x1p-25f, 1.0f)), 1);
  EXPECT_EQ(FloatToHalf(-std::numeric_limits<float>::denorm_min()), 0x8000);
}

TEST(Half, NanStaysNanWhateverItsPayload) {
  for (const uint32_t bits : {0x7F800001u, 0x7FC00000u, 0xFFFFFFFFu, 0x7F802000u}) {
    const uint16_t half = FloatToHalf(std::bit_cast<float>(bits));
    EXPECT_EQ(half & 0x7C00, 0x7C00);
    EXPECT_NE(half & 0x3FF, 0);
    EXPECT_EQ(half >> 15, bits >> 31);
  }
}

}  // namespace
}  // namespace tilery
