// What the tests of TIFF share: a picture whose samples are known, and one-page files of few bytes.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "io/tiff.h"
#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"
#include "tests/io/png_builder.h"
#include "tests/io/tiff_builder.h"

namespace tilery {

inline constexpr uint32_t kWidth = 64, kHeight = 48;
inline constexpr uint32_t kGray = 1, kRgb = 2, kPalette = 3;

// Three channels that no mix-up of rows, columns or channels leaves the same.
inline uint32_t Value(uint32_t c, uint32_t y, uint32_t x) {
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

}  // namespace tilery
