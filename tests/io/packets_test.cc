#include "io/packets.h"

#include <gtest/gtest.h>

#include "tests/io/format_helpers.h"
#include "tests/io/png_builder.h"

namespace tilery {
namespace {

std::string Block(uint16_t number, const std::string& data, const std::string& name = "") {
  std::string head = "8BIM" + BigEndian32(number).substr(2);
  head += static_cast<char>(name.size()) + name;
  if (name.size() % 2 == 0) head += '\0';
  return head + BigEndian32(static_cast<uint32_t>(data.size())) + data +
         std::string(data.size() % 2, '\0');
}

TEST(PacketsTest, DataSetsAreFoundBetweenOtherResources) {
  const std::string iptc = IptcOf("barley");
  const std::string resources =
      Block(0x03ED, "resolution") + Block(0x07D0, "odd", "a path") + Block(0x0404, iptc);
  EXPECT_EQ(IptcOfResources(resources), iptc);
  EXPECT_EQ(IptcOfResources(resources + Block(0x0425, "digest")), iptc);
  EXPECT_EQ(IptcOfResources(iptc), iptc);
  EXPECT_EQ(IptcOfResources(Block(0x03ED, "resolution")), "");
  EXPECT_EQ(IptcOfResources(""), "");
}

TEST(PacketsTest, ResourcesGiveBackWhateverTheyAreMadeOf) {
  for (const std::string& iptc : {IptcOf("a"), IptcOf("ab"), std::string("\0no sets\0", 9)}) {
    EXPECT_EQ(IptcOfResources(ResourcesOfIptc(iptc)), iptc);
    EXPECT_EQ(ResourcesOfIptc(iptc).size() % 2, 0u);
  }
}

TEST(PacketsTest, DamagedResourcesGiveWhatIsThere) {
  const std::string iptc = IptcOf("barley");
  std::string bad_size = Block(0x03ED, "resolution");
  bad_size.replace(8, 4, "\x7F\xFF\xFF\xFF");
  EXPECT_EQ(IptcOfResources(bad_size + Block(0x0404, iptc)), iptc);
  const std::string whole = Block(0x0404, iptc);
  for (size_t keep = 0; keep < whole.size(); ++keep) {
    const std::string got = IptcOfResources(whole.substr(0, keep));
    EXPECT_TRUE(iptc.starts_with(got)) << keep;
    EXPECT_EQ(got.size(), keep < 12 ? 0 : std::min(keep - 12, iptc.size()));
  }
}

TEST(PacketsTest, PaddingEndsWithTheDataSets) {
  const std::string iptc = IptcOf("barley") + IptcOf(std::string("z\0\0", 3));
  for (size_t zeros = 0; zeros <= 3; ++zeros) {
    EXPECT_EQ(WithoutPadding(iptc + std::string(zeros, '\0')), iptc);
  }
  for (const std::string& other :
       {iptc + std::string(4, '\0'), iptc + "x", std::string("none\0", 5), std::string(3, '\0')}) {
    EXPECT_EQ(WithoutPadding(other), other);
  }
  // A length of four bytes, and one that leads beyond the end.
  const std::string large =
      std::string("\x1C\2\xCA\x80\4\0\1\x11\x70", 9) + std::string(70000, 'x');
  EXPECT_EQ(WithoutPadding(large + '\0'), large);
  const std::string beyond("\x1C\2\5\0\x09oats\0", 10);
  EXPECT_EQ(WithoutPadding(beyond), beyond);
}

TEST(PacketsTest, RawProfilesGiveBackWhatTheyAreMadeOf) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  for (const size_t size : {size_t{1}, size_t{36}, size_t{37}, size_t{256}}) {
    const std::string text = RawProfileText("iptc", all.substr(0, size));
    EXPECT_EQ(RawProfileBytes(text), all.substr(0, size));
    EXPECT_TRUE(text.starts_with("\niptc\n     ")) << text;
  }
  EXPECT_EQ(RawProfileBytes("\nxmp\n 2\n4F6b\n"), "Ok");
  EXPECT_EQ(RawProfileBytes("\nxmp\n0\n"), "");
  for (const char* none : {"", "x", "\n", "\niptc", "\niptc\n", "\niptc\n4", "\niptc\n4\n4f6b\n",
                           "\niptc\n99999999999999999999\n4f\n", "\niptc\nx\n4f\n"}) {
    EXPECT_EQ(RawProfileBytes(none), std::nullopt) << none;
  }
}

TEST(PacketsTest, APacketBeyondTheLimitIsNamedAndLeftOut) {
  Metadata metadata;
  TakeXmp(std::string(kMostPacket, 'x'), &metadata);
  EXPECT_EQ(metadata.xmp.size(), kMostPacket);
  EXPECT_TRUE(metadata.left_out.empty());
  TakeIptc(std::string(kMostPacket + 1, 'x'), &metadata);
  EXPECT_EQ(metadata.iptc, "");
  EXPECT_EQ(metadata.left_out, (std::vector<std::string>{"IPTC (larger than 16777216 bytes)"}));
}

}  // namespace
}  // namespace tilery
