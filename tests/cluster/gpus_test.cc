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
