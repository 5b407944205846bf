#include "scheduler/output_paths.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/plan_inputs.h"

namespace tilery {
namespace {

TEST(ExpandOutputTest, EveryFieldIsFilled) {
  EXPECT_EQ(ExpandOutput("/o/{reldir}/{stem}_x2.png", "/in/a/b/im.jpg", "/in", 3, ""),
            "/o/a/b/im_x2.png");
  EXPECT_EQ(ExpandOutput("/o/{index}_{name}.png", "/in/im.jpg", "/in", 3, ""), "/o/3_im.jpg.png");
  EXPECT_EQ(ExpandOutput("/o/{stem}{ext}", "/in/im.jpg", "/in", 0, ""), "/o/im.jpg");
  EXPECT_EQ(ExpandOutput("/o/{stem}{ext}", "/in/im.jpg", "/in", 0, ".tif"), "/o/im.tif");
  EXPECT_EQ(ExpandOutput("/o/{{{stem}}}.png", "/in/im.jpg", "/in", 0, ""), "/o/{im}.png");
}

TEST(ExpandOutputTest, AFolderMeansTheSameTreeInsideIt) {
  EXPECT_EQ(ExpandOutput("/o/", "/in/a/im.jpg", "/in", 0, ""), "/o/a/im.jpg");
  EXPECT_EQ(ExpandOutput("/o/", "/in/im.jpg", "/in", 0, ""), "/o/im.jpg");
  EXPECT_EQ(ExpandOutput("/o/", "/elsewhere/im.jpg", "/in", 0, ""), "/o/im.jpg");
  EXPECT_EQ(ExpandOutput("/o/", "/input/im.jpg", "/in", 0, ""), "/o/im.jpg");
}

TEST(ExpandOutputTest, BracesInNamesOfInputsAreNoFields) {
  EXPECT_EQ(ExpandOutput("/o/{stem}.png", "/in/{brace}.png", "/in", 0, ""), "/o/{brace}.png");
}

TEST(ExpandOutputTest, ACompressedVolumeHasOneExtension) {
  EXPECT_EQ(SplitExtension("v.nii.gz"), (std::pair<std::string, std::string>{"v", ".nii.gz"}));
  EXPECT_EQ(SplitExtension("a.b.png"), (std::pair<std::string, std::string>{"a.b", ".png"}));
  EXPECT_EQ(SplitExtension("noext"), (std::pair<std::string, std::string>{"noext", ""}));
  EXPECT_EQ(ExpandOutput("/o/{stem}_seg{ext}", "/in/v.nii.gz", "/in", 0, ""), "/o/v_seg.nii.gz");
}

TEST(ExpandOutputTest, AnUnknownFieldIsRefusedWithTheNearest) {
  const auto mistake = [](const std::string& text) {
    return ErrorOf(Fault::kUsage, [&] { ExpandOutput(text, "/in/a.png", "/in", 0, ""); });
  };
  ExpectWords(mistake("/o/{steem}.png"), {"{steem}", "{stem}"});
  ExpectWords(mistake("/o/{grid}.vdb"), {"{grid}", "not supported yet"});
  ExpectWords(mistake("/o/}.png"), {"} without {"});
}

TEST(ExpandOutputsTest, ReldirCountsFromTheFixedPartOfTheGlob) {
  TempFolder folder;
  const std::string root = folder.path().string();
  std::filesystem::create_directories(folder / "photos/sub");
  MakeFile(folder / "photos/sub/a.png", "x");
  Job job = JobOf("/o/{reldir}/{stem}.png");
  job.input.paths = {root + "/photos/**/*.png"};
  EXPECT_EQ(ExpandOutputs(job, {root + "/photos/sub/a.png"}),
            std::vector<std::string>{"/o/sub/a.png"});
  job.input.paths = {root + "/photos/sub/a.png"};
  EXPECT_EQ(ExpandOutputs(job, {root + "/photos/sub/a.png"}), std::vector<std::string>{"/o/a.png"});
}

TEST(CheckOutputsTest, ALinkToAnInputIsNoOutput) {
  TempFolder folder;
  MakeFile(folder / "a.png", "x");
  std::filesystem::create_symlink(folder / "a.png", folder / "b.png");
  InputHeader input;
  input.path = (folder / "a.png").string();
  input.stamp = *StampOf(input.path);
  const std::string link = (folder / "b.png").string();
  ExpectWords(ErrorOf(Fault::kUsage, [&] { CheckOutputsAreNoInputs({input}, {link}); }),
              {"b.png", "a.png", "same file"});
  EXPECT_NO_THROW(CheckOutputsAreNoInputs({input}, {(folder / "c.png").string()}));
}

}  // namespace
}  // namespace tilery
