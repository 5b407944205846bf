#include "scheduler/inputs.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

class ListInputsTest : public testing::Test {
 protected:
  void Make(const std::string& name) {
    std::filesystem::create_directories((folder_ / name).parent_path());
    MakeFile(folder_ / name, "x");
  }
  using Names = std::vector<std::string>;
  Names List(const Names& patterns) {
    const std::string root = folder_.path().string() + "/";
    job_.execution.work = root + "work";
    job_.input.paths.clear();
    for (const std::string& pattern : patterns) job_.input.paths.push_back(root + pattern);
    Names found = ListInputs(
        job_, [&](const std::string& path) { return path.find("made_") != std::string::npos; });
    for (std::string& path : found) path = path.substr(root.size());
    return found;
  }
  std::string Mistake(const std::string& pattern) {
    return ErrorOf(Fault::kUsage, [&] { List({pattern}); });
  }

  Job job_;
  TempFolder folder_;
};

TEST_F(ListInputsTest, AFolderIsReadFlatAndOnlyForKnownFormats) {
  for (const char* name : {"in/b.png", "in/a.TIF", "in/notes.txt", "in/sub/c.png", "in/v.nii.gz"})
    Make(name);
  EXPECT_EQ(List({"in"}), (Names{"in/a.TIF", "in/b.png", "in/v.nii.gz"}));
  EXPECT_EQ(List({"in/"}), (Names{"in/a.TIF", "in/b.png", "in/v.nii.gz"}));
}

TEST_F(ListInputsTest, AGlobTakesUnknownExtensionsOnlyIfItNamesThem) {
  for (const char* name : {"a.png", "a.txt", "a.dat"}) Make(name);
  EXPECT_EQ(List({"a.*"}), (Names{"a.png"}));
  EXPECT_EQ(List({"*.dat"}), (Names{"a.dat"}));
}

TEST_F(ListInputsTest, EachPathIsListedOnceInByteOrder) {
  for (const char* name : {"b.png", "a.png", "B.png"}) Make(name);
  EXPECT_EQ(List({"*.png", "a.png", "."}), (Names{"B.png", "a.png", "b.png"}));
}

TEST_F(ListInputsTest, HiddenFilesWorkFoldersAndOutputsAreNoInputs) {
  for (const char* name :
       {"a.png", "._a.png", ".DS_Store", "Thumbs.db", "work/b.png", ".tilery/job/c.png",
        "s/.tilery/d.png", "made_e.png", ".tilery-1.part"}) {
    Make(name);
  }
  EXPECT_EQ(List({"**/*"}), (Names{"a.png"}));
  EXPECT_EQ(List({"."}), (Names{"a.png"}));
}

TEST_F(ListInputsTest, AFileThatIsNamedIsTakenEvenIfItIsAnOutput) {
  Make("made_e.png");
  EXPECT_EQ(List({"made_e.png"}), (Names{"made_e.png"}));
  ExpectWords(Mistake("made_*.png"), {"made_*.png", "1 file", "outputs of this work folder"});
}

TEST_F(ListInputsTest, OddNamesAreOnlyNames) {
  const Names names = {"-dash.png",    "[x].png",     "a b.png",      "per%20cent.png",
                       "quote'\".png", "{brace}.png", "\xC3\xBC.png", "\xFF.png"};
  for (const std::string& name : names) Make("in/" + name);
  Names want;
  for (const std::string& name : names) want.push_back("in/" + name);
  std::sort(want.begin(), want.end());
  EXPECT_EQ(List({"in"}), want);
  EXPECT_EQ(List({"in/[x].png"}), (Names{"in/[x].png"}));
}

TEST_F(ListInputsTest, WhatMatchesNothingIsRefusedByName) {
  Make("in/notes.txt");
  ExpectWords(Mistake("none*.png"), {"none*.png", "no file matches"});
  ExpectWords(Mistake("gone.png"), {"gone.png", "no such file"});
  ExpectWords(Mistake("in"), {"in", "known format", "flat"});
}

TEST_F(ListInputsTest, ADanglingLinkIsAnInputThatFailsLater) {
  std::filesystem::create_symlink(folder_ / "nowhere", folder_ / "l.png");
  EXPECT_EQ(List({"."}), (Names{"l.png"}));
  EXPECT_EQ(List({"l.png"}), (Names{"l.png"}));
}

}  // namespace
}  // namespace tilery
