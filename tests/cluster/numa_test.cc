// Over made-up trees of /sys.
#include "cluster/numa.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

using Texts = std::vector<std::string>;

CpuSet Cpus(const std::string& text) { return CpuSetFrom(text); }

// "0-3 (4), ..." of each worker; "all" where it is not bound.
Texts Words(const std::vector<CpuShare>& shares) {
  Texts words;
  for (const CpuShare& share : shares) {
    words.push_back(share.cpus.empty() ? "all"
                                       : ToText(share.cpus) + "*" + std::to_string(share.threads));
  }
  return words;
}

class Numa : public testing::Test {
 protected:
  void Node(const std::string& name, const std::string& cpulist) {
    std::filesystem::create_directories(folder_ / "devices/system/node" / name);
    MakeFile(folder_ / "devices/system/node" / name / "cpulist", cpulist + "\n");
  }
  void Core(const std::string& siblings) {
    for (const int cpu : Cpus(siblings)) {
      const auto topology =
          folder_ / "devices/system/cpu" / ("cpu" + std::to_string(cpu)) / "topology";
      std::filesystem::create_directories(topology);
      MakeFile(topology / "thread_siblings_list", siblings + "\n");
    }
  }
  void Device(const std::string& pci, const std::string& node) {
    std::filesystem::create_directories(folder_ / "bus/pci/devices" / pci);
    MakeFile(folder_ / "bus/pci/devices" / pci / "numa_node", node + "\n");
  }
  std::vector<NumaNode> Read(const std::string& usable) {
    return ReadNumaNodes(folder_.path(), Cpus(usable));
  }
  Texts Share(const std::string& usable, const std::vector<int>& near) {
    return Words(ShareCpus(Read(usable), near));
  }
  // Two nodes with interleaved numbers.
  void TwoNodes() {
    Node("node0", "0-3,8-11");
    Node("node1", "4-7,12-15");
  }

  TempFolder folder_;
};

