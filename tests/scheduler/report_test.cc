// What profile.json and report.html say of tiles that ran more than once.
#include "scheduler/report.h"

#include <gtest/gtest.h>

#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

RunResult Careful() {
  RunResult result;
  result.status = "done";
  result.tiles_inferred = 40;
  result.tiles_repeated = 9;
  result.tiles_careful = 5;
  result.careful_items = {{"in/<b>.png", 2}, {"in/a.png", 3}};
  WorkerReport worker;
  worker.id = "w0";
  worker.tiles = 40;
  worker.repeated = 9;
  worker.careful = 5;
  result.workers = {worker};
  return result;
}

std::string PageOf(const RunResult& result, const ReportContext& context) {
  return ReportHtml(ProfileJson(result, context), result, SummaryJson(result, context, "w"));
}

TEST(Report, TilesThatRanAgainAreCountedPerWorkerAndInAll) {
  const Json profile = ProfileJson(Careful(), {});
  EXPECT_EQ(profile.at("tiles_repeated"), 9);
  EXPECT_EQ(profile.at("tiles_careful"), 5);
  EXPECT_EQ(profile.at("workers")[0].at("repeated"), 9);
  EXPECT_EQ(profile.at("workers")[0].at("careful"), 5);
  const Json items = {{{"item", "in/<b>.png"}, {"tiles", 2}}, {{"item", "in/a.png"}, {"tiles", 3}}};
  EXPECT_EQ(profile.at("careful_items"), items);
}

TEST(Report, ThePageShowsTilesInF32OnlyWhereThereWereSome) {
  ReportContext context;
  context.warnings = {CarefulWords(Careful(), "fp16")};
  ExpectWords(PageOf(Careful(), context),
              {"<b class='bad'>5</b><span class=dim>tiles once more in fp32", "in/a.png (3)",
               "in/&lt;b&gt;.png (2)", "5 of 40 tiles were not finite in fp16"});
  EXPECT_EQ(PageOf(RunResult{}, {}).find("once more in fp32"), std::string::npos);
  EXPECT_EQ(CarefulWords(RunResult{}, "fp16"), "");
}

TEST(Report, OfManyItemsAFewAreNamed) {
  RunResult result;
  for (int k = 0; k < 30; ++k) result.careful_items["p" + std::to_string(k)] = 1;
  result.tiles_careful = result.tiles_inferred = 30;
  const std::string words = CarefulWords(result, "fp16");
  ExpectWords(words, {"30 of 30", "p0 (1)", "profile.json"});
  EXPECT_EQ(words.find("p5 "), std::string::npos) << words;
}

}  // namespace
}  // namespace tilery
