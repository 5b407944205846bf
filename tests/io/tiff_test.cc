#include "io/tiff.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"
#include "tests/io/png_builder.h"
#include "tests/io/tiff_builder.h"

namespace tilery {
namespace {

constexpr uint32_t kWidth = 64, kHeight = 48;
constexpr uint32_t kGray = 1, kRgb = 2, kPalette = 3;

// Three channels that no mix-up of rows, columns or channels leaves the same.
uint32_t Value(uint32_t c, uint32_t y, uint32_t x) {
  static constexpr uint32_t kModulo[] = {251, 241, 239};
  return (y * kWidth + x) % kModulo[c];
}

class TiffTest : public testing::Test {
 protected:
  Picture Read(const TiffBuilder& tiff) {
    PutFile(folder_ / "a.tif", tiff.file());
    return ReadPicture(folder_ / "a.tif");
  }
  std::string Refusal(const TiffBuilder& tiff) {
    return ErrorOf(Fault::kInput, [&] { Read(tiff); });
  }
  // Samples of channels [c0, c1) in rows and columns as given, zero beyond the picture.
  static std::string Samples(const TiffBuilder& tiff, uint32_t c0, uint32_t c1, uint32_t y0,
                             uint32_t y1, uint32_t x0, uint32_t x1, int bytes = 1,
                             uint32_t factor = 1) {
    std::string out;
    for (uint32_t y = y0; y < y1; ++y)
      for (uint32_t x = x0; x < x1; ++x)
        for (uint32_t c = c0; c < c1; ++c)
          out += tiff.Number(y < kHeight && x < kWidth ? Value(c, y, x) * factor : 0, bytes);
    return out;
  }
  static void ExpectValues(Picture& got) {
    ASSERT_EQ(got.header.channels, 3);
    ASSERT_EQ(got.header.shape, (Index{1, kHeight, kWidth}));
    for (uint32_t y = 0; y < kHeight; ++y)
      for (uint32_t x = 0; x < kWidth; ++x)
        for (uint32_t c = 0; c < 3; ++c) ASSERT_EQ(got.at<uint8_t>(c, 0, y, x), Value(c, y, x));
  }
  static TiffBuilder GrayPage(const std::string& data, uint32_t width, uint32_t height,
                              uint32_t bits, uint32_t photometric = kGray) {
    TiffBuilder tiff;
    tiff.Size(width, height, bits, 1, photometric);
    tiff.Strips({data}, height);
    return tiff;
  }

