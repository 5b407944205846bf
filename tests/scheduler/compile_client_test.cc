#include "scheduler/compile_client.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "io/file.h"
#include "scheduler/package_cache.h"
#include "scheduler/python_finder.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/zip_file.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using Outcome = CompileResult::Outcome;

// A Python of a few shell lines, which has the right Torch and is asked to compile.
class CompileClientTest : public testing::Test {
 protected:
  CompileClientTest() {
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    setenv("TILERY_PYTHON", (folder_ / "python").c_str(), 1);
    request_.model = folder_ / "net.pt";
    request_.model_hash = "hash";
    request_.tile = {16, 16};
    request_.batches = {2};
    request_.precisions = {"fp16"};
    request_.layouts = {"nhwc"};
  }
  ~CompileClientTest() override {
    unsetenv("XDG_CACHE_HOME");
    unsetenv("TILERY_PYTHON");
  }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  void Script(const std::string& lines) {
    MakeFile(folder_ / "python", "#!/bin/sh\nif [ \"$1\" = -c ]; then echo " + BuiltWithTorch() +
                                     "; exit; fi\necho \"$@\" > " + At("arguments") + "\n" + lines +
                                     "\n");
    fs::permissions(folder_ / "python", fs::perms::owner_all);
  }
  CompileResult Compile() {
    return CompilePackages(request_, [&](const std::string& line) { said_.push_back(line); });
  }
  // Where the cache has the package of request_.
  fs::path Cached() const {
    return *PackageFolder() / (PackageName(request_.model, "hash", BuiltWithTorch(), "") +
                               ".GPU-X1.16x16.2.fp16.nhwc.pt2");
  }
  static std::string Facts(const std::string& gpu = "GPU (X1)") {
    return R"({"gpu": ")" + gpu + R"(", "capability": "9.0", "torch": ")" + BuiltWithTorch() +
           R"(", "tile": [16, 16], "batch": 2, "precision": "fp16", "layout": "nhwc",
              "model_hash": "hash", "libraries": "", "options": {}, "channels_in": 3,
              "channels_out": 4})";
  }
  void ExpectOneReason(Outcome outcome, const std::vector<std::string>& words) {
    const CompileResult result = Compile();
    EXPECT_EQ(result.outcome, outcome) << result.reason;
    ExpectWords(result.reason, words);
    EXPECT_EQ(result.reason.find('\n'), std::string::npos);
    EXPECT_LT(result.reason.size(), 1000u);
  }

  TempFolder folder_;
  CompileRequest request_;
  std::vector<std::string> said_;
};

TEST_F(CompileClientTest, WhatWasCompiledIsReportedWithItsHash) {
  request_.folder = folder_.path();
  request_.device = "cuda:3";
  request_.device_uuid = "GPU-abc";
  request_.channels_in = 3;
  MakeFile(folder_ / "made.pt2", "content");
  Script("echo net.x.pt2: compiling >&2; echo noise >&2; env > " + At("env") + R"(
cat <<'END'
{"packages": [{"path": ")" +
         At("made.pt2") + R"(", "seconds": 1.5, "reused": false, "gpu": "G",
 "capability": "9.0", "tile": [16, 16], "batch": 2, "precision": "fp16", "layout": "nhwc",
 "channels_in": 3, "channels_out": 4}], "failed": [{"path": "/x/b.pt2", "reason": "C++ failed\nx.h:3: error: bad\nmore"}]}
END
exit 1)");
  const CompileResult result = Compile();
  EXPECT_EQ(result.outcome, Outcome::kFailed);
  ASSERT_EQ(result.packages.size(), 1u);
  EXPECT_EQ(result.packages[0].hash, HashText("content"));
  EXPECT_EQ(result.packages[0].tile, (std::vector<int64_t>{16, 16}));
  EXPECT_EQ(result.packages[0].seconds, 1.5);
  EXPECT_FALSE(result.packages[0].reused);
  ASSERT_EQ(result.failed.size(), 1u);
  EXPECT_EQ(result.failed[0].package, "b.pt2");
  EXPECT_EQ(result.failed[0].reason, "C++ failed: x.h:3: error: bad");
  EXPECT_EQ(result.reason, "b.pt2: C++ failed: x.h:3: error: bad");
  EXPECT_EQ(said_.back(), "net.x.pt2: compiling");
  ExpectWords(ContentOf(folder_ / "arguments"),
              {At("net.pt"), "--tile=16,16", "--batches=2", "--precision=fp16", "--layout=nhwc",
               "--device=cuda:0", "--model-hash=hash", "--name=net ", "--channels=3",
               "--torch=" + BuiltWithTorch(), "--out=" + folder_.path().string()});
  ExpectWords(ContentOf(folder_ / "env"), {"CUDA_VISIBLE_DEVICES=GPU-abc"});
}

