#include "scheduler/job.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

using Flags = std::vector<std::pair<std::string, std::vector<std::string>>>;

const Flags kNeeded = {{"model", {"m.pt"}}, {"input", {"a.png"}}, {"output", {"b.png"}}};

class JobTest : public testing::Test {
 protected:
  Job Load(const std::string& yaml, const Flags& flags = {}) {
    MakeFile(folder_ / "job.yaml", yaml);
    return LoadJob(folder_ / "job.yaml", flags);
  }
  // The message of a job that has one more line than a sound one.
  std::string Mistake(const std::string& lines, const Flags& flags = {}) {
    return ErrorOf(Fault::kUsage,
                   [&] { Load("input: {path: a.png}\noutput: {path: b.png}\n" + lines, flags); });
  }
  std::string At(const std::string& name) const { return (folder_.path() / name).string(); }

  TempFolder folder_;
};

TEST_F(JobTest, ReadsEveryPartOfAJobFile) {
  const Job job = Load(R"(
model: {path: up.pt, precision: fp32, scale: 2, channels: {in: 3, out: 3, order: bgr}, radius: [3, 4]}
input: {path: ["in/*.png", extra.tif], alpha: resize, normalize: [0, 4095], nonfinite: fill}
tiling: {tile: [128, 96], overlap: 25%, window: hann, pad: edge, trim: 4}
output: {path: "out/{stem}.tif", dtype: f32, post: [sigmoid, {threshold: 0.5}, {labels: [0, 255]}],
         existing: skip, losses: allow}
execution: {devices: cpu, workers: 3, batch: 2, reproducible: strict, scratch_limit: 1.5GiB,
            unit_memory: 67108864, threads: 2, failures: {max: 5%}}
)");
  EXPECT_EQ(job.name, "job");
  EXPECT_EQ(job.model.path, At("up.pt"));
  EXPECT_EQ(job.model.contract.scale, std::vector<Rational>{Rational::Of(2, 1)});
  EXPECT_EQ(job.model.contract.order, "bgr");
  EXPECT_EQ(job.model.contract.radius, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(job.model.contract.source.at("channels.in"), "job");
  EXPECT_EQ(job.input.paths, (std::vector<std::string>{At("in/*.png"), At("extra.tif")}));
  EXPECT_EQ(job.input.alpha, AlphaMode::kResize);
  EXPECT_EQ(job.input.normalize, (std::array<double, 2>{0, 4095}));
  EXPECT_EQ(job.tiling.tile.values, (std::vector<double>{128, 96}));
  EXPECT_EQ(job.tiling.overlap.kind, Extent::Kind::kPercent);
  EXPECT_EQ(job.tiling.window, WindowKind::kHann);
  ASSERT_EQ(job.outputs.size(), 1u);
  EXPECT_EQ(job.outputs[0].path, At("out/{stem}.tif"));
  EXPECT_EQ(job.outputs[0].dtype, DType::kF32);
  ASSERT_EQ(job.outputs[0].post.size(), 3u);
  EXPECT_EQ(job.outputs[0].post[2].values, (std::vector<double>{0, 255}));
  EXPECT_EQ(job.outputs[0].existing, Existing::kSkip);
  EXPECT_TRUE(job.outputs[0].allow_losses);
  EXPECT_EQ(job.execution.devices, std::vector<std::string>{"cpu"});
  EXPECT_EQ(job.execution.workers, 3);
  EXPECT_TRUE(job.execution.strict);
  EXPECT_EQ(job.execution.scratch_limit, 3LL << 29);
  EXPECT_EQ(job.execution.unit_memory, 64 << 20);
  EXPECT_DOUBLE_EQ(job.execution.max_failures, 0.05);
}

TEST_F(JobTest, JsonIsAJobFileToo) {
  const Job job = Load(
      R"({"model": {"path": "m.pt", "scale": "1/8"}, "input": {"path": "a.png"},
          "output": {"path": "b.png"}, "execution": {"devices": "cpu", "workers": "auto"}})");
  EXPECT_EQ(job.model.contract.scale, std::vector<Rational>{Rational::Of(1, 8)});
  EXPECT_FALSE(job.execution.workers.has_value());
}

TEST_F(JobTest, JsonWithTabsAndEscapedPairsIsReadToo) {
  const Job job = Load(
      "{\"model\": {\"path\": \"m.pt\"},\n\t\"input\": {\"path\": \"\\ud83d\\ude00.png\"},\n"
      "\t\"output\": {\"path\": \"b.png\"}}");
  EXPECT_EQ(job.input.paths[0], At("\xF0\x9F\x98\x80.png"));
}

