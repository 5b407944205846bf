// Metadata of PNG files: what other programs write, in front of the image data and behind them.
#include <gtest/gtest.h>

#include "io/jpeg.h"
#include "io/packets.h"
#include "io/png.h"
#include "io/png_chunks.h"
#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"
#include "tests/io/png_builder.h"

namespace tilery {
namespace {

using Chunks = std::vector<std::pair<std::string, std::string>>;

class PngMetadataTest : public testing::Test {
 protected:
  // One gray pixel between these chunks.
  std::string File(const Chunks& before, const Chunks& behind = {}) {
    PngSpec spec{1, 1, 8, 0};
    spec.chunks = before;
    std::string file = PngFile(spec, std::string("\0\x07", 2));
    const std::string end = PngChunk("IEND", "");
    file.resize(file.size() - end.size());
    for (const auto& [name, content] : behind) file += PngChunk(name, content);
    return file + end;
  }
  Metadata Read(const Chunks& before, const Chunks& behind = {}) {
    PutFile(folder_ / "a.png", File(before, behind));
    return ReadPicture(folder_ / "a.png").metadata;
  }
  TempFolder folder_;
};

std::string Text(const std::string& key, const std::string& text) { return key + '\0' + text; }
std::string Packed(const std::string& key, const std::string& text) {
  return key + std::string(2, '\0') + Zlib(text);
}
std::string International(const std::string& key, const std::string& text, bool packed = false) {
  return key + '\0' + std::string(1, packed ? '\1' : '\0') +
         std::string("\0en\0Schl\xC3\xBCssel\0", 15) + (packed ? Zlib(text) : text);
}

TEST_F(PngMetadataTest, WhatLiesBehindTheImageDataCounts) {
  const Metadata got = Read({}, {{"eXIf", ExifOfOrientation(6)},
                                 {"tEXt", Text("Description", "a field")},
                                 {"iTXt", International("XML:com.adobe.xmp", "<x/>")}});
  EXPECT_EQ(got.exif, ExifOfOrientation(6));
  EXPECT_EQ(got.orientation, 6);
  EXPECT_EQ(got.description, "a field");
  EXPECT_EQ(got.xmp, "<x/>");
  EXPECT_TRUE(got.left_out.empty());
}

TEST_F(PngMetadataTest, TheLastOfSeveralCounts) {
  const Metadata got =
      Read({{"eXIf", ExifOfOrientation(3)}, {"tEXt", Text("Description", "old")}},
           {{"eXIf", ExifOfOrientation(8)}, {"zTXt", Packed("Description", "new")}});
  EXPECT_EQ(got.orientation, 8);
  EXPECT_EQ(got.description, "new");
}

TEST_F(PngMetadataTest, ColourChunksBehindTheImageDataAreNotOfThisPicture) {
  const Metadata got = Read({}, {{"gAMA", BigEndian32(50000)}});
  EXPECT_FALSE(got.gamma.has_value());
}

TEST_F(PngMetadataTest, AWrongChecksumBehindTheImageDataIsAnErrorThatNamesTheChunk) {
  std::string file = File({}, {{"eXIf", ExifOfOrientation(6)}});
  file[file.find("eXIf") + 10] ^= 1;
  PutFile(folder_ / "a.png", file);
  const std::string message = ErrorOf(Fault::kInput, [&] { OpenReader(folder_ / "a.png"); });
  EXPECT_NE(message.find("a.png"), std::string::npos) << message;
  EXPECT_NE(message.find("eXIf"), std::string::npos) << message;
}

TEST_F(PngMetadataTest, EqualDataChunksAreLeftOutByBisection) {
  for (const size_t count : {1, 2, 3, 1000, 4097}) {
    std::string file = "\x89PNG\r\n\x1A\n" + PngChunk("IHDR", std::string(13, '\1'));
    for (size_t i = 0; i < count; ++i) file += PngChunk("IDAT", std::string(100, 'x'));
    file += PngChunk("IDAT", "the rest") + PngChunk("eXIf", "found") + PngChunk("IEND", "");
    PutFile(folder_ / "a.png", file);
    const InputFile input(folder_ / "a.png");
    PngChunks chunks(input);
    std::vector<std::string> seen;
    std::string exif;
    while (chunks.Next()) {
      seen.push_back(chunks.name());
      if (seen.back() != "eXIf") continue;
      exif = chunks.Content();
      EXPECT_TRUE(chunks.after_data());
    }
    EXPECT_EQ(exif, "found") << count;
    EXPECT_EQ(seen, (std::vector<std::string>{"IHDR", "IDAT", "IDAT", "eXIf", "IEND"})) << count;
  }
}

TEST_F(PngMetadataTest, DataChunksOfAnySizesAreWalkedOver) {
  std::string file = "\x89PNG\r\n\x1A\n" + PngChunk("IHDR", std::string(13, '\1'));
  for (size_t i = 0; i < 200; ++i) file += PngChunk("IDAT", std::string(i * 37 % 101, 'x'));
  PutFile(folder_ / "a.png", file + PngChunk("eXIf", "found") + PngChunk("IEND", ""));
  EXPECT_EQ(ReadPngMetadata(InputFile(folder_ / "a.png")).exif, "found");
}

TEST_F(PngMetadataTest, XmpIsReadFromEveryTextThatHoldsIt) {
  const std::string xmp =
      "<x:xmpmeta>Gr\xC3\xBC\xC3\x9F"
      "e</x:xmpmeta>";
  const std::string raw = RawProfileText("xmp", xmp);
  const std::string app1 = RawProfileText("APP1", std::string(kXmpTag, kXmpTagBytes) + xmp);
  for (const auto& chunk : Chunks{{"iTXt", International("XML:com.adobe.xmp", xmp)},
                                  {"iTXt", International("XML:com.adobe.xmp", xmp, true)},
                                  {"tEXt", Text("XML:com.adobe.xmp", xmp)},
                                  {"zTXt", Packed("Raw profile type xmp", raw)},
                                  {"tEXt", Text("Raw profile type xmp", raw)},
                                  {"zTXt", Packed("Raw profile type APP1", app1)}}) {
    EXPECT_EQ(Read({chunk}).xmp, xmp) << chunk.first;
  }
  EXPECT_EQ(Read({{"zTXt", Packed("Raw profile type xmp", raw)},
                  {"iTXt", International("XML:com.adobe.xmp", "newer")}})
                .xmp,
            "newer");
}

TEST_F(PngMetadataTest, IptcAndExifAreReadFromRawProfiles) {
  const std::string iptc = IptcOf("barley");
  for (const char* name : {"iptc", "8bim"}) {
    for (const std::string& bytes : {iptc, ResourcesOfIptc(iptc)}) {
      const std::string key = std::string("Raw profile type ") + name;
      EXPECT_EQ(Read({{"zTXt", Packed(key, RawProfileText(name, bytes))}}).iptc, iptc) << name;
    }
  }
  const std::string exif = ExifOfOrientation(5);
  for (const std::string& bytes : {exif, std::string(kExifTag, kExifTagBytes) + exif}) {
    const Metadata got =
        Read({{"zTXt", Packed("Raw profile type exif", RawProfileText("exif", bytes))}});
    EXPECT_EQ(got.exif, exif);
    EXPECT_EQ(got.orientation, 5);
  }
}

TEST_F(PngMetadataTest, TextsThatCantBeUnpackedAreNamed) {
  for (const auto& [chunk, what] :
       std::vector<std::pair<std::pair<std::string, std::string>, std::string>>{
           {{"zTXt", std::string("Raw profile type iptc\0\0no zlib", 30)}, "IPTC"},
           {{"tEXt", Text("Raw profile type xmp", "\nxmp\n 9\n00\n")}, "XMP"},
           {{"iTXt", std::string("XML:com.adobe.xmp\0\1\0\0\0no zlib", 29)}, "XMP"}}) {
    const Metadata got = Read({chunk});
    ASSERT_EQ(got.left_out.size(), 1u) << what;
    EXPECT_TRUE(got.left_out[0].starts_with(what)) << got.left_out[0];
    for (const char* format : {"png", "jpeg", "tiff", "npy"}) {
      EXPECT_EQ(Losses(format, {}, got), got.left_out) << format;
    }
  }
}

TEST_F(PngMetadataTest, AnEmptyTextIsNeitherDamageNorALoss) {
  const Metadata got = Read({{"iTXt", International("XML:com.adobe.xmp", "")},
                             {"zTXt", Packed("Raw profile type iptc", "\niptc\n       0\n\n")},
                             {"tEXt", Text("Description", "")}});
  EXPECT_EQ(got.xmp + got.iptc + got.description, "");
  EXPECT_TRUE(got.left_out.empty());
}

TEST_F(PngMetadataTest, ATextThatGrowsBeyondTheLimitIsNamed) {
  const std::string large(kMostPacket + 1, 'x');
  const Metadata got = Read({{"iTXt", International("XML:com.adobe.xmp", large, true)}});
  EXPECT_EQ(got.xmp, "");
  EXPECT_EQ(got.left_out, (std::vector<std::string>{"XMP (larger than 16777216 bytes)"}));
}

TEST_F(PngMetadataTest, TheFramesOfAnAnimationAreALoss) {
  const auto control = [](uint32_t frames) {
    return std::pair<std::string, std::string>("acTL", BigEndian32(frames) + BigEndian32(0));
  };
  const std::pair<std::string, std::string> first("fcTL", std::string(26, '\0'));
  const Metadata several = Read({control(12), first});
  ASSERT_EQ(several.left_out.size(), 1u);
  EXPECT_EQ(several.left_out[0], "animation (12 frames, of which only the first picture is read)");
  EXPECT_EQ(Losses("png", {}, several), several.left_out);
  EXPECT_TRUE(Read({control(1), first}).left_out.empty());
  // The picture only stands in for the one frame.
  EXPECT_EQ(Read({control(1)}, {first}).left_out.size(), 1u);
}

}  // namespace
}  // namespace tilery