  TempFolder folder_;
};

TEST_F(TiffTest, PlanesTilesAndStripsGiveTheSameSamples) {
  for (const bool separate : {false, true}) {
    for (const bool tiled : {false, true}) {
      TiffBuilder tiff;
      tiff.Size(kWidth, kHeight, 8, 3, kRgb);
      tiff.Short(284, {separate ? 2u : 1u});
      std::vector<std::string> chunks;
      for (uint32_t plane = 0; plane < (separate ? 3 : 1); ++plane) {
        const uint32_t c0 = plane, c1 = separate ? plane + 1 : 3;
        if (tiled) {  // 16 wide, 32 high: the last row of tiles hangs over
          for (uint32_t y = 0; y < kHeight; y += 32)
            for (uint32_t x = 0; x < kWidth; x += 16)
              chunks.push_back(Samples(tiff, c0, c1, y, y + 32, x, x + 16));
        } else {
          for (uint32_t y = 0; y < kHeight; y += 10)
            chunks.push_back(Samples(tiff, c0, c1, y, std::min(y + 10, kHeight), 0, kWidth));
        }
      }
      if (tiled) {
        tiff.Tiles(chunks, 16, 32);
      } else {
        tiff.Strips(chunks, 10);
      }
      tiff.EndPage();
      SCOPED_TRACE(std::string(separate ? "separate " : "together ") +
                   (tiled ? "tiles" : "strips"));
      Picture got = Read(tiff);
      ExpectValues(got);
      EXPECT_EQ(got.header.access, Access::kRandom);
    }
  }
}

TEST_F(TiffTest, BigEndianSamplesCountTheSame) {
  TiffBuilder tiff(true);
  tiff.Size(kWidth, kHeight, 16, 3, kRgb);
  tiff.Strips({Samples(tiff, 0, 3, 0, kHeight, 0, kWidth, 2, 257)}, kHeight);
  tiff.EndPage();
  Picture got = Read(tiff);
  EXPECT_EQ(got.header.dtype, DType::kU16);
  for (uint32_t c = 0; c < 3; ++c)
    EXPECT_EQ(got.at<uint16_t>(c, 0, 31, 17), Value(c, 31, 17) * 257);
}

TEST_F(TiffTest, CompressedStripsWithPredictorsAreDecoded) {
  // Horizontal differences of bytes, deflated.
  std::string rows;
  for (uint32_t y = 0; y < 5; ++y)
    for (uint32_t x = 0; x < 7; ++x) rows += static_cast<char>(x == 0 ? y : 3);
  TiffBuilder tiff = GrayPage(Zlib(rows), 7, 5, 8);
  tiff.Short(259, {8});
  tiff.Short(317, {2});
  tiff.EndPage();
  Picture got = Read(tiff);
  EXPECT_EQ(got.at<uint8_t>(0, 0, 4, 6), 4 + 18);
}

TEST_F(TiffTest, TheFloatingPointPredictorIsDecoded) {
  const std::vector<float> row = {1.5f, -2.25f, 3e8f, 0.f, -0.f, 1e-30f};
  std::string planes;  // all first bytes, then all second ones, most significant first
  for (int byte = 3; byte >= 0; --byte) {
    for (const float value : row) {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      planes += static_cast<char>(bits >> (8 * byte));
    }
  }
  for (size_t i = planes.size() - 1; i > 0; --i)
    planes[i] = static_cast<char>(planes[i] - planes[i - 1]);
  TiffBuilder tiff = GrayPage(Zlib(planes), 6, 1, 32);
  tiff.Short(259, {8});
  tiff.Short(317, {3});
  tiff.Short(339, {3});
  tiff.EndPage();
  Picture got = Read(tiff);
  for (int64_t x = 0; x < 6; ++x) EXPECT_EQ(got.at<float>(0, 0, 0, x), row[static_cast<size_t>(x)]);
}

TEST_F(TiffTest, CompressedChunksThatSpanTheWidthComeInOrder) {
  struct Case {
    uint32_t tile_width;  // 0: strips
    bool separate, deflated;
    Access access;
  };
  for (const Case& c : {Case{0, false, true, Access::kRows},
                        {0, true, true, Access::kRows},
                        {64, false, true, Access::kRows},
                        {80, true, true, Access::kRows},
                        {32, false, true, Access::kRandom},
                        {32, true, true, Access::kRandom},
                        {64, false, false, Access::kRandom},
                        {0, false, false, Access::kRandom}}) {
    TiffBuilder tiff;
    tiff.Size(kWidth, kHeight, 8, 3, kRgb);
    tiff.Short(284, {c.separate ? 2u : 1u});
    std::vector<std::string> chunks;
    const uint32_t width = c.tile_width == 0 ? kWidth : c.tile_width;
    for (uint32_t plane = 0; plane < (c.separate ? 3 : 1); ++plane) {
      const uint32_t c0 = plane, c1 = c.separate ? plane + 1 : 3;
      for (uint32_t y = 0; y < kHeight; y += 16) {
        for (uint32_t x = 0; x < kWidth; x += width) {
          const std::string plain = Samples(tiff, c0, c1, y, y + 16, x, x + width);
          chunks.push_back(c.deflated ? Zlib(plain) : plain);
        }
      }
    }
    if (c.tile_width == 0) {
      tiff.Strips(chunks, 16);
    } else {
      tiff.Tiles(chunks, width, 16);
    }
    if (c.deflated) tiff.Short(259, {8});
    tiff.EndPage();
    SCOPED_TRACE(std::to_string(c.tile_width) + (c.separate ? " separate" : " together") +
                 (c.deflated ? " deflated" : ""));
    Picture got = Read(tiff);
    ExpectValues(got);
    EXPECT_EQ(got.header.access, c.access);
    got = ReadPicture(*OpenReader(folder_ / "a.tif"), 7);  // bands that cut chunks
    ExpectValues(got);
  }
}

TEST_F(TiffTest, CompressedTilesServeSeveralThreads) {
  TiffBuilder tiff;
  tiff.Size(kWidth, kHeight, 8, 3, kRgb);
  std::vector<std::string> tiles;
  for (uint32_t y = 0; y < kHeight; y += 16)
    for (uint32_t x = 0; x < kWidth; x += 16)
      tiles.push_back(Zlib(Samples(tiff, 0, 3, y, y + 16, x, x + 16)));
  tiff.Tiles(tiles, 16, 16);
  tiff.Short(259, {8});
  tiff.EndPage();
  PutFile(folder_ / "a.tif", tiff.file());
  Picture whole = ReadPicture(folder_ / "a.tif");
  ExpectValues(whole);
  std::array<int, 4> equal{};
  for (int round = 0; round < 20; ++round) {
    const auto reader = OpenReader(folder_ / "a.tif");  // with nothing decoded yet
    std::vector<std::jthread> threads;
    for (int64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const Box box{{0, 3 * t, 5 * t}, {1, 3 * t + 35, 5 * t + 40}};
        std::vector<std::byte> part(static_cast<size_t>(box.voxels() * 3)), wanted(part.size());
        reader->Read(box, DenseView(part.data(), DType::kU8, 3, box.shape(), Layout::kInterleaved));
        CopyView(whole.view().Crop(box),
                 DenseView(wanted.data(), DType::kU8, 3, box.shape(), Layout::kInterleaved));
        equal[static_cast<size_t>(t)] += part == wanted;
      });
    }
  }
  EXPECT_EQ(equal, (std::array<int, 4>{20, 20, 20, 20}));
}

