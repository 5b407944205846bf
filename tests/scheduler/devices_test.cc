// With the fake of NVML (tests/cluster/fake_nvml.cc).
#include "scheduler/devices.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/io/expect_error.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

using Words = std::vector<std::string>;

class DevicesTest : public testing::Test {
 protected:
  DevicesTest() {
    setenv("TILERY_WORKER", "/w", 1);
    setenv("TILERY_WORKER_CUDA", "/g", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
  }
  ~DevicesTest() override {
    for (const char* name :
         {"TILERY_WORKER", "TILERY_WORKER_CUDA", "CUDA_VISIBLE_DEVICES", "TILERY_FAKE_GPUS"})
      unsetenv(name);
  }
  static void Cards(const std::string& cards) { setenv("TILERY_FAKE_GPUS", cards.c_str(), 1); }
  DeviceChoice Choose(const Words& asked) {
    job_.execution.devices = asked;
    return ChooseDevices(job_);
  }
  Words Seats(const Words& asked) {
    Words seats;
    for (const DeviceSeat& seat : Choose(asked).seats) seats.push_back(seat.device);
    return seats;
  }

  const std::string two_ = "H100|GPU-a|9.0|80|0;H100|GPU-b|9.0|80|0";
  Job job_;
};

TEST_F(DevicesTest, WithoutGpusAutoIsTheCpuAndSaysSo) {
  Cards("");
  const DeviceChoice choice = Choose({});
  EXPECT_FALSE(choice.gpu());
  ASSERT_EQ(choice.seats.size(), 1u);
  EXPECT_EQ(choice.seats[0].executable, "/w");
  EXPECT_TRUE(choice.seats[0].environment.empty());
  ExpectWords(choice.words, {"CPU", "no GPU"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose({"cuda:0"}); }), {"cuda:0", "no GPU"});
}

TEST_F(DevicesTest, AutoTakesEveryGpuAndShowsEachWorkerItsOwn) {
  Cards(two_);
  const DeviceChoice choice = Choose({});
  ASSERT_EQ(choice.seats.size(), 2u);
  EXPECT_TRUE(choice.gpu());
  EXPECT_EQ(choice.seats[1].device, "cuda:1");
  EXPECT_EQ(choice.seats[1].executable, "/g");
  using Environment = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(choice.seats[1].environment, (Environment{{"CUDA_VISIBLE_DEVICES", "GPU-b"}}));
  EXPECT_EQ(choice.words, "H100 (cuda:0, cuda:1)");
  EXPECT_EQ(choice.seats[0].EnvironmentFor("tf32"), choice.seats[0].environment);
  EXPECT_EQ(choice.seats[0].EnvironmentFor("fp32"),
            (Environment{{"CUDA_VISIBLE_DEVICES", "GPU-a"}, {"NVIDIA_TF32_OVERRIDE", "0"}}));
  EXPECT_TRUE(CpuSeat().EnvironmentFor("fp32").empty());
}

TEST_F(DevicesTest, WhatIsNamedIsTakenOrRefused) {
  Cards(two_);
  EXPECT_EQ(Seats({"cuda:1"}), Words{"cuda:1"});
  EXPECT_EQ(Seats({"GPU-b", "cuda:0"}), (Words{"cuda:1", "cuda:0"}));
  EXPECT_EQ(Seats({"cpu"}), Words{"cpu"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose({"cpu", "cuda:0"}); }), {"not both"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose({"cuda:2"}); }), {"cuda:2", "cuda:1", "cpu"});
}

TEST_F(DevicesTest, HiddenCardsAreNotUsed) {
  Cards(two_);
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  EXPECT_EQ(Seats({}), Words{"cuda:1"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose({"cuda:0"}); }), {"cuda:0", "cuda:1"});
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  EXPECT_EQ(Seats({}), Words{"cpu"});
}

