#include "scheduler/input_hasher.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

using namespace std::chrono_literals;

class InputHasherTest : public testing::Test {
 protected:
  InputHasher::Wanted Make(size_t index, const std::string& content) {
    names_[index] = (folder_ / std::to_string(index)).string();
    MakeFile(names_[index], content);
    return {&names_[index], *StampOf(names_[index]), index};
  }
  TempFolder folder_;
  std::array<std::string, 3> names_;
};

TEST_F(InputHasherTest, HashesAsHashFileDoesAlsoOverManyPieces) {
  const std::string large = std::string(1 << 20, 'a') + std::string(1 << 20, 'b') + "c";
  InputHasher hasher({Make(0, ""), Make(1, large), Make(2, "x")});
  hasher.Finish(INT64_MAX - 1, 60s);
  const std::vector<InputHasher::Hashed> hashed = hasher.Take();
  ASSERT_EQ(hashed.size(), 3u);
  for (const InputHasher::Hashed& one : hashed) EXPECT_EQ(one.hash, HashFile(names_[one.index]));
  EXPECT_TRUE(hasher.Take().empty());
}

TEST_F(InputHasherTest, WhatChangedOrVanishedHasNoHash) {
  InputHasher::Wanted changed = Make(0, "before");
  changed.stamp.mtime_ns -= 1;
  const InputHasher::Wanted gone = Make(1, "gone");
  unlink(names_[1].c_str());
  InputHasher hasher({changed, gone, Make(2, "x")});
  hasher.Finish(INT64_MAX - 1, 60s);
  const std::vector<InputHasher::Hashed> hashed = hasher.Take();
  ASSERT_EQ(hashed.size(), 1u);
  EXPECT_EQ(hashed[0].index, 2u);
}

// A sparse file of 4 GiB takes a second and more; whoever was asked to end has no such time.
TEST_F(InputHasherTest, AHastyEndDoesNotWaitForTheFileAtHand) {
  InputHasher::Wanted large = Make(0, "");
  std::filesystem::resize_file(names_[0], InputHasher::kLimit);
  large.stamp = *StampOf(names_[0]);
  InputHasher hasher({large});
  hasher.Finish(INT64_MAX - 1, 0ms);
  EXPECT_TRUE(hasher.Take().empty());
}

}  // namespace
}  // namespace tilery