TEST_F(CompileClientTest, WhatIsThereIsFoundWithoutPython) {
  setenv("TILERY_PYTHON", At("none").c_str(), 1);
  request_.device = "cuda:0";
  request_.device_name = "GPU (X1)";
  request_.capability = "9.0";
  EXPECT_EQ(Compile().outcome, Outcome::kRefused) << "nothing is there, and no Python";
  MakeZip(Cached(), {{"p/data/aotinductor/m.so", "x"}, {"p/extra/tilery_package.json", Facts()}});
  for (const std::vector<int64_t>& tile : {std::vector<int64_t>{16, 16}, {16}}) {
    request_.tile = tile;
    request_.dims = 2;
    const CompileResult result = Compile();
    ASSERT_EQ(result.outcome, Outcome::kDone) << result.reason;
    ASSERT_EQ(result.packages.size(), 1u);
    EXPECT_EQ(result.packages[0].path, Cached());
    EXPECT_EQ(result.packages[0].hash, HashFile(Cached()));
    EXPECT_EQ(result.packages[0].channels_out, 4);
    EXPECT_TRUE(result.packages[0].reused);
    EXPECT_TRUE(result.python.empty());
  }
  request_.max_autotune = true;
  EXPECT_EQ(Compile().outcome, Outcome::kRefused) << "compiled with other options";
  request_.max_autotune = false;
  request_.batches = {2, 4};
  EXPECT_EQ(Compile().outcome, Outcome::kRefused) << "one is missing";
  request_.batches = {2};
  request_.capability = "9.1";
  EXPECT_EQ(Compile().outcome, Outcome::kRefused) << "for another card";
}

TEST_F(CompileClientTest, EveryEndIsTurnedIntoOneLine) {
  Script("echo 'compile_model.py: error: --tile: no' >&2; exit 2");
  ExpectOneReason(Outcome::kRefused, {"--tile: no"});
  Script("echo 'error: give it a program' >&2; echo later >&2; exit 2");
  ExpectOneReason(Outcome::kRefused, {"give it a program"});
  Script("echo 'RuntimeError: boom' >&2; exit 1");
  ExpectOneReason(Outcome::kFailed, {"exit code 1", "RuntimeError: boom"});
  Script("kill -9 $$");
  ExpectOneReason(Outcome::kFailed, {"signal 9", "no word"});
  Script("echo '{\"packages\": 3}'");
  ExpectOneReason(Outcome::kFailed, {"exit code 0"});
  Script(R"(echo '{"packages": [{"path": "/none", "batch": "x"}], "failed": []}')");
  ExpectOneReason(Outcome::kFailed, {"exit code 0"});
  Script("head -c 300000 /dev/zero >&2; printf '\\nlast\\n' >&2; exit 1");
  ExpectOneReason(Outcome::kFailed, {"last"});
  MakeFile(folder_ / "python", "#!/bin/sh\necho 1.0\n");
  ExpectOneReason(Outcome::kRefused, {"TILERY_PYTHON", "has torch 1.0"});
  request_.libraries = {folder_ / "none.so"};
  ExpectOneReason(Outcome::kRefused, {"none.so"});
}

TEST_F(CompileClientTest, WithoutAFolderForPackagesItSaysSo) {
  setenv("XDG_CACHE_HOME", "/proc/none", 1);
  ExpectOneReason(Outcome::kRefused, {"XDG_CACHE_HOME"});
}

TEST_F(CompileClientTest, ALimitAndAWishToStopEndTheCompilation) {
  Script("sleep 1000 & sleep 1000");
  request_.limit = std::chrono::milliseconds(200);
  ExpectOneReason(Outcome::kFailed, {"given up after"});
  request_.limit = std::chrono::hours(1);
  const CompileResult result =
      CompilePackages(request_, {}, [&] { return fs::exists(folder_ / "arguments"); });
  EXPECT_EQ(result.outcome, Outcome::kStopped);
}

}  // namespace
}  // namespace tilery
