// The search for a model's fastest form, over a card that is made up.
#include "pipeline/cuda/tuning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "io/error.h"

namespace tilery::cuda {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Rates that rise to `peak` as batches grow: half of it at batch `half`.
double Rising(double peak, double half, int64_t batch) {
  return peak * static_cast<double>(batch) / (static_cast<double>(batch) + half);
}

struct FakeCard final : Bench {
  std::function<double(const ModelForm&)> rate;  // tiles/s; 0: no memory; below: it fails
  std::function<std::string(const ModelForm&)> how = [](const ModelForm& form) {
    return form.graph ? "CUDA graph" : "eager: CUDA graphs are switched off";
  };
  std::function<std::string(const ModelForm&)> slots = [](const ModelForm&) { return "all"; };
  std::function<OutputError(const ModelForm&)> error = [](const ModelForm&) {
    OutputError none;
    none.tiles = 1;
    return none;
  };
  std::vector<std::variant<ModelForm, std::string>> packages;
  double cost = 0.1;  // seconds of a trial
  double noise = 0;   // share of a rate
  std::mt19937 random{1};
  double clock = 0;

  Trial Measure(const ModelForm& form) override {
    clock += cost;
    Trial trial;
    trial.form = form;
    trial.seconds = cost;
    const double wanted = rate(form);
    if (wanted > 0) {
      std::uniform_real_distribution<double> off(-noise, noise);
      trial.tiles_per_s = wanted * (1 + off(random));
      trial.how = how(form);
      trial.slots = slots(form);
    } else {
      trial.end = wanted == 0 ? Trial::End::kNoMemory : Trial::End::kFailed;
      trial.how =
          (wanted == 0 ? "not enough at batch " : "broken at batch ") + std::to_string(form.batch);
    }
    return trial;
  }
  OutputError ErrorOf(const ModelForm& form) override { return error(form); }
  std::variant<ModelForm, std::string> FormOf(int package) override {
    return packages.at(static_cast<size_t>(package));
  }
  double seconds() const override { return clock; }
};

OutputError Off(double max) {
  OutputError error;
  error.tiles = 1;
  error.max = max;
  return error;
}

int64_t LargestTried(const TuneResult& result) {
  int64_t largest = 0;
  for (const Trial& trial : result.trials) largest = std::max(largest, trial.form.batch);
  return largest;
}

TEST(Tuning, TakesTheSmallestBatchWithinThreePercentOfTheBest) {
  FakeCard card;
  card.rate = [](const ModelForm& form) {
    return Rising(100, 1, form.batch) * (form.layout == "nhwc" ? 1.4 : 1) * (form.graph ? 1 : 0.8);
  };
  const TuneResult result = Tune({}, card);
  EXPECT_EQ(result.form.layout, "nhwc");
  EXPECT_TRUE(result.form.graph);
  EXPECT_EQ(result.how, "CUDA graph");
  // The last doubling that brings 3 % is the one to 32 (32/33 : 16/17 is 1.03); 64 and 128 are
  // flat. 128/129 of the peak is the best, 32/33 of it the first within 3 %.
  EXPECT_EQ(LargestTried(result), 128);
  EXPECT_EQ(result.form.batch, 32);
  EXPECT_DOUBLE_EQ(result.tiles_per_s, 140.0 * 32 / 33);
}

TEST(Tuning, TellsWhichSlotsOfTheChosenBatchAreUsed) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return Rising(100, 1, form.batch); };
  card.slots = [](const ModelForm& form) { return form.batch == 32 ? "0-30" : "all"; };
  const TuneResult result = Tune({}, card);
  EXPECT_EQ(result.form.batch, 32);
  EXPECT_EQ(result.slots, "0-30");
  ASSERT_THAT(result.notes, SizeIs(1));
  EXPECT_THAT(result.notes[0], HasSubstr("of a batch of 32 the slots 0-30 are used"));
}

TEST(Tuning, NoiseBelowTheMarginsChangesNeitherLayoutNorGraph) {
  const auto alike = [](const ModelForm& form) {
    return Rising(1000, 0.05, form.batch);  // 97 % is far below batch 4, all ways alike
  };
  for (unsigned seed = 0; seed < 200; ++seed) {
    FakeCard card;
    card.rate = alike;
    card.noise = 0.004;
    card.random.seed(seed);
    const ModelForm form = Tune({}, card).form;
    EXPECT_EQ(form.layout, "nchw") << seed;
    EXPECT_TRUE(form.graph) << seed;
    EXPECT_EQ(form.batch, 2) << seed;  // 0.976 of the peak; batch 1 has 0.952
  }
}