TEST(CpuSet, IsWrittenAndReadAsTheKernelWritesIt) {
  EXPECT_EQ(ToText({0, 1, 2, 3, 8, 10, 11}), "0-3,8,10-11");
  EXPECT_EQ(ToText({}), "");
  EXPECT_EQ(Cpus("0-3,8,10-11"), (CpuSet{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(Cpus("5,2,2-3"), (CpuSet{2, 3, 5}));
  for (const char* wrong : {"", "x", "1-", "-1", "0-3;5", "1--2", "0-99999999", "3-1"})
    EXPECT_EQ(Cpus(wrong), CpuSet{}) << wrong;
}

TEST(CpuSet, ThisProcessHasSome) { EXPECT_FALSE(UsableCpuList().empty()); }

TEST_F(Numa, NodesAreReadByNumberWithWhatMayBeUsedOfThem) {
  Node("node10", "4-7");
  Node("node2", "0-3");
  Node("node3", "");  // memory alone
  Node("possible", "8-9");
  const std::vector<NumaNode> nodes = Read("2-5");
  ASSERT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes[0].number, 2);
  EXPECT_EQ(nodes[0].cpus, (CpuSet{2, 3}));
  EXPECT_EQ(nodes[1].number, 10);
  EXPECT_EQ(nodes[1].cpus, (CpuSet{4, 5}));
}

TEST_F(Numa, NobodyIsBoundWithOneNodeOrATreeThatIsNotComplete) {
  EXPECT_TRUE(Read("0-3").empty()) << "no tree at all";
  Node("node0", "0-3");
  EXPECT_TRUE(Read("0-3").empty());
  EXPECT_EQ(Share("0-3", {kAnyNode, kAnyNode, 0}), (Texts{"all", "all", "all"}));
  std::filesystem::create_directories(folder_ / "devices/system/node/node1");
  EXPECT_TRUE(Read("0-7").empty()) << "a node without its list";
  Node("node2", "4-5");
  EXPECT_TRUE(Read("0-7").empty()) << "6 and 7 are nobody's";
  EXPECT_EQ(Read("0-5").size(), 2u);
  EXPECT_TRUE(Read("0-3").empty()) << "an affinity that leaves one node";
}

TEST_F(Numa, TheNodeOfADeviceIsReadIfItIsKnown) {
  Device("0000:17:00.0", "1");
  Device("0000:18:00.0", "-1");
  EXPECT_EQ(NumaNodeOf(folder_.path(), "0000:17:00.0"), 1);
  EXPECT_EQ(NumaNodeOf(folder_.path(), "0000:18:00.0"), kNoNode);
  EXPECT_EQ(NumaNodeOf(folder_.path(), "0000:19:00.0"), kNoNode);
  EXPECT_EQ(NumaNodeOf(folder_.path(), ""), kNoNode);
}

TEST_F(Numa, WorkersOfOneNodeShareOutItsCpus) {
  TwoNodes();
  EXPECT_EQ(Share("0-15", {0, 1, 0, 1}), (Texts{"0-3*4", "4-7*4", "8-11*4", "12-15*4"}));
  EXPECT_EQ(Share("0-15", {0, 0, 0, 1}), (Texts{"0-1*2", "2-3,8*3", "9-11*3", "4-7,12-15*8"}));
  EXPECT_EQ(Share("2-5", {0, 1}), (Texts{"2-3*2", "4-5*2"}));
}

TEST_F(Numa, CpusOfNodesThatNoWorkerIsNearAreLent) {
  TwoNodes();
  EXPECT_EQ(Share("0-15", {1}), Texts{"0-15*16"});
  EXPECT_EQ(Share("0-15", {0, 0}), (Texts{"0-7*8", "8-15*8"}));
  EXPECT_EQ(Share("0-4", {0, 0}), (Texts{"0-1*2", "2-3*2"})) << "too few to share out";
  // Where other workers may be, they are theirs.
  const auto nodes = Read("0-15");
  EXPECT_EQ(ToText(ShareCpus(nodes, {1}, false)[0].cpus), "4-7,12-15");
}

TEST_F(Numa, HyperthreadsOfACoreGoToOneWorker) {
  TwoNodes();
  for (const char* core : {"0,8", "1,9", "2,10", "3,11"}) Core(core);
  EXPECT_EQ(Share("0-15", {0, 0, 1, 1}), (Texts{"0-1,8-9*4", "2-3,10-11*4", "4-7*4", "12-15*4"}));
}

TEST_F(Numa, MoreWorkersThanCpusEachHaveTheNode) {
  TwoNodes();
  EXPECT_EQ(Share("2-4", {0, 0, 0, 1}), (Texts{"2-3*1", "2-3*1", "2-3*1", "4*1"}));
}

TEST_F(Numa, AWorkerWhoseNodeIsNotKnownOrNotOursIsNotBound) {
  TwoNodes();
  Node("node2", "16-19");
  EXPECT_EQ(Share("0-15", {kNoNode, 2, 0}), (Texts{"all", "all", "0-3,8-11*8"}));
}

TEST_F(Numa, WorkersOnCpusAreSpreadOverNodes) {
  TwoNodes();
  EXPECT_EQ(Share("0-15", {kAnyNode}), Texts{"0-15*16"});
  EXPECT_EQ(Share("0-15", {kAnyNode, kAnyNode}), (Texts{"0-3,8-11*8", "4-7,12-15*8"}));
  EXPECT_EQ(Share("0-15", std::vector<int>(3, kAnyNode)),
            (Texts{"0-3*4", "4-7,12-15*8", "8-11*4"}));
  // Six CPUs and two.
  EXPECT_EQ(Share("0-3,8-9,4-5", std::vector<int>(4, kAnyNode)),
            (Texts{"0-1*2", "4-5*2", "2-3*2", "8-9*2"}));
  Node("node2", "16-19");
  Node("node3", "20-23");
  EXPECT_EQ(Share("0-23", std::vector<int>(2, kAnyNode)), (Texts{"0-15*16", "16-23*8"}));
}

TEST(BindTo, BindsWhatIsStartedFromThenOnOrSaysWhyNot) {
  const CpuSet usable = UsableCpuList();
  std::thread([&] {  // a thread's affinity is its own
    ASSERT_EQ(BindTo({usable.back()}), 0);
    EXPECT_EQ(UsableCpuList(), CpuSet{usable.back()});
    std::thread([&] { EXPECT_EQ(UsableCpuList(), CpuSet{usable.back()}); }).join();
    EXPECT_EQ(BindTo({}), EINVAL);
    EXPECT_NE(BindTo({60000}), 0);
  })
      .join();
  EXPECT_EQ(UsableCpuList(), usable);
}

}  // namespace
}  // namespace tilery
