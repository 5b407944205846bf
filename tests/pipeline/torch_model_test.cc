#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "io/error.h"
#include "pipeline/model.h"
#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

using namespace tilery::testing;

std::vector<float> Input(int64_t count) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * 37 % 101) / 101;
  return values;
}

std::vector<float> Values(const ModelOutput& output) {
  int64_t count = 1;
  for (int64_t extent : output.shape) count *= extent;
  return {output.data, output.data + count};
}

TEST(TorchModel, TheFirstRunAndTheFiftiethGiveTheSameBytes) {
  for (const char* name : {"conv", "unet2d"}) {
    const auto model = LoadTorchScript(ModelPath(name));
    const std::vector<int64_t> shape{2, 3, 32, 48};
    auto input = Input(2 * 3 * 32 * 48);
    const auto first = Values(model->Run(input.data(), shape));
    for (int run = 2; run <= 50; ++run) {
      auto again = Input(2 * 3 * 32 * 48);
      ASSERT_EQ(Values(model->Run(again.data(), shape)), first) << name << " run " << run;
    }
    const auto fresh = LoadTorchScript(ModelPath(name));
    EXPECT_EQ(Values(fresh->Run(input.data(), shape)), first) << name << " loaded again";
  }
}

TEST(TorchModel, ThePreparedFormGivesTheAnswersOfTheLoadedOneAndKeepsItsBytes) {
  for (const char* name : {"conv", "unet2d", "slow"}) {
    const std::vector<int64_t> shape{2, 3, 32, 48};
    const auto plain = LoadTorchScript(ModelPath(name)),
               prepared = LoadTorchScript(ModelPath(name));
    const auto trial = Values(prepared->Prepare(shape));
    auto input = TrialValues(2 * 3 * 32 * 48);
    const auto want = Values(plain->Run(input.data(), shape));
    ASSERT_EQ(trial.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(trial[i], want[i], 1e-4) << name;
    for (int run = 1; run <= 50; ++run) {
      auto again = TrialValues(2 * 3 * 32 * 48);
      ASSERT_EQ(Values(prepared->Run(again.data(), shape)), trial) << name << " run " << run;
    }
    const auto fresh = LoadTorchScript(ModelPath(name));
    EXPECT_EQ(Values(fresh->Prepare(shape)), trial) << name << " loaded again";
  }
}

TEST(TorchModel, PreparingForAShapeThatTheModelRefusesIsItsError) {
  const auto model = LoadTorchScript(ModelPath("needs8"));
  EXPECT_THROW(model->Prepare({1, 3, 9, 8}), Error);
}

TEST(TorchModel, ThreadsThatShareAModelGetTheBytesOfOneThread) {
  const auto model = LoadTorchScript(ModelPath("unet2d"));
  const std::vector<int64_t> shape{1, 3, 64, 64};
  model->Prepare(shape);
  auto input = Input(3 * 64 * 64);
  const auto want = Values(model->Run(input.data(), shape));
  std::vector<std::thread> threads;
  std::atomic<int> equal{0};
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int run = 0; run < 10; ++run) {
        auto own = Input(3 * 64 * 64);
        if (Values(model->Run(own.data(), shape)) == want) ++equal;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(equal, 30);
}

TEST(TorchModel, AnAnswerThatIsTheInputItselfIsCopied) {
  const auto model = LoadTorchScript(ModelPath("identity"));
  auto input = Input(3 * 8 * 8);
  const auto want = input;
  const ModelOutput output = model->Run(input.data(), {1, 3, 8, 8});
  std::fill(input.begin(), input.end(), -1.0f);
  EXPECT_EQ(Values(output), want);
}

TEST(TorchModel, RunsInEvaluationModeWithF32Weights) {
  const auto model = LoadTorchScript(ModelPath("train"));
  auto input = Input(3 * 8 * 8);
  const auto got = Values(model->Run(input.data(), {1, 3, 8, 8}));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], input[i] * 0.5f);
}

TEST(TorchModel, WhatTheModelSaysIsTheMessage) {
  const auto model = LoadTorchScript(ModelPath("needs8"));
  auto input = Input(3 * 9 * 8);
  try {
    model->Run(input.data(), {1, 3, 9, 8});
    FAIL() << "a shape of 9 went through";
  } catch (const Error& e) {
    const std::string what = e.what();
    EXPECT_EQ(e.fault(), Fault::kModel);
    EXPECT_NE(what.find("the shape is no multiple of 8"), std::string::npos) << what;
    EXPECT_NE(what.find("needs8.pt"), std::string::npos) << what;
    EXPECT_EQ(what.find('\n'), std::string::npos) << what;
  }
}

TEST(TorchModel, RefusesWhatReturnsNoSingleTensor) {
  const auto model = LoadTorchScript(ModelPath("pair"));
  auto input = Input(3 * 8 * 8);
  try {
    model->Run(input.data(), {1, 3, 8, 8});
    FAIL() << "a tuple of two went through";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("Tuple"), std::string::npos) << e.what();
  }
}

TEST(TorchModel, RefusesFilesThatAreNoModelByName) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "no-model.pt";
  std::FILE* file = std::fopen(path.c_str(), "w");
  ASSERT_NE(file, nullptr);
  std::fputs("this is text", file);
  std::fclose(file);
  try {
    LoadTorchScript(path);
    FAIL() << "text was loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::kModel);
    EXPECT_NE(std::string(e.what()).find("no-model.pt"), std::string::npos) << e.what();
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tilery
