// XMP and IPTC on their way between the formats of pictures.
#include <gtest/gtest.h>

#include "io/jpeg.h"
#include "io/packets.h"
#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"
#include "tests/io/png_builder.h"
#include "tests/io/tiff_builder.h"

namespace tilery {
namespace {

constexpr const char* kNames[] = {"a.png", "a.jpg", "a.tif"};

class PictureMetadataTest : public testing::Test {
 protected:
  static Picture Small() {
    return MakePicture({"png", DType::kU8, 2, AlphaKind::kNone, Access::kRandom, 3, {1, 6, 5}});
  }
  Metadata Through(const std::string& name, const Metadata& metadata) {
    Picture picture = Small();
    picture.metadata = metadata;
    WritePicture(folder_ / name, picture);
    return ReadPicture(folder_ / name).metadata;
  }
  // A JPEG with such segments behind its first marker.
  Metadata ReadJpeg(const std::vector<std::pair<int, std::string>>& segments) {
    WritePicture(folder_ / "plain.jpg", Small());
    const std::string plain = ContentOf(folder_ / "plain.jpg");
    std::string file = plain.substr(0, 2);
    for (const auto& [marker, content] : segments) {
      file += {'\xFF', static_cast<char>(marker)};
      file += BigEndian32(static_cast<uint32_t>(content.size() + 2)).substr(2) + content;
    }
    PutFile(folder_ / "made.jpg", file + plain.substr(2));
    return ReadPicture(folder_ / "made.jpg").metadata;
  }
  TempFolder folder_;
};

std::string Tagged(const char* tag, size_t bytes, const std::string& content) {
  return std::string(tag, bytes) + content;
}

TEST_F(PictureMetadataTest, PacketsSurviveFromEachFormatToEach) {
  Metadata wanted;
  wanted.xmp = "<?xpacket begin='\xEF\xBB\xBF'?><x:xmpmeta/><?xpacket end='w'?>";
  wanted.iptc = IptcOf("barley");
  for (const char* from : kNames) {
    const Metadata first = Through(from, wanted);
    for (const char* to : kNames) {
      EXPECT_TRUE(Losses(FormatOfExtension(to), Small().header, first).empty());
      const Metadata got = Through(to, first);
      EXPECT_EQ(got.xmp, wanted.xmp) << from << " to " << to;
      EXPECT_EQ(got.iptc, wanted.iptc) << from << " to " << to;
    }
  }
}

TEST_F(PictureMetadataTest, DamagedPacketsSurviveAsTheyAre) {
  Metadata wanted;
  for (int i = 0; i < 999; ++i) wanted.xmp += static_cast<char>(i * 7);
  wanted.iptc = std::string("\x1C\2\5\x7F\xFFshort", 10) + wanted.xmp;
  wanted.iptc += '\1';
  for (const char* from : kNames) {
    const Metadata first = Through(from, wanted);
    for (const char* to : kNames) {
      const Metadata got = Through(to, first);
      EXPECT_EQ(got.xmp, wanted.xmp) << from << " to " << to;
      EXPECT_EQ(got.iptc, wanted.iptc) << from << " to " << to;
    }
  }
}

TEST_F(PictureMetadataTest, FormatsOfSamplesAloneLoseThem) {
  Metadata metadata;
  metadata.xmp = "x";
  metadata.iptc = "i";
  metadata.left_out = {"a frame"};
  for (const char* format : {"npy", "raw", "nifti"}) {
    EXPECT_EQ(Losses(format, Small().header, metadata),
              (std::vector<std::string>{"XMP", "IPTC", "a frame"}))
        << format;
  }
}

TEST_F(PictureMetadataTest, ASegmentOfAJpegLimitsXmpAndNotIptc) {
  constexpr size_t kMost = 65504;
  Metadata metadata;
  metadata.xmp.assign(kMost, 'x');
  metadata.iptc = IptcOf("k");
  while (metadata.iptc.size() < 200000) metadata.iptc += IptcOf(std::string(999, 'k'));
  EXPECT_TRUE(Losses("jpeg", Small().header, metadata).empty());
  Metadata got = Through("a.jpg", metadata);
  EXPECT_EQ(got.xmp, metadata.xmp);
  EXPECT_EQ(got.iptc, metadata.iptc);
  metadata.xmp += 'x';
  EXPECT_EQ(Losses("jpeg", Small().header, metadata),
            (std::vector<std::string>{"XMP (65505 bytes; a JPEG holds 65504)"}));
  EXPECT_EQ(Through("a.jpg", metadata).xmp, "");
  EXPECT_EQ(Through("a.png", metadata).xmp, metadata.xmp);
  EXPECT_EQ(Through("a.tif", metadata).xmp, metadata.xmp);
}

TEST_F(PictureMetadataTest, ExtendedXmpStaysInAJpegAndIsALossElsewhere) {
  const std::string part =
      Tagged(kExtendedXmpTag, kExtendedXmpTagBytes, std::string(32, 'G') + std::string(8, '\0'));
  const std::vector<std::string> parts = {part + std::string(60000, '1'), part + "2"};
  const Metadata first =
      ReadJpeg({{0xE1, Tagged(kXmpTag, kXmpTagBytes, "<x/>")}, {0xE1, parts[0]}, {0xE1, parts[1]}});
  EXPECT_EQ(first.xmp, "<x/>");
  EXPECT_EQ(first.extended_xmp, parts);
  EXPECT_TRUE(Losses("jpeg", Small().header, first).empty());
  EXPECT_EQ(Through("a.jpg", first).extended_xmp, parts);
  for (const char* format : {"png", "tiff", "npy"}) {
    const auto losses = Losses(format, Small().header, first);
    EXPECT_EQ(std::count_if(losses.begin(), losses.end(),
                            [](const auto& loss) { return loss.starts_with("extended XMP (60"); }),
              1)
        << format;
  }
}

TEST_F(PictureMetadataTest, ExtendedXmpBeyondTheLimitIsALossForAJpegToo) {
  const std::string part = Tagged(kExtendedXmpTag, kExtendedXmpTagBytes, std::string(65000, 'd'));
  const std::vector<std::pair<int, std::string>> segments(kMostPacket / part.size() + 1,
                                                          {0xE1, part});
  const Metadata got = ReadJpeg(segments);
  EXPECT_TRUE(got.extended_xmp.empty());
  EXPECT_EQ(Losses("jpeg", Small().header, got),
            (std::vector<std::string>{"extended XMP (larger than 16777216 bytes)"}));
}

TEST_F(PictureMetadataTest, ResourcesGoOnInTheNextSegmentOfAJpeg) {
  const std::string iptc = IptcOf("barley");
  const std::string all = ResourcesOfIptc(iptc);
  for (const size_t cut : {size_t{3}, size_t{12}, size_t{17}}) {
    const Metadata got =
        ReadJpeg({{0xED, Tagged(kResourcesTag, kResourcesTagBytes, all.substr(0, cut))},
                  {0xED, "Ducky or another program"},
                  {0xED, Tagged(kResourcesTag, kResourcesTagBytes, all.substr(cut))}});
    EXPECT_EQ(got.iptc, iptc) << cut;
  }
}

TEST_F(PictureMetadataTest, PacketsOfATiffCountWhateverTheirType) {
  const std::string xmp = "<x:xmpmeta/>";
  const std::string iptc = IptcOf("barley");
  for (const bool big_endian : {false, true}) {
    for (const uint32_t type : {1u, 2u, 4u, 7u}) {
      TiffBuilder tiff(big_endian);
      tiff.Size(2, 2, 8, 1, 1);
      tiff.Strips({"abcd"}, 2);
      // As words, the last one is filled up with zeros.
      const size_t unit = type == 4 ? 4 : 1;
      const std::string words = iptc + std::string((unit - iptc.size() % unit) % unit, '\0');
      tiff.Bytes(700, type == 2 ? 7 : type == 4 ? 1 : type, 1, xmp);
      tiff.Bytes(33723, type, unit, words);
      tiff.EndPage();
      PutFile(folder_ / "made.tif", tiff.file());
      const Metadata got = ReadPicture(folder_ / "made.tif").metadata;
      EXPECT_EQ(got.xmp, xmp) << type;
      EXPECT_EQ(got.iptc, iptc) << type;
    }
  }
}

TEST_F(PictureMetadataTest, PhotoshopsTagOfATiffHoldsDataSetsToo) {
  TiffBuilder tiff;
  tiff.Size(2, 2, 8, 1, 1);
  tiff.Strips({"abcd"}, 2);
  tiff.Bytes(34377, 1, 1, ResourcesOfIptc(IptcOf("barley")));
  tiff.EndPage();
  PutFile(folder_ / "made.tif", tiff.file());
  EXPECT_EQ(ReadPicture(folder_ / "made.tif").metadata.iptc, IptcOf("barley"));
}

TEST_F(PictureMetadataTest, PacketsOfATiffThatCantBeTakenAreNamed) {
  TiffBuilder tiff;
  tiff.Size(2, 2, 8, 1, 1);
  tiff.Strips({"abcd"}, 2);
  tiff.Field(700, 1, 1 << 20, tiff.Number(8, 4));
  tiff.Field(33723, 7, (16 << 20) + 1, tiff.Number(8, 4));
  tiff.EndPage();
  PutFile(folder_ / "made.tif", tiff.file());
  const Metadata got = ReadPicture(folder_ / "made.tif").metadata;
  EXPECT_EQ(got.left_out, (std::vector<std::string>{"XMP (it lies beyond the end of the file)",
                                                    "IPTC (larger than 16777216 bytes)"}));
}

TEST_F(PictureMetadataTest, PacketsAsLargeAsTheLimitSurvive) {
  Metadata metadata;
  metadata.xmp.assign(kMostPacket, 'x');
  EXPECT_EQ(Through("a.tif", metadata).xmp.size(), kMostPacket);
  EXPECT_EQ(Through("a.png", metadata).xmp.size(), kMostPacket);
}

}  // namespace
}  // namespace tilery
