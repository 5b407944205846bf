#include "scheduler/worker_watch.h"

#include <gtest/gtest.h>

#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

using Death = Coordinator::Death;

const std::vector<WorkerLaunch> kTwo = {{"w0", "cuda:0", 1, "worker", {}},
                                        {"w1", "cuda:1", 1, "worker", {}}};

LocalLauncher::Event NoMemory(const std::string& worker, bool gone) {
  return {worker, "asked 2000 bytes, 1000 free", gone, false, true};
}

TEST(WorkerWatch, ADeviceIsRetiredWhileOthersGoOn) {
  WorkerWatch watch(kTwo, {"m.pt", 16, {}});
  const auto first = watch.Judge(NoMemory("w1", false));
  EXPECT_EQ(first.death, Death::kNoMemory);
  ExpectWords(first.say, {"worker w1", "asked 2000 bytes, 1000 free", "fresh process"});
  EXPECT_EQ(first.exhausted, "");
  EXPECT_TRUE(watch.retired().empty());
  const auto second = watch.Judge(NoMemory("w1", true));
  ExpectWords(second.say, {"cuda:1 is retired", "1 of 2 workers are left"});
  EXPECT_EQ(second.exhausted, "");
  EXPECT_EQ(watch.retired(), std::vector<std::string>{second.say});
}

TEST(WorkerWatch, WithNoDeviceLeftItNamesModelBatchBytesAndTheNextSmallerBatch) {
  WorkerWatch watch(kTwo, {"m.pt", 16, {}});
  watch.Judge(NoMemory("w0", true));
  const auto last = watch.Judge(NoMemory("w1", true));
  ExpectWords(last.exhausted,
              {"m.pt", "batches of 16", "w1: asked 2000 bytes, 1000 free", "--execution.batch 8,"});
  EXPECT_EQ(watch.retired().size(), 2u);
  EXPECT_EQ(watch.refusal(), "") << "interrupted: with more memory it goes on";
}

TEST(WorkerWatch, ABoundOfTheJobIsNamedAndBatchOneHasNoSmallerOne) {
  WorkerWatch watch({kTwo[0]}, {"m.pt", 1, 12345});
  const std::string why = watch.Judge(NoMemory("w0", true)).exhausted;
  ExpectWords(why, {"execution.gpu_memory (12345 bytes)", "smaller tile"});
  EXPECT_EQ(why.find("execution.batch"), std::string::npos) << why;
}

TEST(WorkerWatch, ARefusalCountsOnlyIfNoWorkerEndedForWantOfMemory) {
  const LocalLauncher::Event refused0{"w0", "m.pt has 5 channels", true, true, false};
  const LocalLauncher::Event refused1{"w1", "m.pt has 5 channels", true, true, false};
  WorkerWatch all(kTwo, {"m.pt", 4, {}});
  ExpectWords(all.Judge(refused0).say, {"5 channels"});
  EXPECT_EQ(all.refusal(), "") << "one is left";
  const auto last = all.Judge(refused1);
  EXPECT_EQ(last.say, "") << "the end says it once more";
  EXPECT_EQ(last.exhausted, "m.pt has 5 channels");
  EXPECT_EQ(all.refusal(), "m.pt has 5 channels");

  WorkerWatch mixed(kTwo, {"m.pt", 4, {}});
  mixed.Judge(NoMemory("w1", true));
  ExpectWords(mixed.Judge(refused0).exhausted, {"w1: asked 2000 bytes", "--execution.batch 2"});
  EXPECT_EQ(mixed.refusal(), "");
}

TEST(WorkerWatch, WhileHostsAreStillToComeNobodyIsTheLast) {
  const LocalLauncher::Event gone{"w0", "its host has left", true, false, false};
  WorkerWatch ranks({}, {"m.pt", 4, {}});
  ranks.Expect(1);
  ranks.Add("w0", "cpu");
  EXPECT_EQ(ranks.Judge(gone).exhausted, "") << "one rank has yet to join";
  ranks.Expect(0);
  ranks.Add("w1", "cpu");
  EXPECT_EQ(ranks.Judge({"w1", "it died", true, false, false}).exhausted, "it died");

  WorkerWatch open({}, {"m.pt", 4, {}});
  open.Expect(-1);
  open.Add("w0", "cpu");
  EXPECT_EQ(open.Judge(gone).exhausted, "") << "another may come at any time";
  open.Add("w1", "cpu");
  EXPECT_EQ(open.Judge({"w1", "m.pt has 5 channels", true, true, false}).exhausted,
            "m.pt has 5 channels")
      << "whoever comes would find the same";
  EXPECT_EQ(open.refusal(), "m.pt has 5 channels");
}

TEST(WorkerWatch, OtherDeathsAreToldAsTheyAre) {
  WorkerWatch watch(kTwo, {"m.pt", 4, {}});
  const auto verdict =
      watch.Judge({"w0", "its process ended by signal 9 (Killed)", false, false, false});
  EXPECT_EQ(verdict.death, Death::kUnknown);
  EXPECT_EQ(verdict.say, "worker w0: its process ended by signal 9 (Killed)");
  EXPECT_EQ(verdict.exhausted, "");
}

}  // namespace
}  // namespace tilery