TEST(Tuning, WantOfMemoryEndsTheDoublingAndIsNoError) {
  FakeCard card;
  card.rate = [](const ModelForm& form) {
    if (form.layout == "nhwc") return form.batch > 2 ? 0 : Rising(90, 8, form.batch);
    return form.batch > 8 ? 0 : Rising(100, 8, form.batch);
  };
  const TuneResult result = Tune({}, card);
  EXPECT_EQ(result.form.batch, 8);
  EXPECT_EQ(result.form.layout, "nchw");
  const auto tried = [&](const std::string& layout, int64_t batch) {
    return std::count_if(result.trials.begin(), result.trials.end(), [&](const Trial& trial) {
      return trial.form.layout == layout && trial.form.batch == batch;
    });
  };
  EXPECT_EQ(tried("nhwc", 4), 0) << "the layout had lost twice";
  EXPECT_EQ(tried("nchw", 16), 1);
  EXPECT_EQ(tried("nchw", 32), 0);
  EXPECT_THAT(result.notes, IsEmpty());
}

TEST(Tuning, ALayoutFarBehindIsGivenUpAtOnceButNotForItsFirstBatch) {
  const auto tried = [](double share) {
    FakeCard card;
    card.rate = [&](const ModelForm& form) {
      // At batch 1 a card waits for launches, and nothing can be said.
      const double rate = Rising(100, 4, form.batch);
      return form.layout == "nchw" ? rate : rate * (form.batch == 1 ? 0.5 : share);
    };
    const TuneResult result = Tune({}, card);
    return std::count_if(result.trials.begin(), result.trials.end(),
                         [](const Trial& trial) { return trial.form.layout == "nhwc"; });
  };
  EXPECT_EQ(tried(0.7), 2);
  EXPECT_GT(tried(1.2), 4);
}

TEST(Tuning, AModelThatTakesOneBatchOnlyGetsIt) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return form.batch == 1 ? 7.0 : -1.0; };
  const TuneResult result = Tune({}, card);
  EXPECT_EQ(result.form.batch, 1);
  EXPECT_EQ(result.form.layout, "nchw");
  EXPECT_EQ(LargestTried(result), 2);
}

TEST(Tuning, AModelThatCantBeCapturedIsMeasuredOnceAndSaysWhy) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return Rising(100, 2, form.batch); };
  card.how = [](const ModelForm&) { return "eager: it looks at a value"; };
  const TuneResult result = Tune({}, card);
  EXPECT_EQ(result.how, "eager: it looks at a value");
  for (const Trial& trial : result.trials) EXPECT_TRUE(trial.form.graph);
}

TEST(Tuning, EagerRunsAreTakenWhereTheyAreFasterOrAloneFit) {
  FakeCard faster;
  faster.rate = [](const ModelForm& form) {
    return Rising(100, 2, form.batch) * (form.graph ? 1 : 1.2);
  };
  const TuneResult fast = Tune({}, faster);
  EXPECT_FALSE(fast.form.graph);
  EXPECT_THAT(fast.how, HasSubstr("eager: faster than its graph"));

  FakeCard narrow;
  narrow.rate = [](const ModelForm& form) { return form.graph || form.batch > 1 ? 0.0 : 5.0; };
  const TuneResult small = Tune({}, narrow);
  EXPECT_FALSE(small.form.graph);
  EXPECT_EQ(small.form.batch, 1);
  EXPECT_THAT(small.how, HasSubstr("eager: with a graph it does not fit: not enough at batch 1"));
}

TEST(Tuning, AModelThatDoesNotFitAtBatchOneFailsWithItsNumbers) {
  FakeCard card;
  card.rate = [](const ModelForm&) { return 0.0; };
  try {
    Tune({}, card);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::kModel);
    EXPECT_STREQ(e.what(), "not enough at batch 1");
  }
}

TEST(Tuning, AGivenBatchIsProvenAndItsLayoutStillMeasured) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return form.layout == "nhwc" ? 20.0 : 10.0; };
  TuneRequest request;
  request.batch = 12;
  const TuneResult result = Tune(request, card);
  EXPECT_EQ(result.form.batch, 12);
  EXPECT_EQ(result.form.layout, "nhwc");
  for (const Trial& trial : result.trials) EXPECT_EQ(trial.form.batch, 12);
  request.layout = "nchw";
  FakeCard again;
  again.rate = card.rate;
  EXPECT_EQ(Tune(request, again).form.layout, "nchw");
  again.rate = [](const ModelForm&) { return 0.0; };
  EXPECT_THROW(Tune(request, again), Error);
}