TEST_F(TiffTest, FaxDataThatEndEarlyAreAnErrorAndNotBlankRows) {
  // In T.6 a row like the one above is a single 1, and the first one lies below a white row.
  const auto page = [](const std::string& rows) {
    TiffBuilder tiff = GrayPage(rows + std::string("\x00\x10\x01", 3), 16, 16, 1, 0);
    tiff.Short(259, {4});
    tiff.EndPage();
    return tiff;
  };
  Picture got = Read(page("\xFF\xFF"));
  for (const std::byte sample : got.samples) EXPECT_EQ(sample, std::byte{255});
  EXPECT_NE(Refusal(page("\xFF")).find("a.tif: damaged TIFF, strip 0"), std::string::npos);
  EXPECT_NE(Refusal(page(std::string("\xFF\0\0\0\xFF", 5))).find("strip 0"), std::string::npos);
}

TEST_F(TiffTest, MinIsWhiteIsInverted) {
  TiffBuilder bytes = GrayPage(std::string("\0\1\xFF", 3), 3, 1, 8, 0);
  bytes.EndPage();
  Picture got = Read(bytes);
  EXPECT_EQ(got.at<uint8_t>(0, 0, 0, 0), 255);
  EXPECT_EQ(got.at<uint8_t>(0, 0, 0, 1), 254);
  TiffBuilder bits = GrayPage("\x90", 4, 1, 1, 0);  // 1001
  bits.EndPage();
  got = Read(bits);
  EXPECT_EQ(got.at<uint8_t>(0, 0, 0, 0), 0);
  EXPECT_EQ(got.at<uint8_t>(0, 0, 0, 1), 255);
}