TEST_F(JobTest, FlagsBeatTheFileAndCountFromTheCurrentFolder) {
  const Job job =
      Load("model: {path: m.pt}\ninput: {path: a.png}\noutput: {path: b.png}\ntiling: {tile: 64}\n",
           {{"tile", {"128"}},
            {"input", {"x.png", "y.png"}},
            {"tiling.overlap", {"8,16"}},
            {"output.post", {"sigmoid", "threshold: 0.5"}}});
  EXPECT_EQ(job.tiling.tile.values, std::vector<double>{128});
  EXPECT_EQ(job.tiling.overlap.values, (std::vector<double>{8, 16}));
  EXPECT_EQ(job.model.path, At("m.pt"));
  const std::string here = std::filesystem::current_path().string();
  EXPECT_EQ(job.input.paths, (std::vector<std::string>{here + "/x.png", here + "/y.png"}));
  EXPECT_EQ(job.outputs[0].post.size(), 2u);
}

TEST_F(JobTest, AListInAFlagMayComeWholeOrCutIntoWords) {
  const auto load = [](const std::string& name, const std::vector<std::string>& values) {
    Flags flags = kNeeded;
    flags.push_back({name, values});
    return LoadJob("", flags);
  };
  for (const std::vector<std::string>& post :
       {std::vector<std::string>{"[sigmoid, {scale: [2, 0]}]"},
        std::vector<std::string>{"sigmoid", " {scale: [2", " 0]}"},
        std::vector<std::string>{"sigmoid", "scale: [2, 0]"}}) {
    const Job job = load("output.post", post);
    ASSERT_EQ(job.outputs[0].post.size(), 2u) << post[0];
    EXPECT_EQ(job.outputs[0].post[1].values, (std::vector<double>{2, 0}));
  }
  const std::array<double, 2> range{0, 255};
  EXPECT_EQ(load("model.range", {"[0, 255]"}).model.contract.range, range);
  EXPECT_EQ(load("model.range", {"0", " 255"}).model.contract.range, range);
  EXPECT_EQ(load("model.range", {"0,255"}).model.contract.range, range);
  EXPECT_EQ(load("output.post", {"argmax"}).outputs[0].post.size(), 1u);
}

TEST_F(JobTest, NamesOfFilesInFlagsAreNoListsWhateverTheyLookLike) {
  const std::string here = std::filesystem::current_path().string();
  Flags flags = kNeeded;
  flags[1].second = {"[abc]", "{}", "a, b.png"};
  flags.push_back({"execution.devices", {"[cpu]"}});
  const Job job = LoadJob("", flags);
  EXPECT_EQ(job.input.paths,
            (std::vector<std::string>{here + "/[abc]", here + "/{}", here + "/a, b.png"}));
  EXPECT_EQ(job.execution.devices, std::vector<std::string>{"cpu"});
}

TEST_F(JobTest, BracesInTheNameOfAFolderAreNoFields) {
  std::filesystem::create_directories(folder_ / "{a}b/out");
  MakeFile(folder_ / "{a}b/job.yaml",
           "model: {path: m.pt}\ninput: {path: a.png}\noutput: {path: 'out/{stem}.png'}\n");
  const Job job = LoadJob(folder_ / "{a}b/job.yaml", {});
  EXPECT_EQ(job.input.paths[0], At("{a}b/a.png"));
  EXPECT_EQ(job.outputs[0].path, At("{{a}}b/out/{stem}.png"));
  EXPECT_EQ(job.execution.work, At("{a}b/out/.tilery/job"));
  MakeFile(folder_ / "{a}b/folder.yaml",
           "model: {path: m.pt}\ninput: {path: a.png}\noutput: {path: out}\n");
  EXPECT_EQ(LoadJob(folder_ / "{a}b/folder.yaml", {}).outputs[0].path, At("{{a}}b/out/"));
  setenv("TILERY_TEST_PLACE", "/data/{x}", 1);
  EXPECT_EQ(Load("model: {path: m.pt}\ninput: {path: a.png}\n"
                 "output: {path: '${TILERY_TEST_PLACE}/{{y}}/{stem}.png'}\n")
                .execution.work,
            "/data/{x}/{y}/.tilery/job");
}

TEST_F(JobTest, FlagsAloneMakeAJob) {
  const Job job = LoadJob("", kNeeded);
  EXPECT_EQ(job.name, "job");
  EXPECT_TRUE(job.file.empty());
  EXPECT_EQ(job.execution.work, (std::filesystem::current_path() / ".tilery/job").string());
}

