#include "io/exif.h"

#include <gtest/gtest.h>

#include "io/byte_order.h"
#include "io/exif_tree.h"
#include "tests/io/format_helpers.h"

namespace tilery {
namespace {

ExifField Text(uint16_t tag, const std::string& value) {
  return {tag, 2, static_cast<uint32_t>(value.size() + 1), value + '\0'};
}

ExifTree Camera() {
  ExifTree tree;
  tree.main = {Text(271, "Maker"), {274, 3, 1, std::string("\6\0", 2)}};
  tree.exif = {{33434, 5, 1, std::string("\1\0\0\0\x7D\0\0\0", 8)},
               Text(36867, "2001:02:03 04:05:06")};
  tree.gps = {Text(1, "N")};
  tree.interoperability = {Text(1, "R98")};
  return tree;
}

void ExpectEqual(const ExifDirectory& got, const ExifDirectory& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_EQ(got[i].tag, wanted[i].tag);
    EXPECT_EQ(got[i].type, wanted[i].type);
    EXPECT_EQ(got[i].count, wanted[i].count);
    EXPECT_EQ(got[i].value, wanted[i].value);
  }
}

TEST(ExifTest, WhatIsBuiltIsParsedAgain) {
  const ExifTree tree = ParseExif(BuildExif(Camera()));
  ExpectEqual(tree.main, Camera().main);
  ExpectEqual(tree.exif, Camera().exif);
  ExpectEqual(tree.gps, Camera().gps);
  ExpectEqual(tree.interoperability, Camera().interoperability);
  EXPECT_EQ(ExifOrientation(BuildExif(Camera())), 6);
  EXPECT_EQ(BuildExif({}), "");
}

TEST(ExifTest, OrientationIsFoundAndSetInBothByteOrders) {
  for (const bool big : {false, true}) {
    const std::string exif = ExifOfOrientation(3, big);
    EXPECT_EQ(ExifOrientation(exif), 3);
    EXPECT_EQ(ExifOrientation(WithExifOrientation(exif, 8)), 8);
    EXPECT_EQ(WithExifOrientation(exif, 8).size(), exif.size());
    EXPECT_EQ(WithExifOrientation(exif, 3), exif);
  }
  EXPECT_EQ(WithExifOrientation("", 1), "");
  EXPECT_EQ(ExifOrientation(WithExifOrientation("", 5)), 5);
}

TEST(ExifTest, DamageIsNoErrorWhereverItIs) {
  const std::string exif = BuildExif(Camera());
  for (size_t keep = 0; keep < exif.size(); ++keep) {
    const std::string cut = exif.substr(0, keep);
    const int orientation = ExifOrientation(cut);
    EXPECT_TRUE(orientation == 1 || orientation == 6);
    EXPECT_LE(ParseExif(cut).exif.size(), 2u);
    EXPECT_EQ(WithExifPixelSize(cut, 10, 10).size(), keep);
  }
  for (size_t at = 0; at < exif.size(); ++at) {
    for (const int bit : {0, 4, 7}) {
      std::string bad = exif;
      bad[at] = static_cast<char>(bad[at] ^ 1 << bit);
      const ExifTree tree = ParseExif(bad);
      EXPECT_LE(BuildExif(tree).size(), exif.size() + (16u << 20));
      EXPECT_GE(ExifOrientation(bad), 1);
    }
  }
}

TEST(ExifTest, FieldsThatShareTheirBytesTakeNoMoreThanTheLimit) {
  constexpr uint32_t kBytes = 1 << 20;
  constexpr uint16_t kFields = 100;
  std::string exif("II*\0\x08\0\0\0", 8);
  const auto number = [](uint32_t value, size_t bytes) {
    std::string out(4, '\0');
    Store(out.data(), value, false);
    return out.substr(0, bytes);
  };
  exif += number(kFields, 2);
  for (uint16_t i = 0; i < kFields; ++i) {
    exif += number(i + 1u, 2) + number(7, 2) + number(kBytes, 4) + number(0, 4);
  }
  exif.resize(kBytes, '\0');
  const ExifTree tree = ParseExif(exif);
  EXPECT_EQ(tree.main.size(), 16u);  // 16 MiB in all
}

TEST(ExifTest, ADirectoryThatLeadsToItselfEnds) {
  ExifTree loop = Camera();
  loop.main.push_back(
      {kExifPointer, 4, 1, std::string("\x08\0\0\0", 4)});  // to the first directory
  loop.exif.clear();
  loop.gps.clear();
  EXPECT_LE(ParseExif(BuildExif(loop)).exif.size(), 3u);
}

}  // namespace
}  // namespace tilery
