// The one-shot child's answers about tuning, and the real tiles that it measures with.
#include "worker/probe.h"

#include <gmock/gmock.h>

#include <cstring>

#include "cluster/message.h"
#include "io/error.h"
#include "pipeline/ops.h"
#include "scheduler/wire.h"
#include "tests/worker/worker_fixture.h"
#include "worker/sample_tiles.h"

namespace tilery {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FakeBackend final : public Backend {
 public:
  Numerics Describe(const std::string&) const override {
    Numerics numerics;
    numerics.device_kind = "fake";
    return numerics;
  }
  ModelProbe Probe(const std::filesystem::path&, int, int32_t, const Index&, bool) const override {
    ADD_FAILURE() << "a model that is tuned is not probed";
    return {};
  }
  TuneResult Tune(const TuneRequest& request) const override {
    asked = request;
    if (!fails.empty()) throw Error(Fault::kModel, fails);
    return result;
  }
  std::unique_ptr<ForwardModel> MakeForward(const EngineOptions&) const override { return nullptr; }
  std::unique_ptr<Engine> Create(const BackendOptions&, Profile&) const override { return nullptr; }
  mutable TuneRequest asked;
  std::string fails;
  TuneResult result;
};

TEST(ProbeLibraries, OneThatCantBeLoadedIsRefusedBeforeTheModel) {
  const FakeBackend backend;
  const Json question = {{"model", "/m.pt"}, {"libraries", {"/none/x.so"}}};
  const Json answer = Json::parse(AnswerProbe(question.dump(), backend));
  EXPECT_THAT(answer.at("refused").get<std::string>(), HasSubstr("/none/x.so"));
  EXPECT_FALSE(answer.at("runs").get<bool>());
  Json tune = question;
  tune["tune"] = {{"channels_out", 3}};
  const Json tuned = Json::parse(AnswerProbe(tune.dump(), backend)).at("tuned");
  EXPECT_THAT(tuned.at("error").get<std::string>(), HasSubstr("model.libraries"));
  EXPECT_EQ(tuned.at("fault"), "usage");
}

class ProbeTest : public WorkerTest {
 protected:
  // All tiles of the picture, gathered from all of it.
  std::vector<float> Wanted(const UnitWork& work, const std::vector<std::byte>& samples,
                            int64_t count) {
    const ItemParams& params = context_.params.at(static_cast<size_t>(work.params));
    const TileGrid grid(work.header.shape, params.tiling);
    const InputTables tables(params.transfer);
    const GatherSource source{DenseView(samples.data(), work.header.dtype, work.header.channels,
                                        work.header.shape, Layout::kInterleaved),
                              Box::Whole(work.header.shape), &grid, &tables, false};
    const int64_t values = Product(params.tiling.tile) * params.transfer.model_in;
    std::vector<float> tiles(static_cast<size_t>(count * values));
    for (int64_t i = 0; i < count; ++i) {
      GatherTile(source, grid.tile_at(i), params.transfer.passes[0], tiles.data() + i * values);
    }
    return tiles;
  }

