// Who is bound to which CPUs. Over a made-up /sys, in which the first CPU that this process may use
// is one node and all others are another.
#include "scheduler/launch_plan.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cluster/numa.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

class LaunchPlanTest : public testing::Test {
 protected:
  LaunchPlanTest() : usable_(UsableCpuList()) {
    setenv("TILERY_WORKER", "/w", 1);
    for (int n = 0; n < 2; ++n) {
      DeviceSeat seat;
      seat.device = "cuda:" + std::to_string(n);
      seat.pci = "0000:1" + std::to_string(n) + ":00.0";
      Put("bus/pci/devices/" + seat.pci, "numa_node", std::to_string(1 - n));
      seats_.push_back(seat);
    }
  }
  ~LaunchPlanTest() override { unsetenv("TILERY_WORKER"); }
  void SetUp() override {
    if (usable_.size() < 2) GTEST_SKIP() << "one CPU can't be shared out";
    const CpuSet rest(usable_.begin() + 1, usable_.end());
    Put("devices/system/node/node0", "cpulist", ToText({usable_[0]}));
    Put("devices/system/node/node1", "cpulist", ToText(rest));
    first_ = ToText({usable_[0]});
    rest_ = ToText(rest);
    more_ = static_cast<int>(rest.size());
  }

  void Put(const std::string& folder, const std::string& name, const std::string& line) {
    std::filesystem::create_directories(folder_ / folder);
    MakeFile(folder_ / folder / name, line + "\n");
  }
  // Of each worker its CPUs and threads, which are `threads` before.
  using Bound = std::vector<std::pair<std::string, int>>;
  Bound Bind(const std::vector<std::string>& devices, int threads, const CpuSharing& sharing) {
    std::vector<WorkerLaunch> launches;
    for (const std::string& device : devices) launches.push_back({"w", device, threads, {}, {}});
    BindToNodes(launches, seats_, sharing, folder_.path());
    Bound bound;
    for (const WorkerLaunch& launch : launches)
      bound.emplace_back(ToText(launch.cpus), launch.threads);
    return bound;
  }

  const CpuSet usable_;
  TempFolder folder_;
  std::vector<DeviceSeat> seats_;
  std::string first_, rest_;
  int more_ = 0;  // CPUs of the second node
};

TEST_F(LaunchPlanTest, WorkersHaveTheCpusNearTheirGpus) {
  EXPECT_EQ(Bind({"cuda:0", "cuda:1"}, 9, {}), (Bound{{rest_, more_}, {first_, 1}}));
  EXPECT_EQ(Bind({"cuda:1"}, 9, {}), (Bound{{ToText(usable_), more_ + 1}}));
  seats_[0].pci.clear();
  EXPECT_EQ(Bind({"cuda:0", "cuda:1"}, 9, {}), (Bound{{"", 9}, {first_, 1}}));
}

TEST_F(LaunchPlanTest, ThreadsThatTheJobHasFixedStay) {
  const CpuSharing fixed{true};
  EXPECT_EQ(Bind({"cuda:1", "cuda:0"}, 1, fixed), (Bound{{first_, 1}, {rest_, 1}}));
  EXPECT_EQ(Bind({"cuda:1", "cuda:0"}, more_ + 1, fixed), (Bound{{"", more_ + 1}, {"", more_ + 1}}))
      << "more than a node has CPUs need more than a node";
}

TEST_F(LaunchPlanTest, WorkersOnCpusAreSpread) {
  EXPECT_EQ(Bind({"cpu"}, 9, {}), (Bound{{ToText(usable_), more_ + 1}}));
  EXPECT_EQ(Bind({"cpu", "cpu"}, 9, {}), (Bound{{first_, 1}, {rest_, more_}}));
}

TEST_F(LaunchPlanTest, RanksOnCpusShareOutOneHost) {
  EXPECT_EQ(Bind({"cpu"}, 9, {false, 2, 0}), (Bound{{first_, 1}}));
  EXPECT_EQ(Bind({"cpu"}, 9, {false, 2, 1}), (Bound{{rest_, more_}}));
}

TEST_F(LaunchPlanTest, ARankWithAGpuHasTheNodeAndItsUsualThreads) {
  EXPECT_EQ(Bind({"cuda:0"}, 1, {false, 2, 0}), (Bound{{rest_, 1}}));
  EXPECT_EQ(Bind({"cuda:0"}, more_ + 5, {false, 2, 1}), (Bound{{rest_, more_}}));
}

TEST_F(LaunchPlanTest, WithOneNodeNothingChanges) {
  Put("devices/system/node/node0", "cpulist", ToText(usable_));
  std::filesystem::remove_all(folder_ / "devices/system/node/node1");
  EXPECT_EQ(Bind({"cuda:0", "cuda:1"}, 9, {}), (Bound{{"", 9}, {"", 9}}));
  EXPECT_EQ(Bind({"cpu"}, 9, {false, 2, 1}), (Bound{{"", 9}}));
}

}  // namespace
}  // namespace tilery
