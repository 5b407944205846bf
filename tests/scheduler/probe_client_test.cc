#include "scheduler/probe_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

// A worker of a few shell lines: counts its calls in a file and prints a prepared answer.
class ProbeClientTest : public testing::Test {
 protected:
  ProbeClientTest() {
    setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1);
    setenv("TILERY_WORKER", (folder_ / "worker").c_str(), 1);
    unsetenv("TILERY_TORCH");
    Script("cat > /dev/null; echo x >> " + At("calls") + "; cat " + At("answer"));
    Answer(true, 4);
  }
  ~ProbeClientTest() override {
    unsetenv("XDG_CACHE_HOME");
    unsetenv("TILERY_WORKER");
  }
  std::string At(const std::string& name) const { return (folder_ / name).string(); }
  void Script(const std::string& lines) {
    MakeFile(folder_ / "worker", "#!/bin/sh\n" + lines + "\n");
    std::filesystem::permissions(folder_ / "worker", std::filesystem::perms::owner_all);
  }
  void Answer(bool runs, int scale) {
    const std::string s = std::to_string(scale);
    MakeFile(folder_ / "answer",
             std::string(R"({"runs": )") + (runs ? "true" : "false") +
                 R"(, "error": "no memory", "channels_in": 3, "channels_out": 1,
                                         "scale": [1, 1, )" +
                 s + ", 1, " + s + R"(, 1], "numerics": {"device_kind": "cpu/x", "torch": "2"}})");
  }
  ProbeAnswer Ask() {
    ProbeRequest request;
    request.model = "/m.pt";
    request.model_hash = "hash";
    return AskWorker(request, CpuSeat(), warnings_);
  }
  int64_t Calls() const {
    const std::string calls = ContentOf(folder_ / "calls");
    return std::count(calls.begin(), calls.end(), 'x');
  }

  TempFolder folder_;
  std::vector<std::string> warnings_;
};

TEST_F(ProbeClientTest, AnAnswerIsAskedForOnce) {
  for (int k = 0; k < 2; ++k) {
    const ProbeAnswer answer = Ask();
    EXPECT_TRUE(answer.runs);
    EXPECT_EQ(answer.channels_out, 1);
    EXPECT_EQ(answer.scale[2], Rational::Of(4, 1));
    EXPECT_EQ(answer.torch, "2");
  }
  EXPECT_EQ(Calls(), 1);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(ProbeClientTest, ATrialThatFailedIsTriedAgain) {
  Answer(false, 1);
  EXPECT_EQ(Ask().error, "no memory");
  Answer(true, 4);
  EXPECT_TRUE(Ask().runs);
  EXPECT_EQ(Calls(), 2);
}

TEST_F(ProbeClientTest, ADamagedCacheIsWrittenAnew) {
  Ask();
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache/tilery"))
    MakeFile(entry.path(), "{");
  EXPECT_TRUE(Ask().runs);
  EXPECT_TRUE(Ask().runs);
  EXPECT_EQ(Calls(), 2);
}

TEST_F(ProbeClientTest, WithoutACacheItWarnsOnceAndGoesOn) {
  setenv("XDG_CACHE_HOME", "/proc/none", 1);
  Ask();
  EXPECT_TRUE(Ask().runs);
  EXPECT_EQ(Calls(), 2);
  ASSERT_EQ(warnings_.size(), 1u);
  ExpectWords(warnings_[0], {"cache", "XDG_CACHE_HOME"});
}

TEST_F(ProbeClientTest, AWorkerThatDiesIsQuotedWithTheWayOut) {
  Script("echo libtorch_cpu.so: cannot open >&2; exit 127");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Ask(); }),
              {"exit 127", "libtorch_cpu.so", "TILERY_TORCH"});
  Script("kill -SEGV $$");
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Ask(); }), {"signal 11"});
  Script("cat > /dev/null; echo nonsense");
  ExpectWords(ErrorOf(Fault::kInternal, [&] { Ask(); }), {"not understood"});
  setenv("TILERY_WORKER", At("none").c_str(), 1);
  ExpectWords(ErrorOf(Fault::kUsage, [&] { Ask(); }), {"none"});
}

TEST_F(ProbeClientTest, WordsBeyondAPipesBufferOnBothSidesDoNotBlock) {
  Script(
      "cat > /dev/null; head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero | tr '\\0' ' '; "
      "cat " +
      At("answer"));
  EXPECT_TRUE(Ask().runs);
}

}  // namespace
}  // namespace tilery
