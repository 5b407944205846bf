// With a GPU's worker of a few shell lines, whose answers lie in files.
#include "scheduler/gpu_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "io/file.h"
#include "scheduler/python_finder.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/plan_inputs.h"
#include "tests/scheduler/zip_file.h"

namespace tilery {
namespace {

class GpuChoiceTest : public testing::Test {
 protected:
  GpuChoiceTest() {
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    setenv("TILERY_PYTHON", "/none/python", 1);
    // The answer of the n-th question is in answer.n; what was asked is kept in asked.n.
    Script("n=$(ls " + At("") + " | grep -c '^asked'); cat > " + At("asked.") + "$n; cat " +
           At("answer.") + "$n; echo \"$NVIDIA_TF32_OVERRIDE\" > " + At("override.") + "$n");
    MakeFile(folder_ / "m.pt", "model");
    std::filesystem::create_directory(folder_ / "work");

    prepared_.model.path = At("m.pt");
    prepared_.model.hash = "hash";
    prepared_.model.kind = "torchscript";
    prepared_.resolved.dims = 2;
    Plan& plan = prepared_.resolved.plan;
    plan.params.resize(1);
    plan.params[0].tiling.tile = {1, 64, 64};
    plan.tiles = 100;
    Item item;
    item.refused = "it is damaged";
    plan.items.push_back(item);
    item = {};
    item.input = "/in/b.png";
    item.header = HeaderOf("png", {1, 90, 90}, 3);
    plan.items.push_back(item);

    DeviceSeat seat;
    seat.device = "cuda:0";
    seat.executable = folder_ / "worker";
    seat.name = "NVIDIA H100";
    seat.capability = "9.0";
    seat.memory = 1000;
    devices_.seats.push_back(seat);
    device_.device_kind = "cuda/9.0/NVIDIA H100";
    device_.torch = "2.11";
  }
  ~GpuChoiceTest() override {
    unsetenv("XDG_CACHE_HOME");
    unsetenv("TILERY_PYTHON");
  }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  void Script(const std::string& lines) {
    MakeFile(folder_ / "worker", "#!/bin/sh\n" + lines + "\n");
    std::filesystem::permissions(folder_ / "worker", std::filesystem::perms::owner_all);
  }
  struct Answered {
    int64_t batch = 16;
    double tiles_per_s = 50, max = 0.01;
    int64_t nonfinite = 0, bytes = 77, tiles = 4;
    std::string error = "", fault = "";
    int package = -1;
    std::string slots = "all";
  };
  void Answer(int n, const Answered& a) {
    const Json tuned = {{"error", a.error},
                        {"fault", a.fault},
                        {"form",
                         {{"precision", "x"},
                          {"batch", a.batch},
                          {"layout", "nhwc"},
                          {"package", a.package},
                          {"graph", true}}},
                        {"how", "CUDA graph"},
                        {"slots", a.slots},
                        {"tiles_per_s", a.tiles_per_s},
                        {"bytes", a.bytes},
                        {"memory", 100},
                        {"output_error",
                         {{"tiles", a.tiles},
                          {"max", a.max},
                          {"mean", 0.001},
                          {"lowest", -1},
                          {"highest", 1},
                          {"nonfinite", a.nonfinite},
                          {"real_input", true},
                          {"unknown", ""}}},
                        {"trials", Json::array()},
                        {"notes", {"a note"}}};
    MakeFile(folder_ / ("answer." + std::to_string(n)), Json{{"tuned", tuned}}.dump() + "\n");
  }
  Json Asked(int n) { return Json::parse(ContentOf(folder_ / ("asked." + std::to_string(n)))); }
  int Questions() {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      count += entry.path().filename().string().rfind("asked", 0) == 0 ? 1 : 0;
    return count;
  }
  GpuChoice Choose() {
    said_.clear();
    return ChooseForGpu(
        job_, prepared_, devices_, device_, folder_ / "work",
        [&](const std::string& line) { said_ += line + "\n"; }, warnings_);
  }
  void Keep(const GpuChoice& choice) {
    KeepNumerics(
        DecideNumerics(job_, prepared_.resolved, "hash", choice.numerics, folder_ / "work"),
        folder_ / "work");
    KeepReport(choice, folder_ / "work");
  }

