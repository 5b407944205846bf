#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"

namespace tilery {
namespace {

// 8x8 pixels of pure cyan, CMYK with an Adobe marker, inks inverted.
constexpr char kCyanInks[] =
    "/9j/7gAOQWRvYmUAZAAAAAAA/"
    "9sAQwACAQEBAQECAQEBAgICAgIEAwICAgIFBAQDBAYFBgYGBQYGBgcJCAYHCQcGBggLCAkKCg"
    "oKCgYICwwLCgwJCgoK/8AAFAgACAAIBEMRAE0RAFkRAEsRAP/EABUAAQEAAAAAAAAAAAAAAAAAAAkK/"
    "8QAFBABAAAAAAAAAAAA"
    "AAAAAAAAAP/aAA4EQwBNAFkASwAAPwCf8/h/D+P/2Q==";
// 16x8 pixels, left half red, right half blue, JFIF.
constexpr char kRedBlue[] =
    "/9j/4AAQSkZJRgABAQAAAQABAAD/"
    "2wBDAAIBAQEBAQIBAQECAgICAgQDAgICAgUEBAMEBgUGBgYFBgYGBwkIBgcJBwYGCAsICQ"
    "oKCgoKBggLDAsKDAkKCgr/"
    "2wBDAQICAgICAgUDAwUKBwYHCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoKCgoK"
    "CgoKCgoKCgoKCgr/wAARCAAIABADAREAAhEBAxEB/8QAFAABAAAAAAAAAAAAAAAAAAAACP/"
    "EABQQAQAAAAAAAAAAAAAAAAAAAAD/"
    "xAAWAQEBAQAAAAAAAAAAAAAAAAAKCAn/xAAUEQEAAAAAAAAAAAAAAAAAAAAA/9oADAMBAAIRAxEAPwAXpTb+CGVQNe//"
    "2Q==";

std::string Segment(int marker, const std::string& content) {
  std::string out{'\xFF', static_cast<char>(marker)};
  const size_t size = content.size() + 2;
  return out + static_cast<char>(size >> 8) + static_cast<char>(size) + content;
}

std::string WithSegment(const std::string& jpeg, int marker, const std::string& content) {
  return jpeg.substr(0, 2) + Segment(marker, content) + jpeg.substr(2);
}

class JpegTest : public testing::Test {
 protected:
  Picture Read(const std::string& content) {
    PutFile(folder_ / "a.jpg", content);
    return ReadPicture(folder_ / "a.jpg");
  }
  std::string Noise(const Index& shape) {
    WritePicture(folder_ / "n.jpg",
                 MakePicture({"jpeg", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 3, shape}));
    return ContentOf(folder_ / "n.jpg");
  }
  TempFolder folder_;
};

TEST_F(JpegTest, InvertedInksBecomeCyanAndNotRedOrBlack) {
  Picture got = Read(FromBase64(kCyanInks));
  EXPECT_EQ(got.header.channels, 3);
  EXPECT_EQ(got.header.shape, (Index{1, 8, 8}));
  double mean[3] = {0, 0, 0};
  for (size_t i = 0; i < got.samples.size(); ++i)
    mean[i % 3] += static_cast<double>(got.samples[i]) / 64;
  EXPECT_NEAR(mean[0], 0, 3);
  EXPECT_NEAR(mean[1], 255, 3);
  EXPECT_NEAR(mean[2], 255, 3);
}

TEST_F(JpegTest, OrientationIsReportedAndKeptButNeverApplied) {
  const std::string plain = FromBase64(kRedBlue);
  const Picture upright = Read(plain);
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool big : {false, true}) {
      const std::string exif = ExifOfOrientation(orientation, big);
      Picture got = Read(WithSegment(plain, 0xE1, std::string("Exif\0\0", 6) + exif));
      EXPECT_EQ(got.metadata.orientation, orientation);
      EXPECT_EQ(got.samples, upright.samples);
      EXPECT_GT(got.at<uint8_t>(0, 0, 4, 2), 200);   // red stays on the left
      EXPECT_GT(got.at<uint8_t>(2, 0, 4, 13), 200);  // blue on the right
      for (const char* name : {"b.jpg", "b.png"}) {
        WritePicture(folder_ / name, got);
        const Metadata again = ReadPicture(folder_ / name).metadata;
        EXPECT_EQ(again.exif, exif);
        EXPECT_EQ(again.orientation, orientation);
      }
    }
  }
}