TEST(Tuning, StaysWithinItsTimeAndMeasuresSomethingWhateverThatIs) {
  FakeCard card;
  card.cost = 1;
  card.rate = [](const ModelForm& form) { return 100.0 * static_cast<double>(form.batch); };
  const TuneResult result = Tune({}, card);
  EXPECT_LE(card.clock, 10);
  EXPECT_GE(card.clock, 7) << "time that is there is used";
  EXPECT_EQ(result.form.batch, LargestTried(result));
  FakeCard slow;
  slow.rate = card.rate;
  slow.cost = 100;
  EXPECT_THAT(Tune({}, slow).trials, SizeIs(1));
}

TEST(Tuning, BatchesThatTakeLongerThanAWorkerMayWaitAreNotTried) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return 2.0 + 0.2 * static_cast<double>(form.batch); };
  // 1 tile takes 1/2.2 s, 2 tiles 2/2.4 s.
  EXPECT_EQ(LargestTried(Tune({}, card)), 2);
}

TEST(Tuning, PackagesAreMeasuredAtWhatTheyWereCompiledForAndWinByRate) {
  FakeCard card;
  card.rate = [](const ModelForm& form) {
    if (form.package == 2) return -1.0;
    return form.package >= 0 ? 300.0 : Rising(100, 2, form.batch);
  };
  card.packages = {std::string("it says nothing"), ModelForm{"fp32", 16, "nhwc", 1, true},
                   ModelForm{"fp32", 8, "nchw", 2, true}, ModelForm{"fp16", 4, "nchw", 3, true}};
  TuneRequest request;
  request.packages = {"a", "b", "c", "d"};
  const TuneResult result = Tune(request, card);
  EXPECT_EQ(result.form, (ModelForm{"fp32", 16, "nhwc", 1, true}));
  std::vector<std::string> said;
  for (const Trial& trial : result.trials) {
    if (trial.form.package >= 0) said.push_back(trial.how);
  }
  EXPECT_THAT(said, ElementsAre("it says nothing", "CUDA graph", "broken at batch 8"));
  request.batch = 4;
  FakeCard other;
  other.rate = card.rate;
  other.packages = card.packages;
  const TuneResult given = Tune(request, other);
  EXPECT_EQ(given.form.package, -1);
  EXPECT_EQ(given.trials[given.trials.size() - 2].how,
            "it was compiled for batch 16, and wanted is 4");
}

TEST(Tuning, WithoutTheModelAsItIsOnlyPackagesAreMeasured) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return form.layout == "nhwc" ? 200.0 : 100.0; };
  card.packages = {ModelForm{"fp16", 8, "nchw", 0, true}, ModelForm{"fp16", 8, "nhwc", 1, true}};
  card.error = [](const ModelForm&) {
    OutputError unknown;
    unknown.unknown = "nothing to compare with";
    return unknown;
  };
  TuneRequest request;
  request.compiled_only = true;
  request.packages = {"/a.pt2", "/b.pt2"};
  request.precisions = {"fp16", "fp32"};
  request.batch = 8;
  const TuneResult result = Tune(request, card);
  EXPECT_EQ(result.form, std::get<ModelForm>(card.packages[1]));
  EXPECT_THAT(result.trials, SizeIs(2));
  EXPECT_EQ(result.error.unknown, "nothing to compare with");

  card.rate = [](const ModelForm&) { return 0.0; };
  request.precisions = {"fp16"};
  try {
    Tune(request, card);
    ADD_FAILURE() << "neither of them fits";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("not enough at batch 8"));
  }
}

TEST(Tuning, APrecisionTooFarFromFp32FallsBackToTheNextAndSaysSo) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return Rising(100, 2, form.batch); };
  card.error = [](const ModelForm& form) {
    return Off(form.precision == "fp16" ? 0.1 : form.precision == "tf32" ? 0.02 : 0);
  };
  TuneRequest request;
  request.precisions = {"fp16", "tf32", "fp32"};
  EXPECT_EQ(Tune(request, card).form.precision, "fp16");
  request.max_error = 0.05;
  FakeCard second = card;
  second.clock = 0;
  const TuneResult tf32 = Tune(request, second);
  EXPECT_EQ(tf32.form.precision, "tf32");
  EXPECT_DOUBLE_EQ(tf32.error.max, 0.02);
  EXPECT_THAT(tf32.notes,
              ElementsAre("outputs in fp16 differ from those in fp32 by up to 0.1, more "
                          "than model.max_error 0.05: tf32 is used"));
  for (const Trial& trial : tf32.trials) EXPECT_EQ(trial.form.precision, "tf32");
  request.max_error = 0.001;
  FakeCard third = card;
  third.clock = 0;
  const TuneResult fp32 = Tune(request, third);
  EXPECT_EQ(fp32.form.precision, "fp32");
  EXPECT_THAT(fp32.notes, SizeIs(2));
}

