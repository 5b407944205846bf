#include "scheduler/pipeline.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

class PipelineTest : public testing::Test {
 protected:
  Pipeline Load(const std::string& yaml, const JobFlags& flags = {},
                const std::string& stage = "") {
    MakeFile(folder_ / "pipe.yaml", yaml);
    return LoadPipeline(folder_ / "pipe.yaml", flags, stage);
  }
  std::string Mistake(const std::string& yaml, const JobFlags& flags = {},
                      const std::string& stage = "") {
    return ErrorOf(Fault::kUsage, [&] { Load(yaml, flags, stage); });
  }
  std::string At(const std::string& name) const { return (folder_.path() / name).string(); }

  TempFolder folder_;
  const std::string two_ = R"(
stages:
  - {name: up, model: {path: a.pt}, input: {path: in}, output: {path: one/}, on_failed: stop}
  - {model: {path: b.pt}, input: {path: "one/*.png"}, output: {path: two/}}
)";
};

TEST_F(PipelineTest, AJobIsAPipelineOfOneStage) {
  const Pipeline one = Load("model: {path: a.pt}\ninput: {path: in}\noutput: {path: one/}\n");
  EXPECT_FALSE(one.several);
  ASSERT_EQ(one.stages.size(), 1u);
  EXPECT_EQ(one.stages[0].name, "");
  EXPECT_EQ(one.stages[0].job.name, "pipe");
  EXPECT_FALSE(one.stages[0].job.stop_on_failed);
  const Pipeline flags =
      LoadPipeline({}, {{"model", {"m"}}, {"input", {"a.png"}}, {"output", {"b.png"}}}, "");
  EXPECT_EQ(flags.stages.at(0).job.name, "job");
}

TEST_F(PipelineTest, StagesAreJobsInOrderWithNamesAndWorkFoldersOfTheirOwn) {
  const Pipeline pipeline = Load(two_);
  EXPECT_TRUE(pipeline.several);
  EXPECT_TRUE(pipeline.ordered);
  ASSERT_EQ(pipeline.stages.size(), 2u);
  EXPECT_EQ(pipeline.stages[0].name, "up");
  EXPECT_EQ(pipeline.stages[1].name, "2");
  EXPECT_EQ(pipeline.stages[0].job.model.path, At("a.pt"));
  EXPECT_EQ(pipeline.stages[1].job.input.paths, std::vector<std::string>{At("one/*.png")});
  EXPECT_EQ(pipeline.stages[0].job.execution.work, At("one/.tilery/pipe-up"));
  EXPECT_EQ(pipeline.stages[1].job.execution.work, At("two/.tilery/pipe-2"));
  EXPECT_TRUE(pipeline.stages[0].job.stop_on_failed);
  EXPECT_FALSE(pipeline.stages[1].job.stop_on_failed);
  EXPECT_FALSE(
      Load("jobs: [{model: {path: a.pt}, input: {path: in}, output: {path: one/}}]").ordered);
}

TEST_F(PipelineTest, OneStageIsChosenByNameOrNumber) {
  EXPECT_EQ(Load(two_, {}, "up").stages.at(0).name, "up");
  EXPECT_EQ(Load(two_, {}, "1").stages.at(0).name, "up");
  const Pipeline second = Load(two_, {{"output", {"/else/"}}}, "2");
  ASSERT_EQ(second.stages.size(), 1u);
  EXPECT_EQ(second.stages[0].job.outputs[0].path, "/else/");
  EXPECT_EQ(second.stages[0].job.name, "pipe-2");
  ExpectWords(Mistake(two_, {}, "down"), {"--stage down", "up, 2"});
  ExpectWords(Mistake("model: {path: a}\ninput: {path: b}\noutput: {path: c}\n", {}, "1"),
              {"--stage 1", "no stages"});
}

TEST_F(PipelineTest, FlagsThatCanOnlyBeOfOneJobNeedOneStage) {
  const Pipeline pipeline = Load(two_, {{"execution.devices", {"cpu"}}});
  for (const Stage& stage : pipeline.stages)
    EXPECT_EQ(stage.job.execution.devices, std::vector<std::string>{"cpu"});
  for (const char* flag : {"model", "input", "output.path", "work", "name"})
    ExpectWords(Mistake(two_, {{flag, {"x"}}}), {flag, "--stage", "up, 2"});
}

TEST_F(PipelineTest, MistakesNameTheStagesLine) {
  ExpectWords(Mistake("stages: []\n"), {"pipe.yaml:1", "list of jobs"});
  ExpectWords(Mistake("stages: up\n"), {"pipe.yaml:1", "list of jobs", "up"});
  ExpectWords(Mistake("stages: [up]\n"), {"pipe.yaml:1", "a job must be a map"});
  ExpectWords(Mistake(two_ + "tiling: {tile: 64}\n"), {"pipe.yaml:5", "'tiling' stands beside"});
  ExpectWords(Mistake(two_ + "  - {name: up, model: {path: a.pt}}\n"), {"pipe.yaml:5", "'up'"});
  ExpectWords(Mistake(two_ + "  - {name: \"a/b\", model: {path: a.pt}}\n"), {"a/b", "name"});
  ExpectWords(Mistake(two_ + "  - {name: c, model: {path: a.pt}, input: {path: in}}\n"),
              {"output.path is missing"});
  // Of those not chosen, too.
  ExpectWords(Mistake(two_ + "  - {name: c, modle: {path: a.pt}}\n", {}, "up"),
              {"pipe.yaml:5", "modle", "model"});
  ExpectWords(Mistake(two_ + "  - {name: c, stages: []}\n"), {"pipe.yaml:5", "stages"});
  ExpectWords(Mistake(two_ + "  - {name: c, on_failed: go}\n"), {"on_failed", "continue", "stop"});
}

TEST_F(PipelineTest, WhetherInputsAreThereIsAskedOfTheDisk) {
  const Pipeline pipeline = Load(two_);
  EXPECT_FALSE(InputsAreThere(pipeline.stages[0].job));
  std::filesystem::create_directories(folder_ / "one");
  MakeFile(folder_ / "one/x.png", "x");
  EXPECT_TRUE(InputsAreThere(pipeline.stages[1].job));
}

}  // namespace
}  // namespace tilery
