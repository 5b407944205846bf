#include "scheduler/bench_report.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

Json Step(double rate) {
  return {{"tiles_per_s", rate}, {"batch_s", {{"p50", 0.1}, {"p95", 0.2}, {"p99", 0.3}}}};
}

Json Document() {
  return {{"model", "/models/a.pt"},
          {"model_hash", "0123456789abcdef0123456789abcdef"},
          {"card", "cuda/9.0/NVIDIA H100"},
          {"precision", "fp16"},
          {"batch", 8},
          {"ladder", {{"forward", Step(200)}, {"engine", Step(190)}, {"files", Step(100)}}}};
}

TEST(BenchReport, RatiosAreQuotientsOfTheCeiling) {
  Json document = Document();
  AddRatios(document, 25);
  EXPECT_EQ(document["ladder"]["forward"]["ratio"], 1.0);
  EXPECT_EQ(document["ladder"]["engine"]["ratio"], 0.95);
  EXPECT_EQ(document["ladder"]["files"]["ratio"], 0.5);
  EXPECT_EQ(document["ladder"]["files"]["items_per_s"], 4.0);
}

TEST(BenchReport, WithoutACeilingThereIsNoRatio) {
  Json document = Document();
  document["ladder"].erase("forward");
  AddRatios(document, 1);
  EXPECT_TRUE(document["ladder"]["engine"]["ratio"].is_null());
}

TEST(BenchReport, ToleranceIsAPercentageOrAShare) {
  EXPECT_DOUBLE_EQ(ToleranceFrom("5%"), 0.05);
  EXPECT_DOUBLE_EQ(ToleranceFrom("0.05"), 0.05);
  EXPECT_DOUBLE_EQ(ToleranceFrom("0"), 0);
  for (const char* wrong : {"", "%", "5 %", "5", "100%", "-1%", "nan", "five", "5%%"}) {
    ExpectWords(ErrorOf(Fault::kUsage, [&] { ToleranceFrom(wrong); }), {"--tolerance", "5%"});
  }
}

TEST(BenchReport, AStepIsSlowerBelowTheLimitOnly) {
  Json now = Document();
  EXPECT_TRUE(FindRegressions(now, Document(), 0, "f").empty());
  now["ladder"]["engine"] = Step(171);  // 190 * 0.9
  EXPECT_TRUE(FindRegressions(now, Document(), 0.1, "f").empty());
  now["ladder"]["engine"] = Step(170);
  now["ladder"]["files"] = Step(1000);
  const auto slower = FindRegressions(now, Document(), 0.1, "f");
  ASSERT_EQ(slower.size(), 1u);
  EXPECT_EQ(slower[0].step, "engine");
  EXPECT_EQ(slower[0].now, 170);
  EXPECT_EQ(slower[0].before, 190);
  EXPECT_EQ(slower[0].limit, 171);
  ExpectWords(slower[0].words("old.json", 0.1),
              {"engine", "170.0", "190.0", "171.0", "old.json", "10 %"});
}

TEST(BenchReport, OnlyCommonStepsAreCompared) {
  Json now = Document();
  now["ladder"].erase("engine");
  now["ladder"].erase("files");
  EXPECT_TRUE(FindRegressions(now, Document(), 0.05, "f").empty());
  Json before = Document();
  before["ladder"].erase("forward");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { FindRegressions(now, before, 0.05, "old.json"); }),
              {"old.json", "--steps"});
}

TEST(BenchReport, WhatWasMeasuredOtherwiseIsRefusedWithBothNames) {
  const Json now = Document();
  CheckComparable(now, Document(), "old.json");
  const struct {
    const char *key, *words;
    Json other;
    std::vector<std::string> shown;
  } cases[] = {{"card", "card", "cuda/9.0/NVIDIA H200", {"NVIDIA H200", "NVIDIA H100"}},
               {"batch", "batch", 16, {"16", "8"}},
               {"precision", "precision", "bf16", {"bf16", "fp16"}},
               {"model_hash", "model", "ffff", {"/models/a.pt (ffff)", "(0123456789ab)"}}};
  for (const auto& c : cases) {
    Json before = Document();
    before[c.key] = c.other;
    const std::string said =
        ErrorOf(Fault::kUsage, [&] { CheckComparable(now, before, "old.json"); });
    ExpectWords(said, {"old.json", std::string("another ") + c.words});
    ExpectWords(said, c.shown);
  }
  ErrorOf(Fault::kUsage, [&] { CheckComparable(now, Json::array(), "old.json"); });
  ErrorOf(Fault::kUsage, [&] { CheckComparable(now, Json::object(), "old.json"); });
}

TEST(BenchReport, ACardIsTheSameWithOtherLibraries) {
  EXPECT_EQ(CardOf("cuda/9.0/NVIDIA H100 80GB HBM3/cudnn 9.1.0"), "cuda/9.0/NVIDIA H100 80GB HBM3");
  EXPECT_EQ(CardOf("cpu/avx2/AMD EPYC"), "cpu/avx2/AMD EPYC");
}

}  // namespace
}  // namespace tilery