TEST_F(TiffTest, FewBitsFillTheWholeRangeOfEight) {
  TiffBuilder tiff = GrayPage("\x1B\x10", 5, 1, 2);  // 0 1 2 3 0
  tiff.EndPage();
  Picture got = Read(tiff);
  const std::vector<int> wanted = {0, 85, 170, 255, 0};
  for (int64_t x = 0; x < 5; ++x)
    EXPECT_EQ(got.at<uint8_t>(0, 0, 0, x), wanted[static_cast<size_t>(x)]);
}

TEST_F(TiffTest, PalettesBecomeRgb) {
  for (const uint32_t factor : {257u, 1u}) {  // 16-bit entries, and the 8-bit ones of old writers
    TiffBuilder tiff = GrayPage("\x10\x20", 4, 1, 4, kPalette);  // 1 0 2 0
    std::vector<uint32_t> map(48, 0);
    map[1] = 10 * factor, map[17] = 20 * factor, map[33] = 30 * factor;
    map[2] = 255 * factor;
    tiff.Short(320, map);
    tiff.EndPage();
    Picture got = Read(tiff);
    EXPECT_EQ(got.header.channels, 3);
    EXPECT_EQ(got.at<uint8_t>(0, 0, 0, 0), 10);
    EXPECT_EQ(got.at<uint8_t>(1, 0, 0, 0), 20);
    EXPECT_EQ(got.at<uint8_t>(2, 0, 0, 0), 30);
    EXPECT_EQ(got.at<uint8_t>(0, 0, 0, 2), 255);
    EXPECT_EQ(got.at<uint8_t>(1, 0, 0, 2), 0);
  }
}

TEST_F(TiffTest, AlphaIsStraightOrAssociatedAsTheFileSays) {
  for (const auto& [code, kind] : {std::pair{1u, AlphaKind::kAssociated},
                                   {2u, AlphaKind::kStraight},
                                   {0u, AlphaKind::kNone}}) {
    TiffBuilder tiff;
    tiff.Size(2, 1, 8, 4, kRgb);
    tiff.Short(338, {code});
    tiff.Strips({"abcdefgh"}, 1);
    tiff.EndPage();
    Picture got = Read(tiff);
    EXPECT_EQ(got.header.channels, 4);
    EXPECT_EQ(got.header.alpha, kind);
    EXPECT_EQ(got.at<uint8_t>(3, 0, 0, 1), 'h');
  }
}

TEST_F(TiffTest, SeveralPagesAreRefusedWithTheirNumber) {
  TiffBuilder tiff;
  for (int page = 0; page < 3; ++page) {
    tiff.Size(2, 2, 8, 1, kGray);
    tiff.Strips({"abcd"}, 2);
    tiff.EndPage();
  }
  EXPECT_NE(Refusal(tiff).find("3 pages is not supported yet"), std::string::npos) << Refusal(tiff);
}

TEST_F(TiffTest, AStackOfImageJInOnePageIsRefusedWithItsNumber) {
  TiffBuilder tiff = GrayPage("abcd", 2, 2, 8);
  tiff.Text(270, "ImageJ=1.53t\nimages=12\nslices=12\n");
  tiff.EndPage();
  EXPECT_NE(Refusal(tiff).find("12 pages"), std::string::npos);
}

TEST_F(TiffTest, SmallerCopiesDoNotCountAsPages) {
  for (const bool copy_first : {false, true}) {
    TiffBuilder tiff;
    for (const bool copy : {copy_first, !copy_first}) {
      tiff.Size(copy ? 1 : 2, 1, 8, 1, kGray);
      if (copy) tiff.Long(254, {1});
      tiff.Strips({copy ? "x" : "ab"}, 1);
      tiff.EndPage();
    }
    Picture got = Read(tiff);
    EXPECT_EQ(got.header.shape, (Index{1, 1, 2}));
    EXPECT_EQ(got.at<uint8_t>(0, 0, 0, 1), 'b');
  }
}

