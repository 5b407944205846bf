#include "io/format.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"

namespace tilery {
namespace {

class FormatTest : public testing::Test {
 protected:
  std::string Refusal(const std::string& name, const std::string& content) {
    PutFile(folder_ / name, content);
    return ErrorOf(Fault::kInput, [&] { OpenReader(folder_ / name); });
  }
  static Picture Small(const std::string& format = "png") {
    return MakePicture({format, DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 3, {1, 6, 5}});
  }
  TempFolder folder_;
};

TEST_F(FormatTest, ContentDecidesAndNotTheName) {
  const Picture picture = Small();
  WritePicture(folder_ / "a.png", picture);
  std::filesystem::rename(folder_ / "a.png", folder_ / "fake.jpg");
  const Picture got = ReadPicture(folder_ / "fake.jpg");
  EXPECT_EQ(got.header.format, "png");
  EXPECT_EQ(got.samples, picture.samples);
}

TEST_F(FormatTest, ForeignFilesAreErrorsThatSayWhatTheyLookLike) {
  EXPECT_NE(Refusal("empty.png", "").find("0 bytes"), std::string::npos);
  EXPECT_NE(Refusal("x.png", "not an image\n").find("text: \"not an image"), std::string::npos);
  EXPECT_NE(Refusal("._a.png", std::string("\0\5\x16\7\0\2\0\0", 8) + std::string(4088, '\0'))
                .find("AppleDouble"),
            std::string::npos);
  EXPECT_NE(Refusal("b.png", "GIF89a").find("GIF"), std::string::npos);
  EXPECT_NE(Refusal("c.nii.gz", "\x1F\x8B no gzip at all, really").find("gzip"), std::string::npos);
  const std::string bytes =
      Refusal("d.png", std::string("\xDE\xAD\xBE\xEF", 4) + std::string(20, '\x90'));
  EXPECT_NE(bytes.find("de ad be ef"), std::string::npos) << bytes;
  EXPECT_NE(bytes.find("d.png"), std::string::npos) << bytes;
}

TEST_F(FormatTest, WhatIsNoFileIsAnErrorWithoutWaiting) {
  std::filesystem::create_directory(folder_ / "d.png");
  ASSERT_EQ(mkfifo((folder_ / "p.png").c_str(), 0600), 0);
  std::filesystem::create_symlink("nowhere", folder_ / "l.png");
  for (const char* name : {"d.png", "p.png", "l.png", "absent.png"}) {
    const std::string message = ErrorOf(Fault::kInput, [&] { OpenReader(folder_ / name); });
    EXPECT_NE(message.find(name), std::string::npos) << message;
  }
}

TEST_F(FormatTest, NamesOfAnyBytesWork) {
  const std::vector<std::string> names = {"\u30C6\u30B9\u30C8.png", "\u00E4 \u00F6.png",
                                          "a b (1) [x].png",        "-o.png",
                                          "q'\"$HOME.png",          "new\nline.png",
                                          "\xFF\xFE.png",           std::string(251, 'n') + ".png"};
  for (const std::string& name : names) {
    const Picture picture = Small();
    WritePicture(folder_ / name, picture);
    EXPECT_EQ(ReadPicture(folder_ / name).samples, picture.samples);
  }
  const std::string message = Refusal("cut\n\xFF.png", "\x89PNG\r\n\x1A\n");
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_NE(message.find("cut\\x0a\\xff.png"), std::string::npos) << message;
}

TEST_F(FormatTest, TheReaderKnowsTheVeryFileThatIsOpen) {
  WritePicture(folder_ / "a.png", Small());
  const auto reader = OpenReader(folder_ / "a.png");
  EXPECT_EQ(reader->stamp(), StampOf(folder_ / "a.png"));
  WritePicture(
      folder_ / "a.png",
      MakePicture({"png", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 1, {1, 60, 5}}));
  EXPECT_NE(reader->stamp(), StampOf(folder_ / "a.png"));
}

TEST_F(FormatTest, ExtensionsNameTheirFormatInAnyCase) {
  EXPECT_EQ(FormatOfExtension("a/b.PNG"), "png");
  EXPECT_EQ(FormatOfExtension("b.JPeG"), "jpeg");
  EXPECT_EQ(FormatOfExtension("b.tif"), "tiff");
  EXPECT_EQ(FormatOfExtension("b.v1.nii.gz"), "nifti");
  EXPECT_EQ(FormatOfExtension("b.npy"), "npy");
  for (const char* none : {"b.gz", "b", ".png", "png", "b.png.bak", "b.", "x.nii.bz2"}) {
    EXPECT_EQ(FormatOfExtension(none), "") << none;
  }
  for (const std::string& extension : KnownExtensions()) {
    EXPECT_NE(FormatOfExtension("x" + extension), "") << extension;
  }
}

TEST_F(FormatTest, WhatAFormatCantHoldIsSaidWithWhatItCan) {
  Header header = Small().header;
  EXPECT_EQ(WhyNot("png", header), "");
  header.dtype = DType::kF32;
  EXPECT_EQ(WhyNot("png", header), "PNG holds u8 or u16, not f32");
  EXPECT_EQ(WhyNot("tiff", header), "");
  header = Small().header;
  header.shape[0] = 4;
  for (const char* format : {"png", "jpeg", "tiff"}) {
    EXPECT_NE(WhyNot(format, header).find("4"), std::string::npos) << WhyNot(format, header);
  }
  header = Small().header;
  header.shape[2] = 0x7FFFFFFF;
  EXPECT_NE(WhyNot("tiff", header).find("6442450941"), std::string::npos) << WhyNot("tiff", header);
  header = Small().header;
  header.channels = 4;
  header.alpha = AlphaKind::kAssociated;
  EXPECT_NE(WhyNot("png", header).find("straight"), std::string::npos);
  EXPECT_NE(WhyNot("nifti", header).find("4 channels"), std::string::npos);
  header.channels = 0;
  EXPECT_NE(WhyNot("npy", header), "");
  const std::string unknown = ErrorOf(Fault::kUsage, [&] { WhyNot("gif", header); });
  EXPECT_NE(unknown.find("png, jpeg, tiff, npy, nifti, vdb and raw"), std::string::npos) << unknown;
}

TEST_F(FormatTest, AWriterForWhatTheFormatCantHoldIsRefused) {
  OutputFile file(folder_ / "a.png", "test");
  Header header = Small().header;
  header.dtype = DType::kF32;
  const std::string message = ErrorOf(Fault::kUsage, [&] { CreateWriter(file, {header, {}}); });
  EXPECT_NE(message.find("a.png"), std::string::npos);
}

TEST_F(FormatTest, AProfileForOtherColoursIsALossAndIsNotWritten) {
  Picture gray =
      MakePicture({"png", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 1, {1, 6, 5}});
  gray.metadata.icc = ProfileOf("RGB ");
  for (const char* name : {"a.png", "a.jpg", "a.tif"}) {
    const auto losses = Losses(FormatOfExtension(name), gray.header, gray.metadata);
    ASSERT_EQ(losses.size(), 1u) << name;
    EXPECT_NE(losses[0].find("RGB"), std::string::npos);
    WritePicture(folder_ / name, gray);
    EXPECT_EQ(ReadPicture(folder_ / name).metadata.icc, "");
  }
}

TEST_F(FormatTest, ResolutionGrowsWithThePicture) {
  Metadata metadata;
  metadata.resolution = {300, 150};
  metadata.resolution_unit = 2;
  metadata.description = "OME";
  const Rational two{2, 1}, half{1, 2};
  const Metadata scaled = ScaleMetadata(metadata, {Rational{}, half, two}, {1, 10, 20});
  EXPECT_EQ(scaled.resolution.value(), (std::array<double, 2>{600, 75}));
  EXPECT_EQ(scaled.description, "OME");
  metadata.resolution_unit = 0;  // an aspect
  EXPECT_EQ(ScaleMetadata(metadata, {two, two, two}, {1, 10, 20}).resolution, metadata.resolution);
}

TEST_F(FormatTest, DescriptionsThatStateTheShapeEndWithIt) {
  Metadata metadata;
  metadata.description = "{\"shape\": [4, 4], \"lens\": 3}";
  EXPECT_EQ(ScaleMetadata(metadata, Scale{}, {1, 4, 4}).description, metadata.description);
  const Rational two{2, 1};
  EXPECT_EQ(ScaleMetadata(metadata, {Rational{}, two, two}, {1, 8, 8}).description, "");
}

TEST_F(FormatTest, ExifPixelSizesFollowThePicture) {
  // One entry, the pointer to a directory of PixelXDimension (short) and PixelYDimension (long).
  std::string exif("II*\0\x08\0\0\0", 8);
  exif += std::string("\1\0\x69\x87\4\0\1\0\0\0\x1A\0\0\0\0\0\0\0", 18);
  exif += std::string("\2\0\2\xA0\3\0\1\0\0\0\x20\0\0\0\3\xA0\4\0\1\0\0\0\x10\0\0\0\0\0\0\0", 30);
  Metadata metadata;
  metadata.exif = exif;
  const Rational big{3000, 1};
  const Metadata scaled = ScaleMetadata(metadata, {Rational{}, big, big}, {1, 48000, 96000});
  EXPECT_EQ(scaled.exif.size(), exif.size());
  EXPECT_EQ(scaled.exif.substr(28, 12), std::string("\2\xA0\4\0\1\0\0\0\0\x77\1\0", 12));  // 96000
  EXPECT_EQ(scaled.exif.substr(40, 12),
            std::string("\3\xA0\3\0\1\0\0\0\x80\xBB\0\0", 12));  // 48000
}

}  // namespace
}  // namespace tilery