TEST(Tuning, OutputsThatAreFiniteInFp32OnlyFallBackWithoutALimitToo) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return Rising(100, 2, form.batch); };
  card.error = [](const ModelForm& form) {
    OutputError error;
    error.nonfinite = form.precision == "fp16" ? 3 : 0;
    return error;
  };
  TuneRequest request;
  request.precisions = {"fp16", "tf32"};
  const TuneResult result = Tune(request, card);
  EXPECT_EQ(result.form.precision, "tf32");
  EXPECT_THAT(result.notes,
              ElementsAre(AllOf(HasSubstr("not finite 3 times"), HasSubstr("tf32 is used"))));
}

TEST(Tuning, AModelThatDoesNotRunInAPrecisionFallsBackWithItsWords) {
  FakeCard card;
  card.rate = [](const ModelForm& form) {
    return form.precision == "fp16" ? -1 : Rising(100, 2, form.batch);
  };
  card.error = [](const ModelForm& form) -> OutputError {
    if (form.precision == "fp16") throw Error(Fault::kModel, "no such operator for Half");
    return Off(0);
  };
  TuneRequest request;
  request.precisions = {"fp16", "fp32"};
  const TuneResult result = Tune(request, card);
  EXPECT_EQ(result.form.precision, "fp32");
  EXPECT_THAT(result.notes,
              ElementsAre("fp16 can't be used: no such operator for Half; fp32 is used"));
  request.precisions = {"fp16"};
  EXPECT_THROW(Tune(request, card), Error);
}

TEST(Tuning, APackageTooFarFromFp32IsPassedOverForTheModelAsItIs) {
  FakeCard card;
  card.rate = [](const ModelForm& form) {
    return form.package >= 0 ? 500.0 : Rising(100, 2, form.batch);
  };
  card.error = [](const ModelForm& form) { return Off(form.package >= 0 ? 1 : 0.001); };
  card.packages = {ModelForm{"fp16", 4, "nchw", 0, true}};
  TuneRequest request;
  request.precisions = {"fp16", "fp32"};
  request.packages = {"fast.pt2"};
  request.max_error = 0.01;
  const TuneResult result = Tune(request, card);
  EXPECT_EQ(result.form.package, -1);
  EXPECT_EQ(result.form.precision, "fp16");
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("package fast.pt2 is not used")));
}

TEST(Tuning, TheLastPrecisionIsTakenHoweverFarAndThatIsSaid) {
  FakeCard card;
  card.rate = [](const ModelForm& form) { return Rising(100, 2, form.batch); };
  card.error = [](const ModelForm&) { return Off(1e-6); };
  TuneRequest request;
  request.max_error = 1e-9;
  const TuneResult result = Tune(request, card);
  EXPECT_EQ(result.form.precision, "fp32");
  EXPECT_THAT(result.notes, ElementsAre(HasSubstr("there is no wider precision")));
}

TEST(Tuning, RequestsForNothingAreRefused) {
  FakeCard card;
  TuneRequest none;
  none.precisions.clear();
  EXPECT_THROW(Tune(none, card), Error);
  TuneRequest layout;
  layout.layout = "hwc";
  EXPECT_THROW(Tune(layout, card), Error);
}

TEST(ErrorSum, CountsWhatIsFiniteInTheReferenceOnly) {
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> wanted{-1, 2, inf, 0.5f}, got{-1.25f, 2, 7, inf};
  ErrorSum sum;
  sum.Add(wanted.data(), got.data(), 2);
  sum.Add(wanted.data() + 2, got.data() + 2, 2);
  const OutputError error = sum.error();
  EXPECT_EQ(error.max, 0.25);
  EXPECT_EQ(error.mean, 0.125);
  EXPECT_EQ(error.lowest, -1);
  EXPECT_EQ(error.highest, 2);
  EXPECT_EQ(error.nonfinite, 1);
  EXPECT_EQ(ErrorSum().error().mean, 0);
}

}  // namespace
}  // namespace tilery::cuda
