#include "io/tvdb_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <random>

#include "io/error.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

class TvdbFileTest : public testing::Test {
 protected:
  static std::vector<std::byte> Bytes(size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::byte> bytes(count);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
  }
  // Pieces of these sizes.
  std::string Write(const std::vector<size_t>& sizes) {
    OutputFile out(folder_ / "a.tvdb", "test");
    TvdbWriter writer(out);
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto k = static_cast<int32_t>(i);
      writer.Add(7 + static_cast<uint32_t>(i), 100 + static_cast<uint32_t>(i),
                 {k, -k, INT32_MIN + k}, Bytes(sizes[i], static_cast<unsigned>(i)));
    }
    writer.Finish();
    out.Publish(Durability::kRename);
    return ContentOf(folder_ / "a.tvdb");
  }
  // Whether all of it can be read.
  bool Reads(const std::string& content) {
    MakeFile(folder_ / "b.tvdb", content);
    try {
      const TvdbFile file(folder_ / "b.tvdb");
      for (const TvdbPiece& piece : file.pieces()) file.Read(piece);
      return true;
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kInput) << error.what();
      EXPECT_NE(std::string(error.what()).find("b.tvdb"), std::string::npos) << error.what();
      return false;
    }
  }
  TempFolder folder_;
};

TEST_F(TvdbFileTest, PiecesComeBackInTheirOrder) {
  const std::vector<size_t> sizes = {0, 1, 5000, 0, 77};
  EXPECT_TRUE(Reads(Write(sizes)));
  EXPECT_TRUE(IsTvdbFile(folder_ / "a.tvdb"));
  const TvdbFile file(folder_ / "a.tvdb");
  ASSERT_EQ(file.pieces().size(), sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    const TvdbPiece& piece = file.pieces()[i];
    const auto k = static_cast<int32_t>(i);
    EXPECT_EQ(piece.kind, 7 + i);
    EXPECT_EQ(piece.grid, 100 + i);
    EXPECT_EQ(piece.origin, (std::array<int32_t, 3>{k, -k, INT32_MIN + k}));
    EXPECT_EQ(file.Read(piece), Bytes(sizes[i], static_cast<unsigned>(i)));
  }
  EXPECT_TRUE(Reads(Write({})));
}

TEST_F(TvdbFileTest, EveryByteThatChangesIsNoticed) {
  const std::string whole = Write({300, 0, 41});
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string bad = whole;
      bad[at] ^= static_cast<char>(1 << bit);
      EXPECT_FALSE(Reads(bad)) << "bit " << bit << " of byte " << at << " of " << whole.size();
    }
  }
}

TEST_F(TvdbFileTest, EveryCutIsNoticedAndWhatIsAddedToo) {
  const std::string whole = Write({300, 0, 41});
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(Reads(whole.substr(0, length))) << length << " of " << whole.size();
  EXPECT_FALSE(Reads(whole + '\0'));
  EXPECT_FALSE(Reads(whole + whole));
}

TEST_F(TvdbFileTest, ClaimsOfMoreThanThereIsTakeNoMemory) {
  const std::string whole = Write({300, 0, 41});
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  for (size_t at = 16; at + 8 <= whole.size(); ++at) {
    std::string bad = whole;
    const uint64_t claim = uint64_t{1} << 40;
    std::memcpy(&bad[at], &claim, sizeof claim);
    EXPECT_FALSE(Reads(bad)) << at;
  }
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT(after.ru_maxrss - before.ru_maxrss, 16 << 10);
}

TEST_F(TvdbFileTest, AnotherVersionAndOtherFilesAreToldApart) {
  const std::string whole = Write({});
  for (const uint32_t version : {TvdbFile::kVersion - 1, TvdbFile::kVersion + 1}) {
    std::string other = whole;
    other[8] = static_cast<char>(version);
    MakeFile(folder_ / "b.tvdb", other);
    EXPECT_NE(ErrorOf(Fault::kInput, [&] { TvdbFile(folder_ / "b.tvdb"); })
                  .find("version " + std::to_string(version)),
              std::string::npos);
  }
  MakeFile(folder_ / "b.tvdb", "no such thing, but long enough to be one if it were");
  EXPECT_NE(ErrorOf(Fault::kInput, [&] { TvdbFile(folder_ / "b.tvdb"); }).find("no .tvdb file"),
            std::string::npos);
  EXPECT_FALSE(IsTvdbFile(folder_ / "b.tvdb"));
}

}  // namespace
}  // namespace tilery
