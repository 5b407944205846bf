#include "cluster/launcher.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

using namespace std::chrono_literals;

// Whether a process that is no zombie has this number.
bool Alive(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const size_t end = text.rfind(')');
  return end != std::string::npos && end + 2 < text.size() && text[end + 2] != 'Z';
}

// Those it may use, as the kernel writes them.
std::string CpusOf(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/status");
  const std::string name = "Cpus_allowed_list:\t";
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(name)) return line.substr(name.size());
  return "";
}

// The limit only ends a test that fails: a machine may be busy with other things.
bool Await(const std::function<bool()>& happened, std::chrono::milliseconds limit = 60s) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until) {
    if (happened()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return happened();
}

class Launcher : public testing::Test {
 protected:
  std::filesystem::path Fakes() {
    const char* folder = std::getenv("TILERY_FAKES");
    EXPECT_NE(folder, nullptr) << "the folder of fake_tilery";
    return folder != nullptr ? folder : "";
  }
  std::unique_ptr<LocalLauncher> Start(const std::string& what, const std::string& id = "w0",
                                       const CpuSet& cpus = {}) {
    return std::make_unique<LocalLauncher>(
        Fakes() / "fake_tilery",
        std::vector<WorkerLaunch>{{id, what, 1, Fakes() / "fake_worker", {}, cpus}},
        Endpoint{"127.0.0.1", 1}, std::string(64, 'a'), 1, folder_.path());
  }
  std::string Log(const std::string& id = "w0") {
    return ContentOf(folder_ / ("worker-" + id + ".log"));
  }
  // Pids of all worker processes so far, oldest first.
  std::vector<pid_t> Workers() {
    std::vector<pid_t> pids;
    const std::string log = Log();
    for (size_t at = 0; (at = log.find("pid ", at)) != std::string::npos; ++at) {
      pids.push_back(std::atoi(log.c_str() + at + 4));
    }
    return pids;
  }
  void TakeEvents(LocalLauncher& launcher) {
    for (auto& event : launcher.Poll()) events_.push_back(std::move(event));
  }
  bool AwaitWorkers(LocalLauncher& launcher, size_t count) {
    const bool there = Await([&] {
      TakeEvents(launcher);
      return Workers().size() >= count;
    });
    // What was told before the last of them started may have come after the last look.
    TakeEvents(launcher);
    return there;
  }
  bool AwaitGone(LocalLauncher& launcher) {
    return Await([&] {
      TakeEvents(launcher);
      return !events_.empty() && events_.back().gone_for_good;
    });
  }
  TempFolder folder_;
  std::vector<LocalLauncher::Event> events_;
};

TEST_F(Launcher, StartsAWorkerAndEndsItOnASignal) {
  const auto launcher = Start("wait");
  ASSERT_TRUE(AwaitWorkers(*launcher, 1));
  EXPECT_NE(Log().find("token 64"), std::string::npos);
  launcher->Signal(SIGTERM);
  EXPECT_TRUE(launcher->WaitAll(60));
  EXPECT_FALSE(Alive(Workers()[0]));
  EXPECT_TRUE(launcher->Poll().empty()) << "an end that was asked for is no death";
}

TEST_F(Launcher, ASecondSignalEndsAWorkerThatIgnoresTheFirst) {
  const auto launcher = Start("stubborn");
  ASSERT_TRUE(AwaitWorkers(*launcher, 1));
  launcher->Signal(SIGTERM);
  EXPECT_FALSE(launcher->WaitAll(0.5));
  launcher->Signal(SIGTERM);
  EXPECT_TRUE(launcher->WaitAll(60));
  EXPECT_FALSE(Alive(Workers()[0]));
}

TEST_F(Launcher, RestartsAKilledWorkerAndTellsHowItDied) {
  const auto launcher = Start("wait");
  ASSERT_TRUE(AwaitWorkers(*launcher, 1));
  kill(Workers()[0], SIGKILL);
  ASSERT_TRUE(AwaitWorkers(*launcher, 2));
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_EQ(events_[0].worker, "w0");
  EXPECT_FALSE(events_[0].gone_for_good);
  EXPECT_NE(events_[0].how.find("signal 9"), std::string::npos) << events_[0].how;
}

TEST_F(Launcher, AWorkerThatCannotStartIsGoneAfterThreeTriesWithItsLastWords) {
  const auto launcher = Start("exit:4");
  ASSERT_TRUE(AwaitGone(*launcher));
  EXPECT_EQ(events_.size(), 3u);
  EXPECT_EQ(Workers().size(), 3u);
  EXPECT_FALSE(events_.back().refused) << "another time it might start";
  EXPECT_NE(events_.back().how.find("exit code 4"), std::string::npos) << events_.back().how;
  EXPECT_NE(events_.back().how.find("cannot load the model"), std::string::npos)
      << events_.back().how;
  EXPECT_TRUE(launcher->WaitAll(60));
}

TEST_F(Launcher, AWorkerThatRefusesTheJobIsNotStartedAgainAndItsReasonIsHandedOn) {
  const auto launcher = Start("exit:" + std::to_string(kRefusedExit));
  ASSERT_TRUE(AwaitGone(*launcher));
  EXPECT_EQ(Workers().size(), 1u);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_TRUE(events_[0].refused);
  EXPECT_EQ(events_[0].how, "cannot load the model");
  EXPECT_TRUE(launcher->WaitAll(60));
}

TEST_F(Launcher, AWorkerWhoseLibrariesAreMissingIsNotStartedAgain) {
  const auto launcher = Start("exit:127");  // the code of the dynamic loader
  ASSERT_TRUE(AwaitGone(*launcher));
  EXPECT_EQ(Workers().size(), 1u);
  ASSERT_EQ(events_.size(), 1u);
  EXPECT_TRUE(events_[0].refused);
  EXPECT_NE(events_[0].how.find("exit code 127"), std::string::npos) << events_[0].how;
}

TEST_F(Launcher, AWorkerIsRetiredWhenItsDeviceHasNoMemoryForAFreshProcessEither) {
  for (const std::string what : {"exit:", "ready-exit:"}) {
    const std::string id = what == "exit:" ? "w0" : "w1";
    events_.clear();
    const auto launcher = Start(what + std::to_string(kNoMemoryExit), id);
    ASSERT_TRUE(AwaitGone(*launcher));
    ASSERT_EQ(events_.size(), 2u) << what;
    for (const auto& event : events_) {
      EXPECT_EQ(event.worker, id);
      EXPECT_TRUE(event.no_memory);
      EXPECT_FALSE(event.refused) << "another time there may be more";
      EXPECT_EQ(event.how, what == "exit:" ? "cannot load the model" : "cannot go on");
    }
    EXPECT_FALSE(events_[0].gone_for_good) << "a fresh process tries once more";
    EXPECT_TRUE(launcher->WaitAll(60));
  }
}

TEST_F(Launcher, AWorkerThatEndsAsItWasToldToIsNoDeathAndNotReplacedAtOnce) {
  const auto launcher = Start("ready-exit:0");
  ASSERT_TRUE(AwaitWorkers(*launcher, 1));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  for (const auto& event : launcher->Poll()) events_.push_back(event);
  EXPECT_TRUE(events_.empty()) << events_[0].how;
  EXPECT_EQ(Workers().size(), 1u);
  EXPECT_TRUE(launcher->WaitAll(60));
}

TEST_F(Launcher, DeathsBySignalAtStartAreCapped) {
  const auto launcher = Start("die");
  ASSERT_TRUE(AwaitGone(*launcher));
  EXPECT_EQ(events_.size(), 5u);
  EXPECT_NE(events_.back().how.find("Aborted"), std::string::npos) << events_.back().how;
}

TEST_F(Launcher, AWorkerThatWasReadyIsAlwaysRestarted) {
  const auto launcher = Start("ready-die");
  ASSERT_TRUE(AwaitWorkers(*launcher, 8));
  for (const auto& event : events_) EXPECT_FALSE(event.gone_for_good) << event.how;
}

TEST_F(Launcher, AKilledSupervisorTakesItsWorkerWithItAndIsReplaced) {
  const auto launcher = Start("stubborn");
  ASSERT_TRUE(AwaitWorkers(*launcher, 1));
  const pid_t worker = Workers()[0];
  std::ifstream in("/proc/" + std::to_string(worker) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), {});
  const pid_t supervisor = std::atoi(text.c_str() + text.rfind(')') + 4);
  ASSERT_GT(supervisor, 1);
  kill(supervisor, SIGKILL);
  EXPECT_TRUE(Await([&] { return !Alive(worker); }));
  ASSERT_TRUE(AwaitWorkers(*launcher, 2));
  ASSERT_FALSE(events_.empty());
  EXPECT_NE(events_[0].how.find("supervisor"), std::string::npos) << events_[0].how;
}

