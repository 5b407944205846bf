#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"
#include "tests/io/png_builder.h"

namespace tilery {
namespace {

class PngTest : public testing::Test {
 protected:
  Picture Read(const PngSpec& spec, const std::string& rows) {
    PutFile(folder_ / "a.png", PngFile(spec, rows));
    return ReadPicture(folder_ / "a.png");
  }
  TempFolder folder_;
};

std::vector<uint32_t> Ramp(size_t count, uint32_t step, uint32_t modulo) {
  std::vector<uint32_t> samples(count);
  for (size_t i = 0; i < count; ++i) samples[i] = static_cast<uint32_t>(i) * step % modulo;
  return samples;
}

TEST_F(PngTest, SixteenBitGrayComesBackInHostOrder) {
  Picture got = Read({64, 48, 16, 0}, PngRows(Ramp(64 * 48, 21, 65536), 64, 16));
  EXPECT_EQ(got.header.dtype, DType::kU16);
  EXPECT_EQ(got.header.channels, 1);
  EXPECT_EQ(got.at<uint16_t>(0, 0, 47, 63), 3071 * 21);
}

TEST_F(PngTest, SixteenBitGrayUnderHalfAlphaIsNotMultiplied) {
  std::vector<uint32_t> samples;
  for (uint32_t i = 0; i < 64 * 48; ++i) samples.insert(samples.end(), {i * 21, 32768});
  Picture got = Read({64, 48, 16, 4}, PngRows(samples, 128, 16));
  EXPECT_EQ(got.header.channels, 2);
  EXPECT_EQ(got.header.alpha, AlphaKind::kStraight);
  EXPECT_EQ(got.at<uint16_t>(0, 0, 0, 1), 21);
  EXPECT_EQ(got.at<uint16_t>(1, 0, 0, 1), 32768);
}

TEST_F(PngTest, FewBitsFillTheWholeRangeOfEight) {
  for (const auto& [bits, factor] : {std::pair{1, 255}, {2, 85}, {4, 17}}) {
    const uint32_t values = 1u << bits;
    Picture got =
        Read({63, 5, static_cast<uint8_t>(bits), 0}, PngRows(Ramp(63 * 5, 1, values), 63, bits));
    EXPECT_EQ(got.header.dtype, DType::kU8);
    for (int64_t x = 0; x < 63; ++x) {
      ASSERT_EQ(got.at<uint8_t>(0, 0, 0, x), x % values * factor) << bits << " bits";
    }
  }
}

TEST_F(PngTest, APaletteBecomesRgbAndItsTransparencyAlpha) {
  PngSpec spec{4, 1, 2, 3};
  spec.chunks = {{"PLTE", "\1\2\3\x10\x20\x30\xFF\xFE\xFD"}, {"tRNS", std::string("\0\x80", 2)}};
  Picture got = Read(spec, PngRows({2, 1, 0, 1}, 4, 2));
  EXPECT_EQ(got.header.channels, 4);
  const auto pixel = [&](int64_t x) {
    return std::vector<int>{got.at<uint8_t>(0, 0, 0, x), got.at<uint8_t>(1, 0, 0, x),
                            got.at<uint8_t>(2, 0, 0, x), got.at<uint8_t>(3, 0, 0, x)};
  };
  EXPECT_EQ(pixel(0), (std::vector<int>{255, 254, 253, 255}));
  EXPECT_EQ(pixel(1), (std::vector<int>{16, 32, 48, 128}));
  EXPECT_EQ(pixel(2), (std::vector<int>{1, 2, 3, 0}));
}

TEST_F(PngTest, ATransparentGrayValueBecomesAlpha) {
  PngSpec spec{3, 1, 16, 0};
  spec.chunks = {{"tRNS", "\x12\x34"}};
  Picture got = Read(spec, PngRows({0x1234, 0x1235, 7}, 3, 16));
  EXPECT_EQ(got.header.channels, 2);
  EXPECT_EQ(got.at<uint16_t>(1, 0, 0, 0), 0);
  EXPECT_EQ(got.at<uint16_t>(1, 0, 0, 1), 65535);
  EXPECT_EQ(got.at<uint16_t>(0, 0, 0, 0), 0x1234);
}

TEST_F(PngTest, AnInterlacedPictureEqualsAPlainOne) {
  constexpr int64_t kWidth = 13, kHeight = 11;
  constexpr int64_t kPasses[7][4] = {{0, 8, 0, 8}, {4, 8, 0, 8}, {0, 4, 4, 8}, {2, 4, 0, 4},
                                     {0, 2, 2, 4}, {1, 2, 0, 2}, {0, 1, 1, 2}};  // x, dx, y, dy
  std::string passes;
  for (const auto& pass : kPasses) {
    for (int64_t y = pass[2]; y < kHeight; y += pass[3]) {
      passes += '\0';
      for (int64_t x = pass[0]; x < kWidth; x += pass[1]) {
        passes += static_cast<char>(y * kWidth + x);
      }
    }
  }
  PutFile(folder_ / "a.png", PngFile({kWidth, kHeight, 8, 0, true}, passes));
  for (const int64_t rows : {0, 3}) {
    Picture got = ReadPicture(*OpenReader(folder_ / "a.png"), rows);
    for (size_t i = 0; i < got.samples.size(); ++i) {
      ASSERT_EQ(static_cast<size_t>(got.samples[i]), i) << rows;
    }
  }
}

TEST_F(PngTest, AnInterlacedPictureBeyondTheLimitIsRefusedWithBothNumbers) {
  PutFile(folder_ / "a.png", PngFile({20000, 20000, 8, 2, true}, "x"));
  const std::string message = ErrorOf(Fault::kInput, [&] { OpenReader(folder_ / "a.png"); });
  EXPECT_NE(message.find("1200000000"), std::string::npos) << message;
  EXPECT_NE(message.find("1073741824"), std::string::npos) << message;
}

TEST_F(PngTest, AHeaderThatPromisesMoreThanTheFileCanHoldIsRefusedAtOnce) {
  for (const auto& [width, height] :
       {std::pair{30000u, 30000u}, {0x7FFFFFFFu, 1u}, {1u, 0x7FFFFFFFu}}) {
    PutFile(folder_ / "a.png", PngFile({width, height, 8, 6}, "x"));
    const std::string message = ErrorOf(Fault::kInput, [&] { OpenReader(folder_ / "a.png"); });
    EXPECT_NE(message.find("a.png"), std::string::npos) << message;
  }
}

TEST_F(PngTest, ColoursUnderNoAlphaSurvive) {
  Picture picture =
      MakePicture({"png", DType::kU8, 2, AlphaKind::kStraight, Access::kRandom, 4, {1, 8, 8}});
  for (int64_t y = 0; y < 8; ++y) {
    for (int64_t x = 0; x < 8; ++x) {
      const int pixel[4] = {200, 100, 50, x < 4 ? 0 : 255};
      for (int64_t c = 0; c < 4; ++c)
        *picture.view().at(c, 0, y, x) = static_cast<std::byte>(pixel[c]);
    }
  }
  const int low[4] = {240, 108, 119, 1};
  for (int64_t c = 0; c < 4; ++c) *picture.view().at(c, 0, 0, 0) = static_cast<std::byte>(low[c]);
  WritePicture(folder_ / "b.png", picture);
  EXPECT_EQ(ReadPicture(folder_ / "b.png").samples, picture.samples);
}

TEST_F(PngTest, ColourChunksSurviveByteByByte) {
  const std::string icc = ProfileOf("RGB ", 132);  // a bare header, which libpng would drop
  const std::string chromaticities = BigEndian32(31270) + BigEndian32(32900) + BigEndian32(64000) +
                                     BigEndian32(33000) + BigEndian32(30000) + BigEndian32(60000) +
                                     BigEndian32(15000) + BigEndian32(6000);
  PngSpec spec{2, 1, 8, 2};
  spec.chunks = {{"cHRM", chromaticities},
                 {"gAMA", BigEndian32(50000)},
                 {"iCCP", std::string("any\0\0", 5) + Zlib(icc)},
                 {"pHYs", BigEndian32(3779) + BigEndian32(3780) + "\1"},
                 {"eXIf", ExifOfOrientation(6, true)},
                 {"tEXt", std::string("Description\0M\xFCnster", 19)}};
  const Picture first = Read(spec, PngRows({1, 2, 3, 4, 5, 6}, 6, 8));
  WritePicture(folder_ / "b.png", first);
  const Metadata again = ReadPicture(folder_ / "b.png").metadata;
  for (const Metadata& got : {first.metadata, again}) {
    EXPECT_EQ(got.icc, icc);
    EXPECT_DOUBLE_EQ(got.gamma.value(), 0.5);
    EXPECT_DOUBLE_EQ(got.chromaticities.value()[0], 0.3127);
    EXPECT_DOUBLE_EQ(got.chromaticities.value()[7], 0.06);
    EXPECT_EQ(got.resolution.value(), (std::array<double, 2>{3779, 3780}));
    EXPECT_EQ(got.resolution_unit, 1);
    EXPECT_EQ(got.exif, ExifOfOrientation(6, true));
    EXPECT_EQ(got.orientation, 6);
    EXPECT_EQ(got.description, "M\xC3\xBCnster");
  }
  EXPECT_NE(ContentOf(folder_ / "b.png").find(chromaticities), std::string::npos);
}

TEST_F(PngTest, TheSrgbIntentSurvives) {
  PngSpec spec{1, 1, 8, 0};
  spec.chunks = {{"sRGB", "\1"}};
  const Picture first = Read(spec, PngRows({9}, 1, 8));
  WritePicture(folder_ / "b.png", first);
  EXPECT_EQ(ReadPicture(folder_ / "b.png").metadata.srgb_intent, 1);
}

TEST_F(PngTest, AnOrientationWithoutExifBecomesOne) {
  Picture picture =
      MakePicture({"png", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 1, {1, 2, 2}});
  picture.metadata.orientation = 8;
  WritePicture(folder_ / "b.png", picture);
  EXPECT_EQ(ReadPicture(folder_ / "b.png").metadata.orientation, 8);
}

TEST_F(PngTest, AWrongChecksumIsAnError) {
  PngSpec spec{64, 48, 8, 0};
  spec.chunks = {{"gAMA", BigEndian32(45455)}};
  const std::string good = PngFile(spec, PngRows(Ramp(64 * 48, 7, 251), 64, 8));
  for (const char* chunk : {"IHDR", "gAMA", "IDAT", "IEND"}) {
    std::string bad = good;
    const size_t at = bad.find(chunk);
    const size_t length = LoadBig<uint32_t>(bad.data() + at - 4);
    bad[at + 4 + length] ^= 1;
    PutFile(folder_ / "a.png", bad);
    const std::string message = ErrorOf(Fault::kInput, [&] { ReadPicture(folder_ / "a.png"); });
    EXPECT_NE(message.find("a.png"), std::string::npos) << message;
  }
}

TEST_F(PngTest, TooFewRowsAreAnErrorThatNamesTheRow) {
  const std::string message = ErrorOf(Fault::kInput, [&] {
    Read({64, 48, 8, 0}, PngRows(Ramp(64 * 20, 7, 251), 64, 8));
  });
  EXPECT_NE(message.find("row 20 of 48"), std::string::npos) << message;
}

}  // namespace
}  // namespace tilery