TEST_F(JobTest, TheDefaultWorkFolderLiesBesideTheOutput) {
  const std::string rest = "model: {path: m.pt}\ninput: {path: a.png}\n";
  EXPECT_EQ(Load(rest + "output: {path: out/b.png}").execution.work, At("out/.tilery/job"));
  EXPECT_EQ(Load(rest + "output: {path: 'out/{reldir}/{stem}.png'}").execution.work,
            At("out/.tilery/job"));
  EXPECT_EQ(Load(rest + "output: {path: 'out/x_{stem}.png'}").execution.work,
            At("out/.tilery/job"));
  EXPECT_EQ(Load(rest + "output: {path: out/}").execution.work, At("out/.tilery/job"));
  const Job named = Load(rest + "output: {path: out/}\nexecution: {work: w/}");
  EXPECT_EQ(named.execution.work, At("w"));
  EXPECT_EQ(named.execution.scratch, At("w/scratch"));
}

TEST_F(JobTest, JobsThatShareAScratchFolderHaveAFolderOfTheirOwnInIt) {
  const auto scratch = [&](const std::string& work) {
    return Load(
               "model: {path: m.pt}\ninput: {path: a.png}\noutput: {path: out/}\n"
               "execution: {scratch: fast, work: " +
               work + "}")
        .execution.scratch;
  };
  EXPECT_EQ(scratch("w").rfind(At("fast/tilery-"), 0), 0u) << scratch("w");
  EXPECT_EQ(scratch("w"), scratch("./w/")) << "found again by the next run";
  EXPECT_NE(scratch("w"), scratch("v"));
}

TEST_F(JobTest, AnOutputThatIsAFolderGetsASlash) {
  std::filesystem::create_directory(folder_ / "out");
  const Job job = Load("model: {path: m.pt}\ninput: {path: a.png}\noutput: {path: out}\n");
  EXPECT_EQ(job.outputs[0].path, At("out/"));
  EXPECT_EQ(job.execution.work, At("out/.tilery/job"));
}

TEST_F(JobTest, HomeAndVariablesExpandInPaths) {
  setenv("TILERY_TEST_PLACE", "/data/here", 1);
  setenv("HOME", "/home/somebody", 1);
  const Job job = Load(
      "model: {path: ~/m.pt}\ninput: {path: '${TILERY_TEST_PLACE}/a.png'}\n"
      "output: {path: '${TILERY_TEST_PLACE}/../{stem}.png'}\n");
  EXPECT_EQ(job.model.path, "/home/somebody/m.pt");
  EXPECT_EQ(job.input.paths[0], "/data/here/a.png");
  EXPECT_EQ(job.outputs[0].path, "/data/{stem}.png");
  unsetenv("TILERY_TEST_NOWHERE");
  ExpectWords(Mistake("model: {path: '${TILERY_TEST_NOWHERE}/m.pt'}"),
              {"model.path", "TILERY_TEST_NOWHERE", "not set"});
}

TEST_F(JobTest, AWrongKeyIsRefusedWithTheNearestAndItsLine) {
  ExpectWords(Mistake("model:\n  path: m.pt\n  precison: fp16\n"),
              {"job.yaml:5", "model.precison", "model.precision"});
  ExpectWords(Mistake("model: {path: m.pt}\ntilling: {tile: 64}\n"),
              {"job.yaml:4", "tilling", "tiling"});
  ExpectWords(Mistake("model: {path: m.pt}\nwindow: hann\n"), {"window", "tiling.window"});
}

TEST_F(JobTest, AWrongValueIsRefusedWithAllThatAreAllowed) {
  const std::string model = "model: {path: m.pt}\n";
  ExpectWords(Mistake("model: {path: m.pt, precision: fp12}\n"),
              {"job.yaml:3", "model.precision", "fp12", "fp32", "fp16", "auto"});
  ExpectWords(Mistake(model + "tiling: {window: hamming}\n"),
              {"tiling.window", "hamming", "hann", "linear", "cosine", "crop", "gaussian"});
  ExpectWords(Mistake(model + "tiling: {tile: 0}\n"), {"tiling.tile", "'0'", "at least 1"});
  ExpectWords(Mistake(model + "tiling: {tile: 64.5}\n"), {"tiling.tile", "64.5"});
  ExpectWords(Mistake(model + "tiling: {overlap: -1}\n"), {"tiling.overlap", "-1", "at least 0"});
  ExpectWords(Mistake(model + "tiling: {overlap: 100%}\n"), {"tiling.overlap", "100%"});
  ExpectWords(Mistake(model + "execution: {workers: 0}\n"), {"execution.workers", "'0'", "auto"});
  ExpectWords(Mistake(model + "execution: {unit_memory: 12 parsecs}\n"),
              {"unit_memory", "parsecs", "GiB"});
  ExpectWords(Mistake(model + "execution: {failures: {max: 101%}}\n"), {"failures.max", "101%"});
  ExpectWords(Mistake(model + "execution: {batch: 65537}\n"), {"batch", "65537", "65536"});
  ExpectWords(Mistake("model: {path: m.pt, dims: 4}\n"), {"model.dims", "4", "2, 3"});
  ExpectWords(Mistake("model: {path: m.pt, scale: 0}\n"), {"model.scale", "'0'", "p/q"});
  ExpectWords(Mistake("model: {path: m.pt, range: [1, 0]}\n"),
              {"model.range", "[1, 0]", "low < high"});
  ExpectWords(Mistake("model: {path: m.pt, std: [1, 0, 1]}\n"), {"model.std", "above 0"});
}