TEST_F(JpegTest, AColourProfileSurvivesByteByByte) {
  const std::string icc = ProfileOf("RGB ", 132);
  Picture got =
      Read(WithSegment(FromBase64(kRedBlue), 0xE2, std::string("ICC_PROFILE\0\1\1", 14) + icc));
  EXPECT_EQ(got.metadata.icc, icc);
  for (const char* name : {"b.jpg", "b.png", "b.tif"}) {
    WritePicture(folder_ / name, got);
    EXPECT_EQ(ReadPicture(folder_ / name).metadata.icc, icc) << name;
  }
}

TEST_F(JpegTest, AProfileOfInksIsNotPutOnRgb) {
  const std::string icc = ProfileOf("CMYK", 132);
  const Picture got =
      Read(WithSegment(FromBase64(kCyanInks), 0xE2, std::string("ICC_PROFILE\0\1\1", 14) + icc));
  EXPECT_EQ(got.metadata.icc, "");
}

TEST_F(JpegTest, ACutScanIsAnErrorAndNotGrayRows) {
  const std::string noise = Noise({1, 256, 256});
  const std::string message =
      ErrorOf(Fault::kInput, [&] { Read(noise.substr(0, noise.size() / 2)); });
  EXPECT_NE(message.find("a.jpg"), std::string::npos) << message;
  EXPECT_NE(message.find("ends too early"), std::string::npos) << message;
}

TEST_F(JpegTest, AMissingEndMarkerIsAnError) {
  const std::string noise = Noise({1, 64, 64});
  ErrorOf(Fault::kInput, [&] { Read(noise.substr(0, noise.size() - 2)); });
}

TEST_F(JpegTest, AHoleInTheScanIsAnError) {
  const std::string noise = Noise({1, 256, 256});
  const size_t half = noise.size() / 2;
  const std::string hole = noise.substr(0, half) + noise.substr(noise.size() - 2);  // ends in EOI
  ErrorOf(Fault::kInput, [&] { Read(hole); });
}

TEST_F(JpegTest, PaddingBeforeTheEndIsNoDamage) {
  std::string noise = Noise({1, 64, 64});
  const Picture whole = Read(noise);
  noise.insert(noise.size() - 2, 3, '\0');
  EXPECT_EQ(Read(noise).samples, whole.samples);
}

TEST_F(JpegTest, SaysWhyItCantHoldAlphaSixteenBitsOrHugeSides) {
  const Header good{"jpeg", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 3, {1, 10, 10}};
  EXPECT_EQ(WhyNot("jpeg", good), "");
  Header bad = good;
  bad.channels = 4;
  bad.alpha = AlphaKind::kStraight;
  EXPECT_NE(WhyNot("jpeg", bad).find("alpha"), std::string::npos);
  bad = good;
  bad.dtype = DType::kU16;
  EXPECT_NE(WhyNot("jpeg", bad).find("u16"), std::string::npos);
  bad = good;
  bad.shape[2] = 70000;
  EXPECT_NE(WhyNot("jpeg", bad).find("65500"), std::string::npos) << WhyNot("jpeg", bad);
}

TEST_F(JpegTest, ExifThatIsTooLongIsALoss) {
  Metadata metadata;
  metadata.exif = std::string(70000, 'x');
  const auto losses = Losses("jpeg", {}, metadata);
  ASSERT_EQ(losses.size(), 1u);
  EXPECT_NE(losses[0].find("70000"), std::string::npos);
}

}  // namespace
}  // namespace tilery