TEST_F(TiffTest, ThePreviewOfARawFileIsNotTakenForThePicture) {
  for (const bool raw : {false, true}) {
    TiffBuilder tiff = GrayPage("abcd", 2, 2, 8);
    tiff.Long(254, {1});
    if (raw) tiff.Long(330, {8});
    tiff.EndPage();
    if (raw) {
      EXPECT_NE(Refusal(tiff).find("raw files of cameras"), std::string::npos) << Refusal(tiff);
    } else {
      EXPECT_EQ(Read(tiff).samples.size(), 4u);  // marked as a copy, yet all that there is
    }
  }
}

TEST_F(TiffTest, WhatIsNotSupportedIsRefusedByName) {
  const auto refusal = [&](uint32_t bits, uint32_t samples, uint32_t photometric, int tag,
                           uint32_t value) {
    TiffBuilder tiff;
    tiff.Size(2, 1, bits, samples, photometric);
    if (tag != 0) tiff.Short(tag, std::vector<uint32_t>(tag == 339 ? samples : 1, value));
    tiff.Strips({std::string(64, 'x')}, 1);
    tiff.EndPage();
    return Refusal(tiff);
  };
  EXPECT_NE(refusal(12, 1, kGray, 0, 0).find("12-bit unsigned"), std::string::npos);
  EXPECT_NE(refusal(64, 1, kGray, 339, 2).find("64-bit signed"), std::string::npos);
  EXPECT_NE(refusal(24, 1, kGray, 339, 3).find("24-bit float"), std::string::npos);
  EXPECT_NE(refusal(8, 4, 5, 0, 0).find("CMYK"), std::string::npos);
  EXPECT_NE(refusal(8, 3, 8, 0, 0).find("L*a*b*"), std::string::npos);
  EXPECT_NE(refusal(8, 3, 6, 0, 0).find("YCbCr"), std::string::npos);
  EXPECT_NE(refusal(8, 1, kGray, 259, 34712).find("compression 34712"), std::string::npos);
}

TEST_F(TiffTest, MetadataSurvives) {
  TiffBuilder tiff = GrayPage("abcd", 2, 2, 8);
  tiff.Text(270, "a field of barley");
  tiff.Short(274, {7});
  tiff.EndPage();
  Picture got = Read(tiff);
  EXPECT_EQ(got.metadata.description, "a field of barley");
  EXPECT_EQ(got.metadata.orientation, 7);
  WritePicture(folder_ / "b.tif", got);
  EXPECT_EQ(ReadPicture(folder_ / "b.tif").metadata.orientation, 7);
}

TEST_F(TiffTest, ADescriptionOfNothingButTheShapeIsLeftOut) {
  TiffBuilder tiff = GrayPage("abcd", 2, 2, 8);
  tiff.Text(270, "{\"shape\": [2, 2]}");
  tiff.EndPage();
  EXPECT_EQ(Read(tiff).metadata.description, "");
}

TEST_F(TiffTest, UnknownTagsPrintNothing) {
  TiffBuilder tiff = GrayPage("abcd", 2, 2, 8);
  for (int tag = 65000; tag < 65020; ++tag) tiff.Short(tag, {1});
  tiff.EndPage();
  testing::internal::CaptureStderr();
  Picture got = Read(tiff);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(got.at<uint8_t>(0, 0, 1, 1), 'd');
}