  Json Question(const UnitWork& work) {
    return {{"model", "/models/x.pt"},
            {"dims", 2},
            {"channels_in", 3},
            {"tile", {1, 32, 32}},
            {"device", "cuda:0"},
            {"tune",
             {{"channels_out", 1},
              {"scale", {1, 1, 4, 1, 1, 2}},
              {"packages", {"/a.pt2", "/b.pt2"}},
              {"precisions", {"fp16", "tf32"}},
              {"max_error", 0.25},
              {"batch", 8},
              {"layout", "nhwc"},
              {"memory", 1 << 30},
              {"reserve", 1 << 20},
              {"lanes", 2},
              {"seconds", 3.5},
              {"sample",
               {{"work", ToJson(work)},
                {"params", ToJson(context_.params[static_cast<size_t>(work.params)])}}}}}};
  }
};

TEST_F(ProbeTest, SampleTilesAreWhatTheUnitsFirstRunsSee) {
  // PNG: rows in order only; npy: any box. One smaller than a tile: padding.
  const auto noise = Noise(100 * 90 * 3, 5);
  const int32_t png = AddParams("png", DType::kU8, 3, Tiles({1, 32, 32}, {0, 8, 8}));
  const auto picture = Write("a.png", "png", DType::kU8, 3, {1, 100, 90}, noise);
  const TestItem whole = MakeItem(picture, "a.png", png);
  EXPECT_EQ(SampleTiles(whole.base, context_.params[png], 5), Wanted(whole.base, noise, 5));
  EXPECT_EQ(SampleTiles(whole.base, context_.params[png], 1000).size(), 16u * 3 * 32 * 32);

  TestItem staged = MakeItem(picture, "b.png", png, 4, /*staged=*/true);
  EXPECT_EQ(SampleTiles(staged.base, context_.params[png], 2), Wanted(staged.base, noise, 2))
      << "before there is a stage file";

  const auto small = Write("s.png", "png", DType::kU8, 3, {1, 9, 40}, noise);
  const TestItem padded = MakeItem(small, "s.png", png);
  EXPECT_EQ(SampleTiles(padded.base, context_.params[png], 8), Wanted(padded.base, noise, 2));

  const int32_t npy = AddParams("npy", DType::kU16, 1, Tiles({8, 16, 16}, {2, 4, 4}));
  const auto volume = Write("v.npy", "npy", DType::kU16, 1, {20, 30, 22}, noise);
  const TestItem blocks = MakeItem(volume, "v.npy", npy);
  EXPECT_EQ(SampleTiles(blocks.base, context_.params[npy], 8), Wanted(blocks.base, noise, 8));
}

TEST_F(ProbeTest, AllOfAQuestionReachesTheBackendAndAllOfItsAnswerComesBack) {
  const auto noise = Noise(64 * 64 * 3, 6);
  const int32_t png = AddParams("png", DType::kU8, 3, Tiles({1, 32, 32}, {0, 8, 8}));
  const UnitWork work =
      MakeItem(Write("a.png", "png", DType::kU8, 3, {1, 64, 64}, noise), "a.png", png).base;
  FakeBackend backend;
  backend.result.form = {"tf32", 16, "nhwc", 1, false};
  backend.result.how = "eager: so it is";
  backend.result.slots = "0-14";
  backend.result.tiles_per_s = 12.5;
  backend.result.bytes = 77;
  backend.result.memory = 99;
  backend.result.error.max = 0.5;
  backend.result.error.tiles = 3;
  Trial trial;
  trial.form.batch = 2;
  trial.end = Trial::End::kNoMemory;
  trial.how = "too little";
  backend.result.trials = {trial};
  backend.result.notes = {"fp16 was too far"};

  const std::string text = AnswerProbe(Question(work).dump(), backend);
  EXPECT_EQ(text.find('\n'), std::string::npos);
  const Json answer = Json::parse(text);
  EXPECT_EQ(answer["numerics"]["device_kind"], "fake");
  const Json& tuned = answer["tuned"];
  EXPECT_EQ(tuned["error"], "");
  EXPECT_EQ(tuned["form"], Json::parse(R"({"precision": "tf32", "batch": 16, "layout": "nhwc",
                                           "package": 1, "graph": false})"));
  EXPECT_EQ(tuned["how"], "eager: so it is");
  EXPECT_EQ(tuned["slots"], "0-14");
  EXPECT_EQ(tuned["tiles_per_s"], 12.5);
  EXPECT_EQ(tuned["bytes"], 77);
  EXPECT_EQ(tuned["memory"], 99);
  EXPECT_EQ(tuned["output_error"]["max"], 0.5);
  EXPECT_EQ(tuned["output_error"]["tiles"], 3);
  EXPECT_EQ(tuned["trials"][0]["end"], "no memory");
  EXPECT_EQ(tuned["trials"][0]["form"]["batch"], 2);
  EXPECT_EQ(tuned["notes"], Json::array({"fp16 was too far"}));

  const TuneRequest& asked = backend.asked;
  EXPECT_EQ(asked.model, "/models/x.pt");
  EXPECT_EQ(asked.channels_in, 3);
  EXPECT_EQ(asked.channels_out, 1);
  EXPECT_EQ(asked.tile, (Index{1, 32, 32}));
  EXPECT_EQ(asked.scale, (Scale{Rational{1, 1}, Rational{4, 1}, Rational{1, 2}}));
  EXPECT_THAT(asked.packages, ElementsAre("/a.pt2", "/b.pt2"));
  EXPECT_THAT(asked.precisions, ElementsAre("fp16", "tf32"));
  EXPECT_EQ(asked.max_error, 0.25);
  EXPECT_EQ(asked.batch, 8);
  EXPECT_EQ(asked.layout, "nhwc");
  EXPECT_EQ(asked.memory, 1 << 30);
  EXPECT_EQ(asked.reserve, 1 << 20);
  EXPECT_EQ(asked.lanes, 2);
  EXPECT_EQ(asked.seconds, 3.5);
  EXPECT_EQ(asked.tiles, Wanted(work, noise, 8));
}

TEST_F(ProbeTest, AnInputThatCantBeReadIsANoteAndTheModelIsTunedAllTheSame) {
  const int32_t png = AddParams("png", DType::kU8, 3, Tiles({1, 32, 32}, {0, 8, 8}));
  const auto path = Write("a.png", "png", DType::kU8, 3, {1, 64, 64}, Noise(64 * 64 * 3, 7));
  const UnitWork work = MakeItem(path, "a.png", png).base;
  std::filesystem::resize_file(path, 60);
  const FakeBackend backend;
  const Json tuned = Json::parse(AnswerProbe(Question(work).dump(), backend))["tuned"];
  EXPECT_EQ(tuned["error"], "");
  EXPECT_THAT(tuned["notes"].at(0).get<std::string>(), HasSubstr("a.png"));
  EXPECT_THAT(backend.asked.tiles, IsEmpty());
}

TEST_F(ProbeTest, WhatTheModelDoesIsAnAnswerAndAQuestionThatIsNoneIsNot) {
  FakeBackend backend;
  backend.fails = "it does not fit";
  const Json question = {{"model", "m"}, {"tune", {{"channels_out", 3}}}};
  const Json tuned = Json::parse(AnswerProbe(question.dump(), backend))["tuned"];
  EXPECT_EQ(tuned["error"], "it does not fit");
  EXPECT_EQ(tuned["fault"], "model");
  for (const char* bad : {R"({"tune": 3})", R"({"tune": {}})",
                          R"({"tune": {"channels_out": 3, "precisions": "fp16"}})"}) {
    try {
      AnswerProbe(bad, backend);
      ADD_FAILURE() << bad;
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::kUsage) << bad;
    }
  }
}

TEST(CpuBackend, TakesTheBatchThatIsAskedForInFp32Only) {
  const auto backend = MakeCpuBackend();
  TuneRequest request;
  EXPECT_EQ(backend->Tune(request).form, (ModelForm{"fp32", 1, "nchw", -1, false}));
  request.batch = 6;
  EXPECT_EQ(backend->Tune(request).form.batch, 6);
  const auto what = [&] {
    try {
      backend->Tune(request);
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::kUsage);
      return std::string(e.what());
    }
    return std::string();
  };
  request.precisions = {"fp16", "fp32"};
  EXPECT_THAT(what(), HasSubstr("'fp16'"));
  EXPECT_THAT(what(), HasSubstr("auto, fp32"));
  request.precisions = {"fp32"};
  request.layout = "nhwc";
  EXPECT_THAT(what(), HasSubstr("nchw"));
  request.layout.clear();
  request.packages = {"a.pt2"};
  EXPECT_THAT(what(), HasSubstr("a.pt2"));
}

}  // namespace
}  // namespace tilery
