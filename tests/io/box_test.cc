#include "io/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;

TEST(Box, CountsVoxelsAndIsEmptyWhereAnyExtentIsNotPositive) {
  const Box box{{1, 2, 3}, {4, 6, 8}};
  EXPECT_EQ(box.shape(), (Index{3, 4, 5}));
  EXPECT_EQ(box.voxels(), 60);
  EXPECT_TRUE((Box{{0, 0, 0}, {1, 0, 1}}).empty());
  EXPECT_TRUE((Box{{5, 0, 0}, {1, 1, 1}}).empty());
  EXPECT_EQ((Box{{0, 0, 0}, {4, 100000, 100000}}).voxels(), 40'000'000'000);
}

TEST(Box, ContainsItselfPartsAndEmptyBoxesOnly) {
  const Box box{{0, 0, 0}, {4, 4, 4}};
  EXPECT_TRUE(box.contains(box));
  EXPECT_TRUE(box.contains({{1, 1, 1}, {2, 4, 4}}));
  EXPECT_FALSE(box.contains({{1, 1, 1}, {2, 5, 4}}));
  EXPECT_FALSE(box.contains({{-1, 1, 1}, {2, 4, 4}}));
  EXPECT_TRUE(box.contains({{9, 9, 9}, {9, 9, 9}}));
}

TEST(Box, IntersectionOfDisjointBoxesIsEmptyAtItsOwnBegin) {
  EXPECT_EQ(Intersect({{0, 0, 0}, {4, 4, 4}}, {{2, 1, 3}, {9, 9, 9}}), (Box{{2, 1, 3}, {4, 4, 4}}));
  const Box apart = Intersect({{0, 0, 0}, {4, 4, 4}}, {{4, 0, 0}, {8, 4, 4}});
  EXPECT_TRUE(apart.empty());
  EXPECT_EQ(apart.begin, apart.end);
}

TEST(Box, HullIgnoresEmptyBoxes) {
  const Box a{{0, 0, 0}, {1, 1, 1}};
  EXPECT_EQ(Hull(a, {{3, 4, 5}, {4, 5, 6}}), (Box{{0, 0, 0}, {4, 5, 6}}));
  EXPECT_EQ(Hull(a, {{100, 100, 100}, {100, 100, 100}}), a);
  EXPECT_EQ(Hull({{-9, 0, 0}, {-9, 0, 0}}, a), a);
}

TEST(Box, ShiftMovesBothCorners) {
  EXPECT_EQ(Shift({{0, 1, 2}, {3, 4, 5}}, {1, -1, 10}), (Box{{1, 0, 12}, {4, 3, 15}}));
}

TEST(Box, PrintsAsRangesPerAxis) {
  EXPECT_EQ(ToString(Box{{0, -1, 2}, {3, 4, 5}}), "[0:3, -1:4, 2:5]");
  EXPECT_EQ(ShapeToString({512, 2048, 1024}, 3), "512x2048x1024");
  EXPECT_EQ(ShapeToString({1, 2048, 1024}, 2), "2048x1024");
}

TEST(Product, RefusesNegativeExtentsAndMoreThan2To62) {
  EXPECT_EQ(Product({3, 4, 5}), 60);
  EXPECT_EQ(Product({0, int64_t{1} << 62, int64_t{1} << 62}), 0);
  EXPECT_EQ(Product({1, int64_t{1} << 31, int64_t{1} << 31}), int64_t{1} << 62);
  EXPECT_THAT(ErrorOf(Fault::kUsage,
                      [] {
                        Product({2, int64_t{1} << 31, int64_t{1} << 31});
                      }),
              HasSubstr("2147483648"));
  const int64_t huge = std::numeric_limits<int64_t>::max();
  ErrorOf(Fault::kUsage, [&] { Product({huge, huge, huge}); });
  EXPECT_THAT(ErrorOf(Fault::kUsage, [] { Product({1, -4, 2}); }), HasSubstr("-4"));
}

TEST(Rational, IsKeptInLowestTerms) {
  EXPECT_EQ(Rational::Of(6, 4), (Rational{3, 2}));
  EXPECT_EQ(Rational::Parse("8/2"), (Rational{4, 1}));
  EXPECT_EQ(Rational::Parse("1/8").ToString(), "1/8");
  EXPECT_EQ(Rational::Parse("4").ToString(), "4");
}

TEST(Rational, RefusesWhatIsNoPositiveFraction) {
  for (const char* text : {"", "0", "-1", "1/0", "1/-2", "/2", "1/", "1/2/3", "1.5", " 4", "4 ",
                           "x2", "99999999999999999999", "0x4", "+4"}) {
    EXPECT_THAT(ErrorOf(Fault::kUsage, [&] { Rational::Parse(text); }),
                HasSubstr(std::string(1, '"') + text + '"'));
  }
  ErrorOf(Fault::kUsage, [] { Rational::Of(0, 1); });
  ErrorOf(Fault::kUsage, [] { Rational::Of(1, 0); });
}

TEST(Rational, RoundsDownAndUpAsAsked) {
  const Rational third = Rational::Of(1, 3);
  EXPECT_EQ(third.Floor(7), 2);
  EXPECT_EQ(third.Ceil(7), 3);
  EXPECT_EQ(third.Ceil(6), 2);
  EXPECT_EQ(third.Ceil(0), 0);
  EXPECT_EQ(Rational::Of(4, 1).Ceil(5), 20);
}

TEST(Rational, ComputesWithoutOverflowOnTheWay) {
  const int64_t big = int64_t{1} << 61;
  EXPECT_EQ(Rational::Of(1000, 1001).Floor(big), static_cast<int64_t>(__int128{big} * 1000 / 1001));
  EXPECT_THAT(ErrorOf(Fault::kUsage, [&] { Rational::Of(4, 1).Ceil(big); }), HasSubstr("2^62"));
}

}  // namespace
}  // namespace tilery
