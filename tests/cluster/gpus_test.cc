// With the fake of NVML (fake_nvml.cc) in front of whatever this machine has.
#include "cluster/gpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

std::string Uuid(int n) {
  return "GPU-0000000" + std::to_string(n) + "-1111-2222-3333-444444444444";
}

std::vector<Gpu> Three() {
  std::vector<Gpu> gpus(3);
  for (int n = 0; n < 3; ++n) {
    gpus[n].number = n;
    gpus[n].uuid = Uuid(n);
    gpus[n].name = n == 1 ? "NVIDIA L40S" : "NVIDIA H100 PCIe";
  }
  return gpus;
}

// A whole card, and one that is divided in three.
std::vector<Gpu> Divided() {
  std::vector<Gpu> gpus(4);
  gpus[0].uuid = Uuid(0);
  gpus[0].name = "NVIDIA H100 PCIe";
  for (int part = 0; part < 3; ++part) {
    Gpu& gpu = gpus[static_cast<size_t>(part) + 1];
    gpu.number = 1;
    gpu.part = part;
    gpu.uuid = "MIG-" + Uuid(part).substr(4);
    gpu.name = "NVIDIA H100 PCIe MIG " + std::string(part == 2 ? "2g.20gb" : "1g.10gb");
  }
  return gpus;
}

std::vector<std::string> Words(const std::vector<Gpu>& gpus) {
  std::vector<std::string> words;
  for (const Gpu& gpu : gpus) words.push_back(DeviceWord(gpu));
  return words;
}

std::vector<int> Numbers(const std::vector<Gpu>& gpus) {
  std::vector<int> numbers;
  for (const Gpu& gpu : gpus) numbers.push_back(gpu.number);
  return numbers;
}

class GpusTest : public testing::Test {
 protected:
  ~GpusTest() override { unsetenv("TILERY_FAKE_GPUS"); }
  static Gpus With(const std::string& cards) {
    setenv("TILERY_FAKE_GPUS", cards.c_str(), 1);
    return FindGpus();
  }
  static bool Says(const std::vector<std::string>& lines, const std::string& text) {
    return std::any_of(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    });
  }
};

TEST_F(GpusTest, CardsAreListedAsTheDriverCountsThem) {
  const Gpus gpus =
      With("NVIDIA H100 PCIe|" + Uuid(0) + "|9.0|80|0;NVIDIA L40S|" + Uuid(1) + "|8.9|48|0");
  EXPECT_EQ(gpus.driver, "580.1");
  ASSERT_EQ(gpus.usable.size(), 2u);
  EXPECT_EQ(gpus.usable[0].name, "NVIDIA H100 PCIe");
  EXPECT_EQ(gpus.usable[1].uuid, Uuid(1));
  EXPECT_EQ(gpus.usable[1].number, 1);
  EXPECT_EQ(gpus.usable[1].major, 8);
  EXPECT_EQ(gpus.usable[1].minor, 9);
  EXPECT_EQ(gpus.usable[0].memory, int64_t{80} << 30);
  EXPECT_EQ(gpus.usable[0].free, int64_t{79} << 30);
}

TEST_F(GpusTest, ALostCardIsNamedWithItsReasonAndThoseOfOthersAreNot) {
  const Gpus gpus =
      With("A|" + Uuid(0) + "|9.0|80|15;B|" + Uuid(1) + "|9.0|80|0;C|" + Uuid(2) + "|9.0|80|4");
  EXPECT_EQ(Numbers(gpus.usable), std::vector<int>{1});
  EXPECT_TRUE(Says(gpus.unusable, "GPU 0 (driver 580.1): GPU is lost"));
  EXPECT_FALSE(Says(gpus.unusable, "GPU 2"));
}

TEST_F(GpusTest, ACardThatIsDividedStandsForItsParts) {
  const Gpus gpus = With("A100|" + Uuid(0) + "|8.0|40|0|1g.5gb/MIG-a/5,6,3g.20gb/MIG-b/20,6;A100|" +
                         Uuid(1) + "|8.0|40|0|off");
  EXPECT_TRUE(gpus.unusable.empty());
  ASSERT_EQ(gpus.usable.size(), 3u);
  EXPECT_EQ(Words(gpus.usable), (std::vector<std::string>{"cuda:0:0", "cuda:0:2", "cuda:1"}));
  const Gpu& part = gpus.usable[1];
  EXPECT_EQ(part.name, "A100 MIG 3g.20gb");
  EXPECT_EQ(part.uuid, "MIG-b");
  EXPECT_EQ(part.major, 8);
  EXPECT_EQ(part.memory, int64_t{20} << 30);
  EXPECT_EQ(part.free, int64_t{19} << 30);
  EXPECT_EQ(part.pci, "0000:10:00.0") << "that of its card";
  EXPECT_EQ(gpus.usable[2].name, "A100");
  EXPECT_EQ(gpus.usable[2].pci, "0000:11:00.0");
}

TEST_F(GpusTest, ACardInMigModeWithoutPartsIsNamedAndPartsOfOthersAreNot) {
  const Gpus empty = With("A100|" + Uuid(0) + "|8.0|40|0|6,6,6");
  EXPECT_TRUE(empty.usable.empty());
  EXPECT_TRUE(
      Says(empty.unusable, "GPU 0 (driver 580.1): it is in MIG mode and has no MIG device"));
  const Gpus others = With("A100|" + Uuid(0) + "|8.0|40|0|4,1g.5gb/MIG-a/5,15");
  EXPECT_EQ(Words(others.usable), std::vector<std::string>{"cuda:0:1"});
  EXPECT_TRUE(Says(others.unusable, "its MIG device 2: GPU is lost"));
  EXPECT_FALSE(Says(others.unusable, "MIG device 0"));
}