TEST_F(Launcher, AHungWorkerIsKilledOnRequest) {
  const auto launcher = Start("stubborn");
  ASSERT_TRUE(AwaitWorkers(*launcher, 1));
  const pid_t worker = Workers()[0];
  launcher->Kill("w0");
  EXPECT_TRUE(Await([&] { return !Alive(worker); }));
  EXPECT_TRUE(AwaitWorkers(*launcher, 2));
}

TEST_F(Launcher, NothingIsLeftWhenItGoes) {
  pid_t worker = 0;
  {
    const auto launcher = Start("stubborn");
    ASSERT_TRUE(AwaitWorkers(*launcher, 1));
    worker = Workers()[0];
  }
  EXPECT_TRUE(Await([&] { return !Alive(worker); }));
}

TEST_F(Launcher, NothingIsLeftWhenItsProcessIsKilled) {
  const pid_t scheduler = fork();
  if (scheduler == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const auto launcher = Start("stubborn");
    pause();
  }
  ASSERT_TRUE(Await([&] { return !Workers().empty(); }));
  const pid_t worker = Workers()[0];
  EXPECT_TRUE(Alive(worker));
  kill(scheduler, SIGKILL);
  waitpid(scheduler, nullptr, 0);
  EXPECT_TRUE(Await([&] { return !Alive(worker); }));
}