TEST_F(TiffTest, LargeCompressedStripsAreReadByRows) {
  constexpr uint32_t kSide = 8300;  // 66 MiB in one strip
  std::string rows(size_t{kSide} * kSide, '\0');
  for (uint32_t y = 0; y < kSide; ++y) rows[size_t{y} * kSide + y] = static_cast<char>(1 + y % 200);
  TiffBuilder tiff;
  tiff.Size(kSide, kSide, 8, 2, kGray);
  tiff.Strips({Zlib(rows), Zlib(std::string(rows.size(), '\7'))}, kSide);
  tiff.Short(259, {8});
  tiff.Short(284, {2});  // a plane for each channel
  tiff.Short(338, {0});
  tiff.EndPage();
  PutFile(folder_ / "a.tif", tiff.file());
  const auto reader = OpenReader(folder_ / "a.tif");
  EXPECT_EQ(reader->header().access, Access::kRows);
  std::vector<std::byte> row(kSide * 2);
  const View view = DenseView(row.data(), DType::kU8, 2, {1, 1, kSide}, Layout::kInterleaved);
  for (const int64_t y : {0, 1, 4000, 8299}) {
    reader->Read({{0, y, 0}, {1, y + 1, kSide}}, view);
    EXPECT_EQ(static_cast<int>(*view.at(0, 0, 0, y)), 1 + y % 200);
    EXPECT_EQ(static_cast<int>(*view.at(1, 0, 0, y)), 7);
  }
  ErrorOf(Fault::kInternal, [&] { reader->Read({{0, 0, 0}, {1, 1, kSide}}, view); });
}

TEST_F(TiffTest, AHeaderThatPromisesMoreThanTheFileCanHoldIsRefusedAtOnce) {
  for (const uint32_t compression : {5u, 8u, 32773u}) {
    TiffBuilder tiff = GrayPage(std::string(64, 'x'), 1 << 28, 1 << 20, 8);
    tiff.Short(259, {compression});
    tiff.EndPage();
    PutFile(folder_ / "a.tif", tiff.file());
    const std::string message = ErrorOf(Fault::kInput, [&] { OpenReader(folder_ / "a.tif"); });
    EXPECT_NE(message.find("281474976710656 bytes"), std::string::npos) << message;
  }
  // One bit in the file, three bytes once the palette is applied: more than 2^63 of them.
  TiffBuilder tiff = GrayPage(std::string(64, 'x'), 0xFFFFFFFF, 0xFFFFFFFF, 1, kPalette);
  tiff.Short(320, {0, 1, 0, 1, 0, 1});
  tiff.Short(259, {4});  // which no ratio bounds
  tiff.EndPage();
  PutFile(folder_ / "a.tif", tiff.file());
  const std::string message = ErrorOf(Fault::kInput, [&] { OpenReader(folder_ / "a.tif"); });
  EXPECT_NE(message.find("strips or tiles of"), std::string::npos) << message;
}

TEST_F(TiffTest, PicturesThatMayOutgrowTheClassicFormatBecomeBig) {
  const auto version = [&](int64_t rows) {
    Picture picture =
        MakePicture({"tiff", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 3, {1, rows, 800}});
    std::filesystem::remove(folder_ / "b.tif");
    OutputFile file(folder_ / "b.tif", "test");
    const auto writer = CreateTiff(file, {picture.header, {}, 1}, {.classic_limit = 1 << 20});
    WriteBands(*writer, picture, 100);
    file.Publish(Durability::kRename);
    EXPECT_EQ(ReadPicture(folder_ / "b.tif").samples, picture.samples);
    return ContentOf(folder_ / "b.tif")[2];
  };
  EXPECT_EQ(version(300), 0x2A);  // 720,000 bytes
  EXPECT_EQ(version(430), 0x2B);  // 1,032,000 bytes and the margin
  EXPECT_EQ(version(800), 0x2B);
}

TEST_F(TiffTest, AStripOutsideTheFileIsAnErrorThatNamesIt) {
  TiffBuilder tiff = GrayPage("abcd", 2, 2, 8);
  tiff.Long(273, {100000});
  tiff.EndPage();
  const std::string message = Refusal(tiff);
  EXPECT_NE(message.find("100004"), std::string::npos) << message;
  EXPECT_NE(message.find("a.tif"), std::string::npos) << message;
}

}  // namespace
}  // namespace tilery