TEST_F(JobTest, AnOverlapThatIsNoSmallerThanTheTileIsRefusedWithBothNumbers) {
  const std::string model = "model: {path: m.pt}\n";
  ExpectWords(Mistake(model + "tiling: {tile: 64, overlap: 64}\n"),
              {"job.yaml:4", "tiling.overlap", "64"});
  ExpectWords(Mistake(model + "tiling: {tile: 64, overlap: 80}\n"), {"64", "80"});
  ExpectWords(Mistake(model + "tiling: {tile: [1, 64, 64], overlap: 32}\n"), {"32", "tile of 1"});
  ExpectWords(Mistake(model + "tiling: {tile: 64, overlap: 16, trim: 9}\n"),
              {"tiling.trim", "9", "16"});
}

TEST_F(JobTest, WhatIsNotBuiltIsRefusedByName) {
  const std::string model = "model: {path: m.pt}\n";
  ExpectWords(Mistake(model + "tiling: {skip: constant}\n"), {"constant", "not supported yet"});
  ExpectWords(Mistake("model: {path: m.pt, transfer: log}\n"),
              {"model.transfer", "not supported yet"});
  ExpectWords(Mistake("stages: [a, b]\n" + model), {"stages", "several jobs"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Load("outputs: [{path: a.png}, {path: b.png}]\n"); }),
              {"2 outputs", "not supported yet"});
  ExpectWords(ErrorOf(Fault::kUsage,
                      [] {
                        LoadJob("", {{"input.roi", {"1"}}});
                      }),
              {"input.roi", "not supported yet"});
}

TEST_F(JobTest, FilesOfGridsNeedNoModelAndTakeNone) {
  const std::string files = "input: {path: a.vdb}\noutput: {path: b.tvdb}\n";
  const Job job = Load("task: compress\ncompress: {max_error: 'vel=0.5,2%'}\n" + files);
  EXPECT_EQ(job.task, Task::kCompress);
  EXPECT_EQ(job.max_error, ParseGridBounds("2%,vel=0.5"));
  EXPECT_EQ(Load("task: compress\ncompress: {max_error: 0.25}\n" + files).max_error,
            ParseGridBounds("0.25"));
  EXPECT_EQ(Load("task: compress\n" + files).max_error, GridBounds{});
  EXPECT_EQ(Load("task: decompress\ninput: {path: a.tvdb}\noutput: {path: out/}\n").outputs[0].path,
            At("out/{reldir}/{stem}.vdb"));
  ExpectWords(Mistake("task: compress\nmodel: {path: m.pt}\n"), {"model.path", "compress"});
  ExpectWords(Mistake("task: decompress\ncompress: {max_error: 1}\n"),
              {"compress.max_error", "decompress"});
  ExpectWords(Mistake("compress: {max_error: 1}\nmodel: {path: m.pt}\n"),
              {"compress.max_error", "infer"});
}

TEST_F(JobTest, AListWithOneOutputIsAnOutput) {
  const Job job =
      Load("model: {path: m.pt}\ninput: {path: a.png}\noutputs: [{path: b.png, name: sharp}]\n");
  EXPECT_EQ(job.outputs[0].path, At("b.png"));
  EXPECT_EQ(job.outputs[0].name, "sharp");
  ExpectWords(Mistake("model: {path: m.pt}\noutputs: [{path: b.png}]\n"),
              {"output.path", "outputs"});
}

TEST_F(JobTest, KeysGivenTwiceAreRefused) {
  ExpectWords(Mistake("model: {path: m.pt, path: n.pt}\n"), {"path", "twice"});
  ExpectWords(Mistake("model: {path: m.pt}\ntiling: {tile: 1}\ntiling: {tile: 2}\n"),
              {"tiling", "twice", ":4"});
}