TEST_F(GpusTest, WithoutADriverThereIsNone) {
  const Gpus gpus = With("!9");
  EXPECT_TRUE(gpus.usable.empty());
  EXPECT_TRUE(gpus.driver.empty());
}

TEST(SelectGpus, ByNumberUuidNameAndAll) {
  const auto numbers = [](const std::vector<std::string>& words) {
    return Numbers(SelectGpus(Three(), words));
  };
  EXPECT_EQ(numbers({"cuda"}), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(numbers({"cuda:2", "cuda:0"}), (std::vector<int>{2, 0}));
  EXPECT_EQ(numbers({"nvidia h100 pcie"}), (std::vector<int>{0, 2}));
  EXPECT_EQ(numbers({Uuid(1)}), (std::vector<int>{1}));
  EXPECT_EQ(numbers({"GPU-00000002", "cuda:2"}), (std::vector<int>{2}));
  for (const char* wrong : {"cuda:3", "cuda:", "cuda:-1", "GPU-9", "H100", "gpu"}) {
    const std::string what = ErrorOf(Fault::kUsage, [&] {
      SelectGpus(Three(), {"cuda:0", wrong});
    });
    EXPECT_NE(what.find(wrong), std::string::npos) << what;
    EXPECT_NE(what.find("cuda:1 (NVIDIA L40S, " + Uuid(1) + ")"), std::string::npos) << what;
  }
  EXPECT_NE(ErrorOf(Fault::kUsage, [] { SelectGpus({}, {"cuda"}); }).find("no GPU"),
            std::string::npos);
}

TEST(SelectGpus, PartsByNumberUuidAndName) {
  using List = std::vector<std::string>;
  const auto chosen = [](const List& words) { return Words(SelectGpus(Divided(), words)); };
  EXPECT_EQ(chosen({"cuda"}), (List{"cuda:0", "cuda:1:0", "cuda:1:1", "cuda:1:2"}));
  EXPECT_EQ(chosen({"cuda:1"}), (List{"cuda:1:0", "cuda:1:1", "cuda:1:2"}));
  EXPECT_EQ(chosen({"cuda:1:2", "cuda:1:0"}), (List{"cuda:1:2", "cuda:1:0"}));
  EXPECT_EQ(chosen({"MIG-00000001"}), List{"cuda:1:1"});
  EXPECT_EQ(chosen({"nvidia h100 pcie mig 1g.10gb"}), (List{"cuda:1:0", "cuda:1:1"}));
  EXPECT_EQ(chosen({"nvidia h100 pcie"}), List{"cuda:0"});
  for (const char* wrong : {"cuda:1:3", "cuda:0:0", "cuda:1:", "cuda::1", "cuda:1:1:1", "MIG-9"}) {
    const std::string what = ErrorOf(Fault::kUsage, [&] { SelectGpus(Divided(), {wrong}); });
    EXPECT_NE(what.find(wrong), std::string::npos) << what;
    EXPECT_NE(what.find("cuda:1:2 (NVIDIA H100 PCIe MIG 2g.20gb, MIG-00000002"), std::string::npos)
        << what;
  }
}

TEST(VisibleGpus, ANumberMeansTheFirstPartOfACardThatIsDivided) {
  using List = std::vector<std::string>;
  const auto visible = [](const char* value) { return Words(VisibleGpus(Divided(), value)); };
  EXPECT_EQ(visible(nullptr), (List{"cuda:0", "cuda:1:0", "cuda:1:1", "cuda:1:2"}));
  EXPECT_EQ(visible("1,0"), (List{"cuda:1:0", "cuda:0"}));
  EXPECT_EQ(visible("MIG-00000002,MIG-00000001-1111"), (List{"cuda:1:2", "cuda:1:1"}));
  EXPECT_EQ(visible("MIG-00000001,MIG-9,0"), List{"cuda:1:1"});
}

TEST(VisibleGpus, AsCudaReadsTheVariable) {
  const auto numbers = [](const char* value) { return Numbers(VisibleGpus(Three(), value)); };
  EXPECT_EQ(numbers(nullptr), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(numbers("2, 0"), (std::vector<int>{2, 0}));
  EXPECT_EQ(numbers(""), std::vector<int>{});
  EXPECT_EQ(numbers("-1"), std::vector<int>{});
  EXPECT_EQ(numbers("1,7,0"), std::vector<int>{1});
  EXPECT_EQ(numbers("0,0,GPU-00000000"), std::vector<int>{0});
  const std::string what = ErrorOf(Fault::kUsage, [] { VisibleGpus(Three(), "MIG-5f1b"); });
  EXPECT_NE(what.find("MIG-5f1b"), std::string::npos) << what;
  EXPECT_NE(what.find("cuda:1 (NVIDIA L40S"), std::string::npos) << what;
  EXPECT_TRUE(VisibleGpus({}, "0").empty());
  EXPECT_EQ(numbers("GPU-00000001,GPU-00000000"), (std::vector<int>{1, 0}));
}

}  // namespace
}  // namespace tilery