TEST_F(Launcher, TheLogOfAWorkerIsCapped) {
  const auto launcher = Start("chatter");
  EXPECT_TRUE(Await([&] { return Log().find("left out") != std::string::npos; }));
  std::this_thread::sleep_for(200ms);  // in which more would come
  EXPECT_LT(Log().size(), (1u << 20) + 1000);
  EXPECT_TRUE(Alive(Workers()[0])) << "a worker is never stopped by a full log";
}

TEST_F(Launcher, LibTorchIsFoundByTheWorkerFirst) {
  std::filesystem::create_directories(folder_ / "torch/lib");
  setenv("TILERY_TORCH", (folder_ / "torch").c_str(), 1);
  setenv("LD_LIBRARY_PATH", "/before", 1);
  const auto launcher = Start("print:LD_LIBRARY_PATH");
  unsetenv("TILERY_TORCH");
  unsetenv("LD_LIBRARY_PATH");
  const std::string wanted = "value '" + (folder_ / "torch/lib").string() + ":/before'";
  EXPECT_TRUE(Await([&] { return Log().find(wanted) != std::string::npos; })) << Log();
}

TEST_F(Launcher, AWorkerIsBoundToItsCpusAfterARestartToo) {
  const CpuSet usable = UsableCpuList();
  if (usable.size() < 2) GTEST_SKIP() << "with one CPU all are bound to it";
  const auto launcher = Start("wait", "w0", {usable.back()});
  ASSERT_TRUE(AwaitWorkers(*launcher, 1));
  kill(Workers()[0], SIGKILL);
  ASSERT_TRUE(AwaitWorkers(*launcher, 2));
  EXPECT_EQ(CpusOf(Workers()[1]), std::to_string(usable.back()));
  const auto other = Start("wait", "w1");
  ASSERT_TRUE(Await([&] { return Log("w1").find("pid ") != std::string::npos; }));
  EXPECT_EQ(CpusOf(std::atoi(Log("w1").c_str() + 4)), ToText(usable)) << "nothing was said";
}

TEST_F(Launcher, AWorkerWhoseCpusCanNotBeHadRunsAllTheSame) {
  const auto launcher = Start("wait", "w0", {60000});
  ASSERT_TRUE(AwaitWorkers(*launcher, 1));
  EXPECT_NE(Log().find("bind it to 60000"), std::string::npos) << Log();
  EXPECT_EQ(CpusOf(Workers()[0]), ToText(UsableCpuList()));
  EXPECT_TRUE(events_.empty());
}

TEST_F(Launcher, AProgramThatIsMissingIsNamed) {
  const std::string why = ErrorOf(Fault::kInternal, [] {
    LocalLauncher("/none/tilery", {{"w0", "cpu", 1, "/none/worker", {}}}, {"127.0.0.1", 1}, "t", 1);
  });
  EXPECT_NE(why.find("/none/tilery"), std::string::npos) << why;
}

}  // namespace
}  // namespace tilery
