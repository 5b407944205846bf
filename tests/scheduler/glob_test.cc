#include "scheduler/glob.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

TEST(MatchesNameTest, StarsQuestionMarksAndClassesWork) {
  EXPECT_TRUE(MatchesName("*.png", "a.png"));
  EXPECT_TRUE(MatchesName("*", "a"));
  EXPECT_TRUE(MatchesName("a*b*c", "aXbbYc"));
  EXPECT_FALSE(MatchesName("a*b*c", "aXbbY"));
  EXPECT_TRUE(MatchesName("im?.png", "im7.png"));
  EXPECT_FALSE(MatchesName("im?.png", "im77.png"));
  EXPECT_TRUE(MatchesName("im[0-4].png", "im3.png"));
  EXPECT_FALSE(MatchesName("im[!0-4].png", "im3.png"));
  EXPECT_TRUE(MatchesName("[", "["));
}

TEST(MatchesNameTest, ADotInFrontMustBeWritten) {
  EXPECT_FALSE(MatchesName("*", ".hidden"));
  EXPECT_TRUE(MatchesName(".*", ".hidden"));
}

TEST(MatchesNameTest, HashesAreTheNumberOfAFrame) {
  EXPECT_EQ(FrameIn("smoke.####.vdb", "smoke.0012.vdb"), "0012");
  EXPECT_EQ(FrameIn("smoke.####.vdb", "smoke.12345.vdb"), "12345");
  EXPECT_EQ(FrameIn("smoke.####.vdb", "smoke.01234.vdb"), std::nullopt);
  EXPECT_EQ(FrameIn("smoke.####.vdb", "smoke.012.vdb"), std::nullopt);
  EXPECT_EQ(FrameIn("s#", "s7"), "7");
  EXPECT_EQ(FrameIn("##_v*.vdb", "07_v2.vdb"), "07");
  EXPECT_EQ(FrameIn("v2_##.vdb", "v2_13.vdb"), "13");
  EXPECT_EQ(FrameIn("v##_##.vdb", "v02_13.vdb"), "13");
  EXPECT_EQ(FrameIn("plain.vdb", "plain.vdb"), std::nullopt);
  EXPECT_TRUE(MatchesName("a##", "a10"));
  EXPECT_FALSE(MatchesName("a##", "a1"));
  EXPECT_FALSE(MatchesName("a##", "a10b"));
  EXPECT_FALSE(MatchesName("##", ".10"));
}

TEST(MatchesNameTest, ManyStarsTakeNoTime) {
  std::string pattern;
  for (int k = 0; k < 200; ++k) pattern += "*a";
  EXPECT_FALSE(MatchesName(pattern + "b", std::string(5000, 'a')));
}

class WalkGlobTest : public testing::Test {
 protected:
  void Make(const std::string& name) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    MakeFile(folder_ / name, "x");
  }
  std::vector<std::string> Walk(const std::string& pattern) {
    std::vector<std::string> found;
    const std::string root = folder_.path().string() + "/";
    WalkGlob(
        root + pattern, [](const std::string&) { return true; },
        [&](const std::string& path) { found.push_back(path.substr(root.size())); });
    std::sort(found.begin(), found.end());
    return found;
  }
  using Names = std::vector<std::string>;
  TempFolder folder_;
};

TEST_F(WalkGlobTest, TwoStarsReachEveryDepthAndOneStarStaysInItsFolder) {
  for (const char* name : {"a.png", "s/b.png", "s/t/c.png", "s/d.txt"}) Make(name);
  EXPECT_EQ(Walk("*.png"), (Names{"a.png"}));
  EXPECT_EQ(Walk("**/*.png"), (Names{"a.png", "s/b.png", "s/t/c.png"}));
  EXPECT_EQ(Walk("*/*.png"), (Names{"s/b.png"}));
  EXPECT_EQ(Walk("**"), (Names{"a.png", "s/b.png", "s/d.txt", "s/t/c.png"}));
}

TEST_F(WalkGlobTest, TwoStarsEnterNeitherLinksNorHiddenFolders) {
  Make("s/a.png");
  Make(".h/b.png");
  std::filesystem::create_directory_symlink(folder_ / "s", folder_ / "link");
  EXPECT_EQ(Walk("**/*.png"), (Names{"s/a.png"}));
  EXPECT_EQ(Walk("link/*.png"), (Names{"link/a.png"}));
}

TEST_F(WalkGlobTest, LinksToFilesAreFollowedAndDanglingOnesReported) {
  Make("a.png");
  std::filesystem::create_symlink(folder_ / "a.png", folder_ / "b.png");
  std::filesystem::create_symlink(folder_ / "nowhere", folder_ / "c.png");
  EXPECT_EQ(Walk("*.png"), (Names{"a.png", "b.png", "c.png"}));
}

TEST_F(WalkGlobTest, AFolderWhoseNameLooksLikeAPatternIsTakenLiterally) {
  Make("trip [2024]/a.png");
  EXPECT_EQ(Walk("trip [2024]/*.png"), (Names{"trip [2024]/a.png"}));
  EXPECT_EQ(PatternRoot(folder_.path().string() + "/trip [2024]/*.png"),
            folder_.path().string() + "/trip [2024]");
}

}  // namespace
}  // namespace tilery
