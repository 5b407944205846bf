#include <array>
#include <thread>

#include "tests/io/tiff_fixture.h"

namespace tilery {
namespace {

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

TEST_F(TiffTest, PicturesThatMayOutgrowTheClassicFormatBecomeBig) {
  const auto version = [&](int64_t rows) {
    Picture picture =
        MakePicture({"tiff", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 3, {1, rows, 800}});
    std::filesystem::remove(folder_ / "b.tif");
    OutputFile file(folder_ / "b.tif", "test");
    const auto writer = CreateTiff(file, {picture.header, {}}, {.classic_limit = 1 << 20});
    WriteBands(*writer, picture, 100);
    file.Publish(Durability::kRename);
    EXPECT_EQ(ReadPicture(folder_ / "b.tif").samples, picture.samples);
    return ContentOf(folder_ / "b.tif")[2];
  };
  EXPECT_EQ(version(300), 0x2A);  // 720,000 bytes
  EXPECT_EQ(version(430), 0x2B);  // 1,032,000 bytes and the margin
  EXPECT_EQ(version(800), 0x2B);
}

}  // namespace
}  // namespace tilery
