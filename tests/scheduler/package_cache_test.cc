#include "scheduler/package_cache.h"

#include <gtest/gtest.h>

#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

TEST(PackageName, IsReadableAndItsOwnForEachModelTorchAndLibrary) {
  const std::string name = PackageName("/a/my net.v2.pt", "h", "2.11.0", "");
  EXPECT_EQ(name.substr(0, 10), "my-net-v2-");
  EXPECT_EQ(name.size(), 10u + 16u);
  const std::set<std::string> names = {name, PackageName("/a/my net.v2.pt", "g", "2.11.0", ""),
                                       PackageName("/a/my net.v2.pt", "h", "2.12.0", ""),
                                       PackageName("/a/my net.v2.pt", "h", "2.11.0", "x")};
  EXPECT_EQ(names.size(), 4u);
  EXPECT_EQ(name, PackageName("/b/my net.v2.pt2", "h", "2.11.0", "")) << "wherever it lies";
  EXPECT_EQ(PackageName(std::string(250, 'x') + ".pt", "h", "2.11.0", "").size(), 80u + 17u);
}

class PrunePackagesTest : public testing::Test {
 protected:
  // A package of 100 bytes that was used so many hours ago.
  fs::path Make(const std::string& name, int hours) {
    const fs::path path = folder_ / name;
    MakeFile(path, std::string(100, 'x'));
    fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::hours(hours));
    return path;
  }
  TempFolder folder_;
};

TEST_F(PrunePackagesTest, WhatWasUsedLongestAgoGoesFirst) {
  const fs::path old = Make("old.pt2", 9), middle = Make("middle.pt2", 8), young = Make("y.pt2", 7);
  EXPECT_EQ(PrunePackages(folder_.path(), 300, {}), 0);
  TouchPackage(old);
  EXPECT_EQ(PrunePackages(folder_.path(), 200, {}), 1);
  EXPECT_TRUE(fs::exists(old) && !fs::exists(middle) && fs::exists(young));
}

TEST_F(PrunePackagesTest, WhatIsInUseAndWhatIsNoPackageStays) {
  const fs::path kept = Make("kept.pt2", 9), used = Make("used.pt2", 0), text = Make("a.txt", 9);
  const fs::path idle = Make("idle.pt2", 2);
  EXPECT_EQ(PrunePackages(folder_.path(), 0, {kept}), 1);
  EXPECT_TRUE(fs::exists(kept) && fs::exists(used) && fs::exists(text) && !fs::exists(idle));
  EXPECT_EQ(PrunePackages(folder_ / "none", 0, {}), 0);
}

TEST_F(PrunePackagesTest, WhatWasLeftHalfWrittenGoesAfterADay) {
  const fs::path old = folder_ / ".a.pt2.x.partial", young = folder_ / ".b.pt2.x.partial";
  for (const fs::path& folder : {old, young}) {
    fs::create_directory(folder);
    MakeFile(folder / "a.pt2", "half");
  }
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(25));
  EXPECT_EQ(PrunePackages(folder_.path(), 1000, {}), 0);
  EXPECT_TRUE(!fs::exists(old) && fs::exists(young));
}

}  // namespace
}  // namespace tilery
