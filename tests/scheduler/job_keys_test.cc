#include "scheduler/job_keys.h"

#include <gtest/gtest.h>

#include <set>

#include "scheduler/job.h"
#include "tests/io/expect_error.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

TEST(NearestWordTest, FindsTyposSwapsAndMissingLetters) {
  const std::vector<std::string> words = {"tile", "overlap", "window", "precision"};
  EXPECT_EQ(NearestWord("precison", words), "precision");
  EXPECT_EQ(NearestWord("tiel", words), "tile");
  EXPECT_EQ(NearestWord("WINDOW", words), "window");
  EXPECT_EQ(NearestWord("overlapp", words), "overlap");
}

TEST(NearestWordTest, SaysNothingWhereNothingIsNear) {
  EXPECT_EQ(NearestWord("xyz", {"precision", "overlap"}), "");
  EXPECT_EQ(NearestWord("", {"tile"}), "");
  EXPECT_EQ(NearestWord(std::string(100000, 'a'), {"tile"}), "");
}

TEST(JobKeysTest, EveryKeyAndFlagIsThereOnce) {
  std::set<std::string> seen;
  for (const JobKey& key : JobKeys()) {
    EXPECT_TRUE(seen.insert(key.key).second) << key.key;
    if (key.flag[0] != '\0') {
      EXPECT_TRUE(seen.insert(key.flag).second) << key.flag;
    }
    EXPECT_NE(std::string(key.help), "") << key.key;
    EXPECT_EQ(FindJobKey(key.key), &key);
  }
}

TEST(JobKeysTest, NoKeyIsAMapOfAnother) {
  for (const JobKey& a : JobKeys()) {
    for (const JobKey& b : JobKeys()) {
      EXPECT_FALSE(std::string(b.key).starts_with(std::string(a.key) + "."))
          << a.key << " " << b.key;
    }
  }
}

TEST(JobKeysTest, ShortFlagsStandForTheirKeys) {
  EXPECT_EQ(ResolveFlag("model"), "model.path");
  EXPECT_EQ(ResolveFlag("input"), "input.path");
  EXPECT_EQ(ResolveFlag("output"), "output.path");
  EXPECT_EQ(ResolveFlag("tile"), "tiling.tile");
  EXPECT_EQ(ResolveFlag("overlap"), "tiling.overlap");
  EXPECT_EQ(ResolveFlag("window"), "tiling.window");
  EXPECT_EQ(ResolveFlag("devices"), "execution.devices");
  EXPECT_EQ(ResolveFlag("workers"), "execution.workers");
  EXPECT_EQ(ResolveFlag("work"), "execution.work");
  EXPECT_EQ(ResolveFlag("numerics"), "execution.numerics");
  EXPECT_EQ(ResolveFlag("tiling.pad"), "tiling.pad");
  ExpectWords(ErrorOf(Fault::kUsage, [] { ResolveFlag("tiling.tyle"); }),
              {"tiling.tyle", "tiling.tile"});
}

TEST(JobKeysTest, TheHelpNamesEveryKey) {
  const std::string help = JobKeysHelp();
  for (const JobKey& key : JobKeys()) {
    if (key.type == KeyType::kList) continue;
    EXPECT_NE(help.find(key.key), std::string::npos) << key.key;
  }
}

}  // namespace
}  // namespace tilery
