// TIFF files that are damaged or not supported, and what only looks so.
#include "tests/io/tiff_fixture.h"

namespace tilery {
namespace {

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

TEST_F(TiffTest, UnknownTagsPrintNothing) {
  TiffBuilder tiff = GrayPage("abcd", 2, 2, 8);
  for (int tag = 65000; tag < 65020; ++tag) tiff.Short(tag, {1});
  tiff.EndPage();
  testing::internal::CaptureStderr();
  Picture got = Read(tiff);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(got.at<uint8_t>(0, 0, 1, 1), 'd');
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
