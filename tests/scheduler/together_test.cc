// How well workers were used together.
#include "scheduler/together.h"

#include <gtest/gtest.h>

#include "scheduler/report.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

WorkerReport Worker(const std::string& id, const std::string& host, int64_t tiles, double model_s,
                    double last_s) {
  WorkerReport worker;
  worker.id = id;
  worker.host = host;
  worker.tiles = tiles;
  worker.model_s = model_s;
  worker.last_s = last_s;
  worker.stages = {{"read", {{"s", 1.0}, {"calls", 1}, {"bytes", 100}}},
                   {"write", {{"s", 1.0}, {"calls", 1}, {"bytes", 7}}}};
  worker.model = {{"from", host == "a" ? "file" : "broadcast"}, {"bytes", 1000}};
  return worker;
}

// Work is given out from second 2 to second 12.
RunResult RunOf(std::vector<WorkerReport> workers) {
  RunResult result;
  result.status = "done";
  result.wall_s = 13;
  result.first_lease_s = 2;
  result.last_publish_s = 12;
  result.workers = std::move(workers);
  return result;
}

TEST(Together, IsOneIfNobodyEverWaits) {
  const Json json =
      TogetherJson(RunOf({Worker("w0", "a", 100, 10, 12), Worker("w1", "a", 50, 10, 12)}));
  EXPECT_DOUBLE_EQ(json.at("efficiency"), 1);
  EXPECT_DOUBLE_EQ(json.at("worth"), 2);
  EXPECT_DOUBLE_EQ(json.at("imbalance"), 0);
  EXPECT_DOUBLE_EQ(json.at("tail_s"), 0);
  EXPECT_DOUBLE_EQ(json.at("window_s"), 10);
}

TEST(Together, CountsWaitingByTheRateOfEach) {
  // The second could have run 50 tiles in these ten seconds, and ran 25.
  const Json json =
      TogetherJson(RunOf({Worker("w0", "a", 100, 10, 12), Worker("w1", "b", 25, 5, 9)}));
  EXPECT_DOUBLE_EQ(json.at("efficiency"), 125.0 / 150);
  EXPECT_DOUBLE_EQ(json.at("worth"), 2 * 125.0 / 150);
  EXPECT_DOUBLE_EQ(json.at("imbalance"), 10 / 7.5 - 1);
  EXPECT_DOUBLE_EQ(json.at("tail_s"), 3);
}

TEST(Together, CountsAWorkerOnlyWhileItIsThere) {
  WorkerReport late = Worker("w1", "b", 40, 4, 12);
  late.joined_s = 8;
  WorkerReport dead = Worker("w2", "c", 30, 3, 5);
  dead.left_s = 5;
  const Json json = TogetherJson(RunOf({Worker("w0", "a", 100, 10, 12), late, dead}));
  EXPECT_DOUBLE_EQ(json.at("efficiency"), 1);
  EXPECT_DOUBLE_EQ(json.at("worth"), 1.7) << "3 devices, but for 17 of 30 seconds";
  EXPECT_DOUBLE_EQ(json.at("tail_s"), 0) << "who has gone is no tail";
}

TEST(Together, UnitsOfItemsThatAreNotDoneCountToo) {
  RunResult result = RunOf({Worker("w0", "a", 100, 10, 12), Worker("w1", "a", 100, 10, 12)});
  result.last_publish_s = 3;  // interrupted in the middle of a large item
  const Json json = TogetherJson(result);
  EXPECT_DOUBLE_EQ(json.at("window_s"), 10);
  EXPECT_DOUBLE_EQ(json.at("efficiency"), 1);
}

TEST(Together, AWorkerThatWasStartedAgainIsOne) {
  // What it had told of its model's time before it was killed was too little.
  WorkerReport killed = Worker("w1", "a", 50, 2, 7);
  killed.left_s = 7;
  WorkerReport again = Worker("w1", "a", 50, 5, 12);
  again.joined_s = 7;
  const Json json = TogetherJson(RunOf({Worker("w0", "a", 100, 10, 12), killed, again}));
  EXPECT_EQ(json.at("workers"), 2);
  EXPECT_TRUE(json.at("stragglers").empty());
}

TEST(Together, AWorkerThatDidNothingWasThereAllTheSame) {
  const Json json =
      TogetherJson(RunOf({Worker("w0", "a", 100, 10, 12), Worker("w1", "a", 0, 0, -1)}));
  EXPECT_DOUBLE_EQ(json.at("efficiency"), 0.5);
  EXPECT_TRUE(TogetherJson(RunOf({})).at("efficiency").is_null());
}

TEST(Together, NamesStragglersByTheRateOfTheirDevice) {
  const Json json = TogetherJson(RunOf(
      {Worker("w0", "a", 100, 10, 12), Worker("w1", "a", 79, 10, 12), Worker("w2", "b", 81, 10, 12),
       Worker("w3", "b", 100, 10, 12), Worker("w4", "b", 100, 10, 12)}));
  ASSERT_EQ(json.at("stragglers").size(), 1u);
  EXPECT_EQ(json.at("stragglers")[0].at("worker"), "w1");
  EXPECT_DOUBLE_EQ(json.at("stragglers")[0].at("tiles_per_s"), 7.9);
}

TEST(Together, AddsUpBytesAndHosts) {
  RunResult result = RunOf(
      {Worker("w0", "a", 10, 1, 12), Worker("w1", "a", 20, 2, 12), Worker("w2", "b", 30, 3, 12)});
  result.control_in_bytes = 11;
  result.control_out_bytes = 22;
  const Json json = TogetherJson(result);
  EXPECT_EQ(json.at("read_bytes"), 300);
  EXPECT_EQ(json.at("written_bytes"), 21);
  EXPECT_EQ(json.at("control_in_bytes"), 11);
  EXPECT_EQ(json.at("control_out_bytes"), 22);
  EXPECT_EQ(json.at("model_read_bytes"), 2000);
  EXPECT_EQ(json.at("model_broadcast_bytes"), 1000);
  ASSERT_EQ(json.at("hosts").size(), 2u);
  EXPECT_EQ(json.at("hosts")[0].at("name"), "a");
  EXPECT_EQ(json.at("hosts")[0].at("workers"), 2);
  EXPECT_EQ(json.at("hosts")[0].at("tiles"), 30);
  EXPECT_EQ(json.at("hosts")[1].at("read_bytes"), 100);
}

TEST(Together, ThePageShowsItForSeveralWorkers) {
  const auto page = [](const RunResult& result) {
    return ReportHtml(ProfileJson(result, {}), result, SummaryJson(result, {}, "w"));
  };
  ExpectWords(page(RunOf({Worker("w0", "a<b>", 100, 10, 12), Worker("w1", "c", 25, 5, 9),
                          Worker("w2", "c", 50, 10, 12)})),
              {"<h2>Together</h2>", "a&lt;b&gt;", "of the time at work", "model files passed on"});
  EXPECT_EQ(page(RunOf({Worker("w0", "a", 100, 10, 12)})).find("Together"), std::string::npos);
}

}  // namespace
}  // namespace tilery