  TempFolder folder_;
  Job job_ = JobOf();
  Prepared prepared_;
  DeviceChoice devices_;
  ProbeAnswer device_;
  std::string said_;
  std::vector<std::string> warnings_;
};

TEST_F(GpuChoiceTest, AWorkerIsAskedOnceForAllJobsOfOneModelAndTile) {
  Answer(0, {});
  const GpuChoice choice = Choose();
  EXPECT_EQ(choice.numerics.batch, 16);
  EXPECT_EQ(choice.numerics.layout, "nhwc");
  EXPECT_EQ(choice.numerics.precision, "fp16");
  EXPECT_EQ(choice.numerics.device_kind, "cuda/9.0/NVIDIA H100");
  EXPECT_EQ(choice.numerics.package, "");
  EXPECT_EQ(choice.report.at("error_against_fp32").at("max"), 0.01);
  ExpectWords(said_, {"a note"});
  EXPECT_EQ(ContentOf(folder_ / "override.0"), "0\n");
  const Json asked = Asked(0);
  EXPECT_EQ(asked.at("model"), At("m.pt"));
  EXPECT_EQ(asked.at("tile"), (Json{1, 64, 64}));
  EXPECT_EQ(asked.at("tune").at("precisions"), Json{"fp16"});
  EXPECT_EQ(asked.at("tune").at("sample").at("work").at("input"), "/in/b.png");

  prepared_.resolved.plan.items[1].input = "/in/another.png";
  EXPECT_EQ(Choose().numerics.batch, 16);
  EXPECT_EQ(Questions(), 1) << "the user's cache has it";
  Answer(1, {.batch = 8});
  prepared_.resolved.plan.params[0].tiling.tile = {1, 128, 128};
  EXPECT_EQ(Choose().numerics.batch, 8);
}

TEST_F(GpuChoiceTest, WhatAWorkFolderBeganGoesOn) {
  Answer(0, {.batch = 4, .slots = "0-2"});
  Keep(Choose());
  std::filesystem::remove_all(folder_ / "cache");
  const GpuChoice again = Choose();
  EXPECT_EQ(again.numerics.slots, "0-2");
  EXPECT_EQ(again.numerics.batch, 4);
  EXPECT_EQ(again.numerics.layout, "nhwc");
  EXPECT_EQ(again.report.at("tiles_per_s"), 50);
  EXPECT_EQ(Questions(), 1);
  EXPECT_TRUE(
      DecideNumerics(job_, prepared_.resolved, "hash", again.numerics, folder_ / "work").known);

  Answer(1, {.batch = 2});
  job_.execution.batch = 2;
  EXPECT_EQ(Choose().numerics.batch, 2);
  EXPECT_EQ(Asked(1).at("tune").at("batch"), 2);
}

TEST_F(GpuChoiceTest, WhatIsTooFarFromFp32RunsInAWiderPrecision) {
  job_.model.max_error = 0.005;
  Answer(0, {.max = 0.02});
  Answer(1, {.batch = 8, .max = 0.001, .nonfinite = 1});
  Answer(2, {.batch = 2, .max = 0});
  const GpuChoice choice = Choose();
  EXPECT_EQ(choice.numerics.precision, "fp32");
  EXPECT_EQ(choice.numerics.batch, 2);
  ExpectWords(said_, {"fp16 is off by 0.02", "0.005", "tf32", "not finite"});
  EXPECT_EQ(ContentOf(folder_ / "override.1"), "\n") << "TF32 stays on";
  EXPECT_EQ(ContentOf(folder_ / "override.2"), "0\n");
  Keep(choice);
  EXPECT_EQ(Choose().numerics.precision, "fp32");
  EXPECT_EQ(Questions(), 3);
  // Another first unit is another error.
  prepared_.resolved.plan.items[1].input = "/in/another.png";
  std::filesystem::remove(folder_ / "work" / "numerics.json");
  Answer(3, {.max = 0.001});
  EXPECT_EQ(Choose().numerics.precision, "fp16");
}

TEST_F(GpuChoiceTest, OnlyWhatRunsLongIsCompiled) {
  Answer(0, {.tiles_per_s = 1});
  Choose();
  EXPECT_EQ(said_.find("compiled"), std::string::npos) << said_;
  prepared_.resolved.plan.tiles = 200;
  Choose();
  ExpectWords(said_, {"not compiled", "/none/python"});
  job_.model.compile = "off";
  Choose();
  EXPECT_EQ(said_.find("compiled"), std::string::npos) << said_;
}

TEST_F(GpuChoiceTest, AModelWithLibrariesIsAnotherOneAndTheyAreLoadedFirst) {
  Answer(0, {.batch = 4});
  Answer(1, {.batch = 8});
  Choose();
  prepared_.model.libraries = {{"/l/ops.so", "hash of it"}};
  EXPECT_EQ(Choose().numerics.batch, 8);
  EXPECT_EQ(Asked(0).at("libraries"), Json::array());
  EXPECT_EQ(Asked(1).at("libraries"), Json{"/l/ops.so"});
  prepared_.model.libraries = {{"/elsewhere/ops.so", "hash of it"}};
  EXPECT_EQ(Choose().numerics.batch, 8);
  EXPECT_EQ(Questions(), 2);
}

TEST_F(GpuChoiceTest, APackageGivenAsTheModelIsMeasuredAloneAndKept) {
  const std::map<std::string, std::string> entries = {
      {"p/data/aotinductor/model/x.so", "x"},
      {"p/extra/tilery_package.json", Json{{"gpu", "NVIDIA H100"},
                                           {"capability", "9.0"},
                                           {"torch", BuiltWithTorch()},
                                           {"tile", {64, 64}},
                                           {"batch", 4},
                                           {"precision", "tf32"},
                                           {"layout", "nhwc"}}
                                          .dump()}};
  MakeZip(folder_ / "m.pt", entries);
  prepared_.model.kind = "package";
  prepared_.model.hash = HashFile(folder_ / "m.pt");
  Answer(0, {.batch = 4, .package = 0});
  const GpuChoice choice = Choose();
  const Json asked = Asked(0);
  EXPECT_EQ(asked.at("model"), "") << "the file is no model that runs as it is";
  EXPECT_EQ(asked.at("tune").at("packages"), Json{At("m.pt")});
  EXPECT_EQ(asked.at("tune").at("batch"), 4);
  EXPECT_EQ(asked.at("tune").at("precisions"), Json{"tf32"}) << "its own, under auto";
  EXPECT_EQ(choice.numerics.precision, "tf32");
  EXPECT_EQ(choice.numerics.package, prepared_.model.hash);
  EXPECT_EQ(ContentOf(choice.package), ContentOf(folder_ / "m.pt"));

  const auto refusal = [&] { return ErrorOf(Fault::kUsage, [&] { Choose(); }); };
  job_.model.precision = "fp16";
  ExpectWords(refusal(), {"m.pt", "precision", "tf32", "fp16"});
  job_.model.precision = "auto";
  job_.execution.batch = 8;
  ExpectWords(refusal(), {"batches of 4", "8"});
  job_.execution.batch.reset();
  devices_.seats[0].name = "NVIDIA L4";
  ExpectWords(refusal(), {"NVIDIA H100 (9.0)", "NVIDIA L4 (9.0)"});
  devices_.seats[0].name = "NVIDIA H100";
  job_.model.max_error = 0.1;
  ExpectWords(refusal(), {"max_error", "fp32"});
  EXPECT_EQ(Questions(), 1);
}

TEST_F(GpuChoiceTest, OfAFormThatIsNamedItIsAskedAlone) {
  MakeFile(folder_ / "p.pt2", "package");
  Answer(0, {.batch = 8, .package = 0, .slots = "0-6"});
  const auto ask = [&](const NamedForm& form) {
    return MeasureNamed(
        job_, prepared_, devices_, device_, form,
        [&](const std::string& line) { said_ += line + "\n"; }, warnings_);
  };
  const NamedForm package{8, "fp16", "nhwc", folder_ / "p.pt2", "its-hash"};
  EXPECT_EQ(ask(package).slots, "0-6");
  ExpectWords(said_, {"a note"});
  EXPECT_EQ(Asked(0).at("model"), "");
  const Json asked = Asked(0).at("tune");
  EXPECT_EQ(asked.at("batch"), 8);
  EXPECT_EQ(asked.at("layout"), "nhwc");
  EXPECT_EQ(asked.at("precisions"), Json({"fp16"}));
  EXPECT_EQ(asked.at("packages"), Json{At("p.pt2")});
  EXPECT_FALSE(asked.contains("sample"));
  EXPECT_EQ(ask(package).slots, "0-6");  // from the cache
  EXPECT_EQ(Questions(), 1);

  Answer(1, {.batch = 4, .slots = "all"});
  EXPECT_EQ(ask({4, "fp16", "nchw", "", ""}).slots, "all");
  EXPECT_EQ(Asked(1).at("model"), At("m.pt"));
  EXPECT_EQ(Asked(1).at("tune").at("layout"), "nchw");
  EXPECT_EQ(Asked(1).at("tune").at("batch"), 4);
}

TEST_F(GpuChoiceTest, AnExportedProgramRunsCompiledOrNotAtAll) {
  prepared_.model.kind = "exported";
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose(); }),
              {"m.pt", "exported program", "/none/python", "TILERY_PYTHON", "TorchScript"});
  EXPECT_EQ(Questions(), 0);
}