TEST_F(JobTest, OutputsAreCheckedBeforeAnyInputIsRead) {
  const std::string rest = "model: {path: m.pt}\ninput: {path: a.png}\n";
  const auto mistake = [&](const std::string& output) {
    return ErrorOf(Fault::kUsage, [&] { Load(rest + "output: {path: '" + output + "'}\n"); });
  };
  ExpectWords(mistake("b.bmpx"), {"output.path", "bmpx", ".png"});
  ExpectWords(mistake("b"), {"output.path", "without extension", "folder"});
  ExpectWords(mistake("x/{steem}.png"), {"steem", "{stem}"});
  ExpectWords(mistake("x/{t}.png"), {"{t}", "not supported yet"});
  ExpectWords(mistake("x/{stem.png"), {"{ without }"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Load(rest + "output: {path: b.png, dtype: f32}\n"); }),
              {"output.dtype", "f32", "b.png"});
  EXPECT_EQ(Load(rest + "output: {path: '{{x}}_{stem}.png'}\n").outputs[0].path,
            At("{{x}}_{stem}.png"));
}

TEST_F(JobTest, StepsAfterTheModelMustMakeSense) {
  const auto mistake = [&](const std::string& post) {
    return ErrorOf(Fault::kUsage, [&] {
      Load("model: {path: m.pt}\ninput: {path: a.png}\noutput: {path: b.png, post: " + post +
           "}\n");
    });
  };
  ExpectWords(mistake("[argmx]"), {"argmx", "argmax"});
  ExpectWords(mistake("[argmax, sigmoid]"), {"sigmoid", "after argmax"});
  ExpectWords(mistake("[{labels: [0, 1]}]"), {"labels", "argmax or threshold"});
  ExpectWords(mistake("[{scale: 2}]"), {"scale", "2 number"});
  ExpectWords(mistake("[{threshold: x}]"), {"x", "finite"});
}

TEST_F(JobTest, DevicesAreNamedOnce) {
  const std::string model = "model: {path: m.pt}\n";
  ExpectWords(Mistake(model + "execution: {devices: [cpu, cpu]}\n"), {"cpu", "twice", "workers"});
}

TEST_F(JobTest, AMissingPartIsNamedWithItsFlag) {
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Load("input: {path: a.png}\n"); }),
              {"job.yaml", "model.path", "--model"});
  ExpectWords(ErrorOf(Fault::kUsage,
                      [] {
                        LoadJob("", {{"model", {"m.pt"}}});
                      }),
              {"input.path", "--input"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Load(""); }), {"model.path"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { LoadJob(folder_ / "gone.yaml", {}); }), {"gone.yaml"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Load("model: [1, 2"); }), {"job.yaml:1", "YAML"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Load("just words"); }), {"map of keys", "just words"});
}

TEST_F(JobTest, AFileHoldsOneDocument) {
  ExpectWords(
      ErrorOf(Fault::kUsage, [&] { Load("model: {path: m.pt}\n---\nmodel: {path: n.pt}\n"); }),
      {"job.yaml", "more than one"});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Load(", model: {path: m.pt}\n"); }), {"job.yaml"});
}

TEST_F(JobTest, WrongFlagsNameTheNearest) {
  ExpectWords(ErrorOf(Fault::kUsage, [] { LoadJob("", {{"tyle", {"1"}}}); }), {"--tyle", "--tile"});
  Flags flags = kNeeded;
  flags.push_back({"window", {"hann", "crop"}});
  ExpectWords(ErrorOf(Fault::kUsage, [&] { LoadJob("", flags); }), {"tiling.window", "one value"});
}

TEST_F(JobTest, RawFilesNeedTypeAndShape) {
  const Job job = Load(
      "model: {path: m.pt}\ninput: {path: v.raw, dtype: u16, shape: [4, 5, 6], byte_order: big, "
      "offset: 1KiB}\n"
      "output: {path: o.npy}\n");
  ASSERT_TRUE(job.input.raw.has_value());
  EXPECT_EQ(job.input.raw->shape, (Index{4, 5, 6}));
  EXPECT_TRUE(job.input.raw->big_endian);
  EXPECT_EQ(job.input.raw->offset, 1024);
  const auto mistake = [&](const std::string& input) {
    return ErrorOf(Fault::kUsage, [&] {
      Load("model: {path: m.pt}\noutput: {path: o.npy}\ninput: {path: v.raw, " + input + "}\n");
    });
  };
  ExpectWords(mistake("dtype: u16"), {"input.dtype", "input.shape"});
  ExpectWords(mistake("dtype: u16, shape: [1, 2, 3, 4]"), {"input.shape", "4 axes"});
}

}  // namespace
}  // namespace tilery