TEST_F(DevicesTest, CardsOfAnotherKindAreLeftOutWithAWordOrRefusedIfNamed) {
  Cards("H100|GPU-a|9.0|80|0;L40S|GPU-b|8.9|48|0");
  const DeviceChoice choice = Choose({});
  EXPECT_EQ(choice.seats.size(), 1u);
  ASSERT_EQ(choice.warnings.size(), 1u);
  ExpectWords(choice.warnings[0], {"left out", "cuda:1", "L40S"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose({"cuda:0", "cuda:1"}); }), {"H100", "L40S"});
}

TEST_F(DevicesTest, PartsOfOneSizeRunTogetherEachInAWorkerOfItsOwn) {
  Cards("A100|GPU-a|8.0|40|0|1g.5gb/MIG-a/5,1g.5gb/MIG-b/5;A100|GPU-b|8.0|40|0|1g.5gb/MIG-c/5");
  const DeviceChoice choice = Choose({});
  ASSERT_EQ(choice.seats.size(), 3u);
  EXPECT_TRUE(choice.warnings.empty());
  EXPECT_EQ(choice.words, "A100 MIG 1g.5gb (cuda:0:0, cuda:0:1, cuda:1:0)");
  using Environment = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ(choice.seats[1].environment, (Environment{{"CUDA_VISIBLE_DEVICES", "MIG-b"}}));
  EXPECT_EQ(choice.seats[1].memory, int64_t{5} << 30);
  EXPECT_EQ(choice.seats[1].capability, "8.0");
  EXPECT_EQ(Seats({"cuda:0"}), (Words{"cuda:0:0", "cuda:0:1"}));
  EXPECT_EQ(Seats({"MIG-c", "cuda:0:1"}), (Words{"cuda:1:0", "cuda:0:1"}));
  setenv("CUDA_VISIBLE_DEVICES", "MIG-b,1", 1);
  EXPECT_EQ(Seats({}), (Words{"cuda:0:1", "cuda:1:0"}));
}

TEST_F(DevicesTest, PartsOfOtherSizesAreOfAnotherKind) {
  Cards("A100|GPU-a|8.0|40|0|1g.5gb/MIG-a/5,3g.20gb/MIG-b/20,1g.5gb/MIG-c/5");
  const DeviceChoice choice = Choose({});
  EXPECT_EQ(choice.seats.size(), 2u);
  ASSERT_EQ(choice.warnings.size(), 1u);
  ExpectWords(choice.warnings[0], {"left out", "cuda:0:1 (A100 MIG 3g.20gb)", "A100 MIG 1g.5gb"});
  for (const Words& named : {Words{"cuda:0"}, Words{"cuda:0:0", "cuda:0:1"}})
    ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose(named); }), {"3g.20gb", "1g.5gb", "two kinds"});
  EXPECT_EQ(Seats({"cuda:0:0", "cuda:0:2"}), (Words{"cuda:0:0", "cuda:0:2"}));
}

TEST_F(DevicesTest, ACardInMigModeWithoutPartsIsNoReasonToRunOnTheCpu) {
  Cards("A100|GPU-a|8.0|40|0|6,6");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose({}); }),
              {"GPU 0", "in MIG mode", "nvidia-smi mig", "--devices cpu"});
}

TEST_F(DevicesTest, ACardThatCanNotBeUsedIsNeverPassedOverInSilence) {
  Cards("H100|GPU-a|9.0|80|15");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose({}); }),
              {"GPU 0", "580.1", "GPU is lost", "--devices cpu"});
  EXPECT_EQ(Seats({"cpu"}), Words{"cpu"});
  Cards("H100|GPU-a|9.0|80|15;H100|GPU-b|9.0|80|0");
  const DeviceChoice choice = Choose({});
  EXPECT_EQ(choice.seats.size(), 1u);
  ASSERT_EQ(choice.warnings.size(), 1u);
  ExpectWords(choice.warnings[0], {"left out", "GPU is lost"});
}

TEST_F(DevicesTest, ABuildWithoutCudaSaysSo) {
  Cards(two_);
  unsetenv("TILERY_WORKER_CUDA");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose({}); }), {"tilery-worker-cuda", "--devices cpu"});
}

}  // namespace
}  // namespace tilery
