// The promise that nothing is half: a process that is killed at any moment leaves under the final
// name what was there before, or the whole new file; and what it leaves beside it can be swept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <random>
#include <span>
#include <string>
#include <thread>

#include "io/brick.h"
#include "io/error.h"
#include "io/file.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

// Version `n` of the content: its size and every byte depend on n.
std::string Version(int n) {
  std::string content(300'000 + static_cast<size_t>(n) * 1000, '\0');
  std::mt19937 random(static_cast<uint32_t>(n));
  for (char& c : content) c = static_cast<char>(random());
  return content;
}

void Publish(const std::filesystem::path& target, const std::string& content,
             const std::string& attempt, Durability durability) {
  OutputFile file(target, attempt);
  const auto bytes = std::as_bytes(std::span(content));
  for (size_t at = 0; at < bytes.size(); at += 10'000) {
    file.Write(bytes.subspan(at, std::min<size_t>(10'000, bytes.size() - at)));
  }
  file.Publish(durability);
}

// Runs `work` in a child and kills it after `delay`, or lets it end if that comes first. The child
// leaves by _exit: nothing of the test may run twice.
int RunAndKill(std::chrono::microseconds delay, const std::function<void()>& work) {
  fflush(nullptr);  // what is buffered must not be printed by the child as well
  const pid_t child = fork();
  if (child == 0) {
    try {
      work();
    } catch (...) {
      _exit(1);
    }
    _exit(0);
  }
  std::this_thread::sleep_for(delay);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  return status;
}

class KilledWhilePublishing : public ::testing::TestWithParam<Durability> {};
INSTANTIATE_TEST_SUITE_P(Both, KilledWhilePublishing,
                         ::testing::Values(Durability::kFsync, Durability::kRename));

TEST_P(KilledWhilePublishing, LeavesTheOldFileOrTheWholeNewOne) {
  const TempFolder folder;
  const std::filesystem::path target = folder / "out.bin";
  const std::string versions[] = {Version(0), Version(1)};
  // One undisturbed run tells how long publishing takes here. A machine that is busy at one moment
  // and idle at the next makes that a guess, so the spread of the kills follows what happens.
  const auto begin = std::chrono::steady_clock::now();
  Publish(target, versions[0], "u.0", GetParam());
  const std::chrono::duration<double, std::micro> usual = std::chrono::steady_clock::now() - begin;
  std::mt19937 random(1);
  double latest = usual.count() * 2 + 1000;
  int now = 0;
  int killed = 0;
  for (int round = 1; round <= 60; ++round) {
    const int next = 1 - now;
    const std::string attempt = "u." + std::to_string(round);
    std::uniform_real_distribution<double> delay(0, latest);
    const int status = RunAndKill(std::chrono::microseconds(std::lround(delay(random))),
                                  [&] { Publish(target, versions[next], attempt, GetParam()); });
    killed += WIFSIGNALED(status);
    latest *= WIFSIGNALED(status) ? 1.25 : 0.8;
    const std::string content = ContentOf(target);
    ASSERT_TRUE(content == versions[now] || content == versions[next])
        << "round " << round << ": " << content.size();
    if (WIFEXITED(status)) {
      ASSERT_EQ(WEXITSTATUS(status), 0);
      ASSERT_EQ(content, versions[next]) << "finished, so it must be there";
    }
    now = content == versions[0] ? 0 : 1;
    SweepTemporaries(folder.path(), [&](const std::string& dead) { return dead == attempt; });
    ASSERT_EQ(EntriesOf(folder.path()), 1) << "the sweep finds all that a killed process leaves";
  }
  EXPECT_GT(killed, 5) << "the kills came too late to show anything";
}

TEST(KilledWhileWritingABrick, LeavesNoneOrAWholeOne) {
  const TempFolder folder;
  const std::string key(32, 'b');
  const std::string content = Version(7).substr(0, 307'000);
  const Index shape{1, 307, 1000};
  std::mt19937 random(2);
  std::uniform_int_distribution<int64_t> delay(0, 4000);
  int whole = 0;
  for (int round = 0; round < 40; ++round) {
    const std::filesystem::path path = folder / ("brick." + std::to_string(round));
    RunAndKill(std::chrono::microseconds(delay(random)), [&] {
      BrickWriter writer(path, std::to_string(round), key);
      writer.Add({"interior", DType::kU8, 1, Box::Whole(shape)},
                 DenseView(reinterpret_cast<const std::byte*>(content.data()), DType::kU8, 1, shape,
                           Layout::kPlanar));
      writer.Finish();
    });
    if (!std::filesystem::exists(path)) continue;
    EXPECT_NO_THROW(VerifyBrick(path, key));
    ++whole;
  }
  SweepTemporaries(folder.path(), [](const std::string&) { return true; });
  EXPECT_EQ(EntriesOf(folder.path()), whole);
}

// A limit on file sizes is a full disk for one process.
TEST(FullDisk, EndsAtTheWriteAndLeavesNothing) {
  const TempFolder folder;
  MakeFile(folder / "out.bin", "old");
  fflush(nullptr);  // what is buffered must not be printed by the child as well
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{100'000, 100'000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    try {
      Publish(folder / "out.bin", Version(3), "u.1", Durability::kFsync);
    } catch (const Error& error) {
      const bool named = std::string(error.what()).find("File too large") != std::string::npos;
      _exit(error.fault() == Fault::kOutput && named ? 0 : 3);
    }
    _exit(4);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(ContentOf(folder / "out.bin"), "old");
  EXPECT_EQ(EntriesOf(folder.path()), 1);
}

}  // namespace
}  // namespace tilery