TEST_F(GpuChoiceTest, AutoWidensWhatDoesNotRunOrIsNotFinite) {
  Answer(0, {.error = "m.pt: expected scalar type Float", .fault = "model"});
  Answer(1, {.nonfinite = 3});
  Answer(2, {.batch = 2});
  const GpuChoice choice = Choose();
  EXPECT_EQ(choice.numerics.precision, "fp32");
  EXPECT_EQ(choice.numerics.batch, 2);
  ExpectWords(said_, {"does not run in fp16", "expected scalar type", "tf32", "not finite"});
  Keep(choice);
  EXPECT_EQ(Choose().numerics.precision, "fp32") << "and the work folder stays with it";
  EXPECT_EQ(Questions(), 3);
}

TEST_F(GpuChoiceTest, WhatCouldNotBeComparedIsNotNearEnough) {
  job_.model.max_error = 1;
  Answer(0, {.tiles = 0});
  Answer(1, {.batch = 4});
  EXPECT_EQ(Choose().numerics.precision, "tf32");
  ExpectWords(said_, {"fp16", "could not be compared"});
}

TEST_F(GpuChoiceTest, ADamagedPackageOfTheWorkFolderIsNoReasonToGoOnWithIt) {
  Answer(0, {});
  GpuChoice choice = Choose();
  MakeFile(folder_ / "package", "compiled");
  choice.numerics.package = HashFile(folder_ / "package");
  Keep(choice);
  EXPECT_EQ(Choose().numerics.package, "") << "it is not there";
  const auto kept = PackageFile(folder_ / "work", choice.numerics.package);
  MakeFile(kept, "compiled");
  GpuChoice again = Choose();
  EXPECT_EQ(again.numerics.package, choice.numerics.package);
  EXPECT_EQ(again.package, kept);
  MakeFile(kept, "compilex");
  EXPECT_EQ(Choose().numerics.package, "");
}

