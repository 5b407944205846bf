// Tuning on a real card. Skipped where there is no GPU.
#include "pipeline/cuda/gpu_bench.h"

#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "io/error.h"
#include "pipeline/model.h"
#include "tests/pipeline/engine_support.h"
#include "tests/pipeline/gpu_model_support.h"

namespace tilery::cuda {
namespace {

using namespace tilery::testing;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GpuTuning : public NeedsGpu {};

TuneRequest RequestFor(const std::string& model) {
  TuneRequest request;
  request.model = ModelPath(model);
  request.tile = {1, 96, 128};
  request.seconds = 4;
  return request;
}

GpuModelOptions OptionsOf(const TuneRequest& request, const ModelForm& form) {
  GpuModelOptions options;
  options.model = request.model;
  options.tile = options.out_tile = request.tile;
  options.batch = form.batch;
  options.precision = form.precision;
  options.layout = form.layout;
  options.graph = form.graph;
  return options;
}

bool IsPowerOfTwo(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

TEST_F(GpuTuning, TheChosenFormLoadsAndAnswersAsItWasTuned) {
  for (const char* name : {"unet2d", "wide_traced"}) {
    for (const char* precision : {"fp32", "fp16"}) {
      TuneRequest request = RequestFor(name);
      request.precisions = {precision};
      const TuneResult result = TuneOnGpu(request, 0);
      EXPECT_EQ(result.form.precision, precision);
      EXPECT_TRUE(IsPowerOfTwo(result.form.batch)) << result.form.batch;
      EXPECT_GT(result.tiles_per_s, 0);
      EXPECT_GT(result.bytes, 0);
      EXPECT_LE(result.bytes, result.memory);
      EXPECT_EQ(result.form, Choose(result.trials)->form);
      for (const char* layout : {"nchw", "nhwc"}) {
        EXPECT_TRUE(std::any_of(result.trials.begin(), result.trials.end(), [&](const Trial& t) {
          return t.form.layout == layout && t.end == Trial::End::kRan;
        })) << layout;
      }
      const GpuModelOptions options = OptionsOf(request, result.form);
      std::vector<std::byte> first;
      for (int load = 0; load < 2; ++load) {
        const auto model = LoadGpuModel(options);
        if (result.form.graph) {
          EXPECT_EQ(model->how(), result.how) << name;
        }
        const std::vector<std::byte> bytes = Bytes(model->Run(0), options.batch, model->stream());
        if (load == 0) first = bytes;
        EXPECT_TRUE(bytes == first) << name << ": the same bytes whenever it is loaded";
      }
    }
  }
}

TEST_F(GpuTuning, SlotsThatGiveOtherBytesAreNotUsed) {
  for (const char* layout : {"nchw", "nhwc"}) {
    for (const bool graph : {true, false}) {
      GpuBench other(RequestFor("other_slot"), 0), relative(RequestFor("relative"), 0);
      EXPECT_EQ(other.Measure({"fp16", 1, layout, -1, graph}).slots, "all");
      EXPECT_EQ(other.Measure({"fp16", 2, layout, -1, graph}).slots, "0");
      EXPECT_EQ(other.Measure({"fp16", 8, layout, -1, graph}).slots, "0-3,5-7");
      EXPECT_EQ(other.Measure({"fp32", 12, layout, -1, graph}).slots, "0-5,7-11");
      EXPECT_EQ(relative.Measure({"fp32", 8, layout, -1, graph}).slots, "0");
    }
  }
  GpuBench identity(RequestFor("identity"), 0);
  EXPECT_EQ(identity.Measure({"fp16", 8, "nchw", -1, true}).slots, "all");
  TuneRequest request = RequestFor("other_slot");
  request.batch = 4;
  const TuneResult result = TuneOnGpu(request, 0);
  EXPECT_EQ(result.slots, "0-1,3");
  ASSERT_EQ(result.notes.size(), 1U);
  EXPECT_THAT(result.notes[0], HasSubstr("of a batch of 4 the slots 0-1,3 are used"));
}

TEST_F(GpuTuning, ABudgetOfMemoryBoundsTheBatch) {
  TuneRequest request = RequestFor("unet2d");
  request.layout = "nchw";
  GpuBench open(request, 0);
  const Trial four = open.Measure({"fp32", 4, "nchw", -1, true});
  const Trial sixteen = open.Measure({"fp32", 16, "nchw", -1, true});
  ASSERT_EQ(sixteen.end, Trial::End::kRan) << sixteen.how;
  ASSERT_GT(sixteen.bytes, four.bytes);

  request.reserve = 1 << 20;
  request.memory = request.reserve + (four.bytes + sixteen.bytes) / 2;
  const TuneResult result = TuneOnGpu(request, 0);
  EXPECT_EQ(result.memory, request.memory - request.reserve);
  EXPECT_LT(result.form.batch, 16);
  EXPECT_LE(result.bytes, result.memory);
  for (const Trial& trial : result.trials) EXPECT_LE(trial.bytes, result.memory);
  // As many lanes as fit at batch 4 get no batch for which there is memory for fewer.
  request.lanes = 2;
  const TuneResult lanes = TuneOnGpu(request, 0);
  EXPECT_LE(lanes.form.batch, result.form.batch);
  EXPECT_LE(lanes.bytes, lanes.memory);
}

TEST_F(GpuTuning, WhatDoesNotFitAtBatchOneIsRefusedByNameWithItsNumbers) {
  const auto what = [](const TuneRequest& request, Fault fault) {
    try {
      const TuneResult result = TuneOnGpu(request, 0);
      ADD_FAILURE() << "it runs at batch " << result.form.batch;
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), fault) << e.what();
      return std::string(e.what());
    }
    return std::string();
  };
  TuneRequest glutton = RequestFor("glutton");
  EXPECT_THAT(what(glutton, Fault::kModel),
              AllOf(HasSubstr("glutton.pt"), HasSubstr("asked 1099511627776 bytes, "),
                    HasSubstr("even at batch 1"), HasSubstr("models may take")));
  TuneRequest tiny = RequestFor("unet2d");
  tiny.reserve = 1 << 20;
  tiny.memory = tiny.reserve + (2 << 20);
  EXPECT_THAT(what(tiny, Fault::kModel),
              AllOf(HasSubstr("unet2d.pt"), HasSubstr("models may take 2097152 bytes")));
  tiny.memory = tiny.reserve;
  EXPECT_THAT(what(tiny, Fault::kUsage), HasSubstr("execution.gpu_memory"));
  // The bounds are gone with the tuning.
  const GpuModelOptions next = Options("unet2d");
  EXPECT_LE(Difference(Answer(*LoadGpuModel(next), next, 0), OnCpu(next)), 1e-4);
}

TEST_F(GpuTuning, ErrorsAreNoneForTheReferenceItselfAndGrowAsMantissasShrink) {
  const TuneRequest request = RequestFor("wide_traced");
  GpuBench bench(request, 0);
  const OutputError same = bench.ErrorOf({"fp32", 1, "nchw", -1, false});
  EXPECT_EQ(same.max, 0);
  EXPECT_EQ(same.mean, 0);
  EXPECT_EQ(same.tiles, 8);
  EXPECT_EQ(same.unknown, "");
  EXPECT_FALSE(same.real_input);
  EXPECT_LT(same.lowest, same.highest);
  const double range = std::max(std::abs(same.lowest), std::abs(same.highest));

  const OutputError fp32 = bench.ErrorOf({"fp32", 4, "nhwc", -1, true});
  const OutputError tf32 = bench.ErrorOf({"tf32", 4, "nhwc", -1, true});
  const OutputError fp16 = bench.ErrorOf({"fp16", 4, "nhwc", -1, true});
  const OutputError bf16 = bench.ErrorOf({"bf16", 4, "nhwc", -1, true});
  EXPECT_LE(fp32.max, 1e-5);
  EXPECT_GT(fp16.max, 0);
  EXPECT_LE(fp16.max, 4e-3 * range);
  EXPECT_LE(fp16.mean, fp16.max);
  EXPECT_LT(tf32.mean, fp16.mean);
  EXPECT_LT(fp16.mean, bf16.mean);
  EXPECT_LE(bf16.max, 3e-2 * range);
  for (const OutputError& error : {fp32, tf32, fp16, bf16}) {
    EXPECT_EQ(error.nonfinite, 0);
    EXPECT_EQ(error.lowest, same.lowest) << "of the same reference";
  }
}

TEST_F(GpuTuning, ErrorsAreThoseOnTheInputThatIsGiven) {
  TuneRequest request = RequestFor("identity");
  const int64_t values = 3 * Product(request.tile);
  request.tiles.assign(static_cast<size_t>(3 * values), 0.5f);
  request.tiles[0] = 1 + 0x1p-11f;  // half-way between two values of f16: 1 is even
  request.tiles[static_cast<size_t>(2 * values)] = 70000;  // beyond f16
  GpuBench bench(request, 0);
  const OutputError error = bench.ErrorOf({"fp16", 2, "nhwc", -1, true});
  EXPECT_TRUE(error.real_input);
  EXPECT_EQ(error.tiles, 3);
  EXPECT_EQ(error.max, 0x1p-11);
  EXPECT_EQ(error.nonfinite, 1);
  EXPECT_EQ(error.lowest, 0.5);
  EXPECT_EQ(error.highest, 70000);
  request.precisions = {"fp16", "fp32"};
  EXPECT_EQ(TuneOnGpu(request, 0).form.precision, "fp32");
  request.tiles.pop_back();
  EXPECT_THROW(TuneOnGpu(request, 0), Error);
}

TEST_F(GpuTuning, AnErrorBeyondTheLimitFallsBackUntilItIsMet) {
  TuneRequest request = RequestFor("wide_traced");
  request.precisions = {"fp16", "tf32", "fp32"};
  request.seconds = 2;
  const TuneResult free = TuneOnGpu(request, 0);
  EXPECT_EQ(free.form.precision, "fp16");
  for (const std::string& note : free.notes) EXPECT_THAT(note, HasSubstr("slots"));
  request.max_error = 1e-6 + 1e-5;
  const TuneResult strict = TuneOnGpu(request, 0);
  EXPECT_LE(strict.error.max, *request.max_error);
  EXPECT_NE(strict.form.precision, "fp16");
  EXPECT_FALSE(strict.notes.empty());
}

TEST_F(GpuTuning, ABatchThatIsGivenIsTaken) {
  TuneRequest request = RequestFor("conv");
  request.batch = 6;
  const TuneResult result = TuneOnGpu(request, 0);
  EXPECT_EQ(result.form.batch, 6);
  for (const Trial& trial : result.trials) EXPECT_EQ(trial.form.batch, 6);
}

TEST_F(GpuTuning, AModelThatLooksAtValuesIsTunedEager) {
  const TuneResult result = TuneOnGpu(RequestFor("throws_on_bright"), 0);
  EXPECT_THAT(result.how, AllOf(HasSubstr("eager: "), HasSubstr("captur")));
}

TEST_F(GpuTuning, PackagesThatCantBeUsedAreNamedAndPassedOver) {
  TuneRequest request = RequestFor("conv");
  request.tile = {1, 32, 48};
  request.seconds = 1;
  const std::filesystem::path folder = request.model.parent_path();
  request.packages = {folder / "other_gpu.pt2", folder / "nameless.pt2"};
  const TuneResult result = TuneOnGpu(request, 0);
  EXPECT_EQ(result.form.package, -1);
  std::vector<std::string> said;
  for (const Trial& trial : result.trials) {
    if (trial.form.package < 0) continue;
    EXPECT_EQ(trial.end, Trial::End::kFailed);
    said.push_back(trial.how);
  }
  EXPECT_THAT(said, ::testing::ElementsAre(HasSubstr("Imaginary 9000"),
                                           HasSubstr("does not say what it was compiled for")));
}

TEST_F(GpuTuning, AnEagerRunWithoutMemoryIsTransientAndTheNextOneIsWhole) {
  GpuModelOptions options = Options("unet2d");
  options.tile = options.out_tile = {1, 256, 256};
  options.batch = 8;
  options.graph = false;
  const auto model = LoadGpuModel(options);
  const std::vector<float> want = Answer(*model, options, 0);
  FreeCaches();
  LimitMemory(0, MemoryOf(0).reserved);
  const int64_t refusals = MemoryOf(0).refusals;
  try {
    model->Run(1);
    ADD_FAILURE() << "it ran without memory";
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::kTransient);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("batch of 8"), HasSubstr("asked ")));
  }
  EXPECT_GT(MemoryOf(0).refusals, refusals);
  LimitMemory(0, 0);
  EXPECT_EQ(Answer(*model, options, 1), want);
}

