#include "scheduler/status.h"

#include <gtest/gtest.h>

#include "scheduler/ledger.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

Progress Running() {
  Progress p;
  p.state = "running";
  p.tiles = 100;
  p.tiles_done = 40;
  p.eta_s = 3.5;
  p.waiting = 1;
  p.leased = 2;
  p.done = 3;
  p.failed = 4;
  WorkerReport w;
  w.id = "w0";
  w.host = "h\xff";
  w.pid = 77;
  w.device = "cpu";
  w.state = "busy";
  p.workers = {w};
  return p;
}

TEST(Status, HasTheKeysOfItsContract) {
  const Json json = StatusJson(Running());
  EXPECT_EQ(json.at("state"), "running");
  EXPECT_EQ(json.at("units"), (Json{{"waiting", 1}, {"leased", 2}, {"done", 3}, {"failed", 4}}));
  EXPECT_EQ(json.at("tiles"), 100);
  EXPECT_EQ(json.at("tiles_done"), 40);
  EXPECT_EQ(json.at("eta_s"), 3.5);
  ASSERT_EQ(json.at("workers").size(), 1u);
  EXPECT_EQ(json.at("workers")[0].at("pid"), 77);
}

TEST(Status, IsRunningWhileTheLockIsHeldAndStoppedAfterADeath) {
  const TempFolder folder;
  WriteStatus(folder.path(), Running());
  {
    const WorkLock lock(folder.path());
    EXPECT_EQ(ReadStatus(folder.path()).at("state"), "running");
    EXPECT_EQ(ReadStatus(folder.path()).at("workers").size(), 1u);
  }
  const Json stopped = ReadStatus(folder.path());
  EXPECT_EQ(stopped.at("state"), "stopped");
  EXPECT_TRUE(stopped.at("workers").empty());
  EXPECT_EQ(stopped.at("tiles_done"), 40);
}

TEST(Status, TheEndOfARunStandsWithoutALock) {
  const TempFolder folder;
  Progress p = Running();
  p.state = "failed";
  p.eta_s = -1;
  WriteStatus(folder.path(), p);
  const Json json = ReadStatus(folder.path());
  EXPECT_EQ(json.at("state"), "failed");
  EXPECT_TRUE(json.at("workers").empty());
  EXPECT_TRUE(json.at("eta_s").is_null());
}

TEST(Status, WithoutAPlanThereIsNone) {
  const TempFolder folder;
  const std::string why = ErrorOf(Fault::kUsage, [&] { ReadStatus(folder.path()); });
  EXPECT_NE(why.find("plan"), std::string::npos) << why;
}

}  // namespace
}  // namespace tilery
