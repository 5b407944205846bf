// Models that run only compiled, on the CPU; on GPUs: gpu_choice_test.cc.
#include "scheduler/compiled_model.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "io/file.h"
#include "scheduler/gpu_choice.h"
#include "scheduler/numerics.h"
#include "scheduler/python_finder.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/plan_inputs.h"
#include "tests/scheduler/zip_file.h"

namespace tilery {
namespace {

class CompiledModelTest : public testing::Test {
 protected:
  CompiledModelTest() {
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    setenv("TILERY_PYTHON", "/none/python", 1);
    std::filesystem::create_directory(folder_ / "work");
    device_.device_kind = "cpu/avx2/Some CPU";
    device_.torch = "2.11";
    prepared_.resolved.dims = 2;
    prepared_.resolved.plan.params.resize(1);
    prepared_.resolved.plan.params[0].tiling.tile = {1, 64, 32};
    facts_ = {{"gpu", "cpu"},
              {"capability", "avx2/Some CPU"},
              {"torch", BuiltWithTorch()},
              {"tile", {64, 32}},
              {"batch", 4},
              {"precision", "fp32"},
              {"layout", "nhwc"},
              {"channels_in", 3},
              {"channels_out", 3},
              {"scale", 1}};
    Give();
  }
  ~CompiledModelTest() override {
    unsetenv("XDG_CACHE_HOME");
    unsetenv("TILERY_PYTHON");
  }
  // The package of facts_ as the model.
  void Give() {
    const std::filesystem::path path = folder_ / "p.pt2";
    MakeZip(path, {{"p/data/aotinductor/model/x.so", "x"},
                   {"p/extra/tilery_package.json", facts_.dump()}});
    prepared_.model = ReadModelFile(path);
  }
  Numerics Choose() {
    return ChooseForCpu(job_, prepared_, device_, folder_ / "work",
                        [&](const std::string& line) { said_ += line + "\n"; });
  }
  std::string Refusal() {
    return ErrorOf(Fault::kUsage, [&] { Choose(); });
  }

  TempFolder folder_;
  Job job_ = JobOf();
  Prepared prepared_;
  ProbeAnswer device_;
  Json facts_;
  std::string said_;
};

TEST_F(CompiledModelTest, APackageRunsInWhatItWasCompiledForAndIsKeptInTheWorkFolder) {
  const Numerics numerics = Choose();
  EXPECT_EQ(numerics.batch, 4);
  EXPECT_EQ(numerics.layout, "nhwc");
  EXPECT_EQ(numerics.precision, "fp32");
  EXPECT_EQ(numerics.device_kind, device_.device_kind);
  EXPECT_EQ(numerics.package, HashFile(folder_ / "p.pt2"));
  EXPECT_EQ(HashFile(PackageFile(folder_ / "work", numerics.package)), numerics.package);
}

TEST_F(CompiledModelTest, APackageForSomethingElseIsRefusedWithBothNames) {
  const auto refused = [&](const char* key, const Json& value) {
    const Json before = facts_[key];
    facts_[key] = value;
    Give();
    const std::string message = Refusal();
    facts_[key] = before;
    return message;
  };
  ExpectWords(refused("gpu", "NVIDIA L4"), {"p.pt2", "NVIDIA L4 (avx2/Some CPU)", "cpu ("});
  ExpectWords(refused("capability", "avx512/Another"),
              {"cpu (avx512/Another)", "cpu (avx2/Some CPU)", "tilery compile"});
  ExpectWords(refused("torch", "2.1.0"), {"torch 2.1.0", BuiltWithTorch()});
  ExpectWords(refused("tile", {32, 32}), {"tile of 32x32", "64x32"});
  ExpectWords(refused("precision", "bf16"), {"precision bf16", "fp32"});
  Give();
  job_.execution.batch = 2;
  ExpectWords(Refusal(), {"batches of 4", "wanted is 2"});
}

TEST_F(CompiledModelTest, AnExportedProgramIsRefusedWithoutPythonAndGoesOnFromTheWorkFolder) {
  MakeZip(folder_ / "m.pt2", {{"m/models/model.json", "x"}});
  const std::filesystem::path package = folder_ / "p.pt2";
  prepared_.model = ReadModelFile(folder_ / "m.pt2");
  ExpectWords(Refusal(), {"m.pt2", "exported program", "/none/python", "TILERY_PYTHON",
                          "TorchScript", "tools/export_model.py"});

  Numerics begun;  // by an earlier run, which had a Python
  begun.batch = 8;
  begun.device_kind = device_.device_kind;
  begun.torch = device_.torch;
  begun.package = HashFile(package);
  KeepPackage(package, begun.package, folder_ / "work");
  KeepNumerics(
      DecideNumerics(job_, prepared_.resolved, prepared_.model.Key(), begun, folder_ / "work"),
      folder_ / "work");
  EXPECT_EQ(Choose().package, begun.package);
  // Another batch, model or library, or a damaged package, is another job.
  job_.execution.batch = 4;
  Refusal();
  job_.execution.batch.reset();
  prepared_.model.libraries = {{"/l.so", "hash"}};
  Refusal();
  prepared_.model.libraries.clear();
  MakeFile(PackageFile(folder_ / "work", begun.package), "damaged");
  Refusal();
}

TEST_F(CompiledModelTest, WhatForbidsCompilingIsNamed) {
  const auto refusal = [&] {
    return ErrorOf(Fault::kUsage, [&] { CheckMayCompile(job_, prepared_.model); });
  };
  job_.model.compile = "off";
  CheckMayCompile(job_, prepared_.model);  // it is compiled already
  prepared_.model.kind = "exported";
  ExpectWords(refusal(), {"model.compile is off", "TorchScript"});
  job_.model.compile = "auto";
  job_.execution.numerics_file = "/n.json";
  ExpectWords(refusal(), {"--numerics /n.json", "work folder"});
  prepared_.model.kind = "torchscript";
  CheckMayCompile(job_, prepared_.model);
}

TEST_F(CompiledModelTest, ATorchScriptModelRunsAsItIs) {
  prepared_.model.kind = "torchscript";
  const Numerics numerics = Choose();
  EXPECT_EQ(numerics.batch, 0) << "to be decided";
  EXPECT_EQ(numerics.package, "");
}

TEST(UsualBatch, HoldsTwoMillionVoxels) {
  EXPECT_EQ(UsualBatch({256, 256}, 2, false), 32);
  EXPECT_EQ(UsualBatch({96}, 3, false), 2);
  EXPECT_EQ(UsualBatch({16, 16}, 2, false), 8192);
  EXPECT_EQ(UsualBatch({16, 16}, 2, true), 8);
  EXPECT_EQ(UsualBatch({4096, 4096}, 2, false), 1);
}

}  // namespace
}  // namespace tilery