TEST_F(GpuTuning, TheEnvironmentMustNotContradictThePrecision) {
  GpuModelOptions options = Options("conv");
  setenv("NVIDIA_TF32_OVERRIDE", "0", 1);
  options.precision = "tf32";
  EXPECT_THAT(WhatOf(options, Fault::kUsage), HasSubstr("NVIDIA_TF32_OVERRIDE=0"));
  setenv("NVIDIA_TF32_OVERRIDE", "1", 1);
  options.precision = "fp32";
  EXPECT_THAT(WhatOf(options, Fault::kUsage), HasSubstr("NVIDIA_TF32_OVERRIDE=1"));
  unsetenv("NVIDIA_TF32_OVERRIDE");
}

// Needs no GPU.
TEST(GpuPackages, SayWhatTheyWereCompiledFor) {
  const std::filesystem::path folder = ModelPath("conv").parent_path();
  const PackageFacts facts = FactsOf(folder / "other_gpu.pt2");
  EXPECT_EQ(facts.batch, 2);
  EXPECT_EQ(facts.precision, "fp32");
  EXPECT_EQ(facts.layout, "nchw");
  for (const char* name : {"nameless.pt2", "missing.pt2", "conv.pt"}) {
    try {
      FactsOf(folder / name);
      ADD_FAILURE() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::kModel);
      EXPECT_THAT(e.what(), HasSubstr(name));
    }
  }
}

}  // namespace
}  // namespace tilery::cuda