TEST_F(GpuChoiceTest, AModelThatDoesNotRunIsRefusedInItsOwnWords) {
  job_.model.precision = "fp16";
  Answer(0, {.error = "m.pt: 9 bytes asked, 8 free", .fault = "model"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Choose(); }), {"m.pt", "9 bytes asked"});
  Answer(1, {.error = "busy", .fault = "transient"});
  ExpectWords(ErrorOf(Fault::kTransient, [&] { Choose(); }), {"busy"});
  MakeFile(folder_ / "answer.2", "{}");
  ExpectWords(ErrorOf(Fault::kInternal, [&] { Choose(); }), {"not understood"});
}

TEST_F(GpuChoiceTest, TheNumberOfWorkersDecidesNothingWhileMemoryIsEnough) {
  Answer(0, {});
  Choose();
  job_.execution.workers = 3;
  Choose();
  EXPECT_EQ(Questions(), 1);
  EXPECT_EQ(Asked(0).at("tune").at("memory"), 0);
  EXPECT_EQ(MemoryOfWorker(job_, devices_), 300);
}

TEST_F(GpuChoiceTest, WorkersOnOneGpuShareItsMemory) {
  Answer(0, {.bytes = 250});
  Answer(1, {.batch = 8, .bytes = 100});
  job_.execution.workers = 3;
  job_.execution.gpu_memory = 600;
  EXPECT_EQ(Choose().numerics.batch, 8);
  EXPECT_EQ(Asked(0).at("tune").at("memory"), 600);
  EXPECT_EQ(Asked(1).at("tune").at("memory"), 200);
  ExpectWords(said_, {"batches of 16", "250 bytes", "200"});
}

}  // namespace
}  // namespace tilery
