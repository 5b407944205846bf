#include "cluster/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cluster/worker_start.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

std::string OutputOf(const std::string& script) {
  auto [read_end, write_end] = Pipe();
  Child child({"/bin/sh", {"-c", script}, {}, -1, write_end.get(), false});
  write_end.Reset();
  std::string text;
  char chunk[4096];
  for (ssize_t got; (got = read(read_end.get(), chunk, sizeof chunk)) > 0;)
    text.append(chunk, static_cast<size_t>(got));
  child.Wait();
  return text;
}

// Its parent may take a moment to reap it.
bool IsGone(pid_t pid) {
  for (int k = 0; k < 1000; ++k) {
    const std::string stat = ContentOf("/proc/" + std::to_string(pid) + "/stat");
    if (stat.empty() || stat.find(") Z ") != stat.npos) return true;
    usleep(10000);
  }
  return false;
}

Ran RunScript(const std::string& script, const std::string& input = "") {
  return RunToEnd({"/bin/sh", {"-c", script}, {}}, input);
}

TEST(Child, TellsHowItEnded) {
  Child code({"/bin/sh", {"-c", "exit 7"}, {}, -1, -1, false});
  EXPECT_EQ(code.Wait().words(), "exit code 7");
  Child killed({"/bin/sh", {"-c", "kill -9 $$"}, {}, -1, -1, false});
  EXPECT_EQ(killed.Wait().words(), "signal 9 (Killed)");
  EXPECT_EQ(killed.Poll()->words(), "signal 9 (Killed)") << "the answer is kept";
}

TEST(Child, InheritsNoDescriptorOfOurs) {
  const int leak = open("/dev/null", O_RDONLY);  // without close-on-exec, as some libraries do
  const std::string open_ones = OutputOf("ls /proc/self/fd | tr '\\n' ' '");
  close(leak);
  // 0, 1, 2, and the one of ls itself.
  EXPECT_EQ(open_ones, "0 1 2 3 ");
}

TEST(Child, HasNoBlockedSignalsAndAnEmptyInput) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  const std::string blocked = OutputOf("grep SigBlk /proc/self/status; cat; echo end");
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  EXPECT_EQ(blocked, "SigBlk:\t0000000000000000\nend\n");
}

TEST(Child, GetsItsControlSocketAsDescriptorThree) {
  auto [ours, its] = SocketPair();
  Child child(
      {"/bin/sh", {"-c", "read line <&3; test \"$line\" = hello"}, {}, its.get(), -1, false});
  ASSERT_EQ(write(ours.get(), "hello\n", 6), 6);
  EXPECT_EQ(child.Wait().words(), "exit code 0");
}

TEST(Child, AProgramThatCannotRunIsNamedAtOnce) {
  const std::string why = ErrorOf(Fault::kInternal, [] {
    Child({"/none/program", {}, {}, -1, -1, false});
  });
  EXPECT_NE(why.find("/none/program"), std::string::npos) << why;
  EXPECT_NE(why.find("No such file"), std::string::npos) << why;
}

TEST(RunToEnd, KeepsOutputAndErrorsApart) {
  const Ran ran = RunScript("read x; echo \"got $x\"; echo trouble >&2; exit 5", "a question\n");
  EXPECT_EQ(ran.output, "got a question\n");
  EXPECT_EQ(ran.errors, "trouble\n");
  EXPECT_EQ(ran.ended.words(), "exit code 5");
}

TEST(RunToEnd, CarriesMoreThanAnyBufferBothWaysAtOnce) {
  std::string input(900000, 'x');
  input.back() = '\n';
  const Ran ran = RunScript("tee /dev/stderr", input);
  EXPECT_EQ(ran.output, input);
  EXPECT_EQ(ran.errors, input);
}

TEST(RunToEnd, AProgramThatDoesNotReadItsInputEndsAsItDoes) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(RunScript("exit 3", "short\n").ended.words(), "exit code 3");
    EXPECT_EQ(RunScript("exit 4", std::string(3 << 20, 'x')).ended.words(), "exit code 4");
  }
}

TEST(RunToEnd, KeepsOnlySoMuchOfWhatIsWritten) {
  const Ran ran = RunScript("head -c 5000000 /dev/zero");
  EXPECT_GE(ran.output.size(), kOutputKept);
  EXPECT_LT(ran.output.size(), kOutputKept + 100000);
  EXPECT_EQ(ran.ended.words(), "exit code 0");
}

TEST(WorkerEnvironment, HasTheFolderOfLibTorchFirst) {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const TempFolder torch;
  const char* const known = getenv("LD_LIBRARY_PATH");
  const std::string before = known != nullptr ? known : "";
  unsetenv("LD_LIBRARY_PATH");
  setenv("TILERY_TORCH", torch.path().c_str(), 1);
  EXPECT_EQ(WorkerEnvironment(), (Variables{{"LD_LIBRARY_PATH", torch.path().string()}}));
  std::filesystem::create_directory(torch / "lib");
  setenv("LD_LIBRARY_PATH", "/before", 1);
  EXPECT_EQ(WorkerEnvironment(),
            (Variables{{"LD_LIBRARY_PATH", (torch / "lib").string() + ":/before"}}));
  for (const char* none : {"", static_cast<const char*>(nullptr)}) {
    none != nullptr ? setenv("TILERY_TORCH", none, 1) : unsetenv("TILERY_TORCH");
    EXPECT_TRUE(WorkerEnvironment().empty());
  }
  before.empty() ? unsetenv("LD_LIBRARY_PATH") : setenv("LD_LIBRARY_PATH", before.c_str(), 1);
}

TEST(WorkerStart, TravelsWholeAndNeedsAWholeLine) {
  auto [a, b] = SocketPair();
  WriteWorkerStart(a.get(), {{"host", 77}, "token", "w3", "cpu", 4, 9, "/log", "", {}});
  const WorkerStart start = ReadWorkerStart(b.get());
  EXPECT_EQ(start.endpoint.host, "host");
  EXPECT_EQ(start.endpoint.port, 77);
  EXPECT_EQ(start.token, "token");
  EXPECT_EQ(start.worker, "w3");
  EXPECT_EQ(start.threads, 4);
  EXPECT_EQ(start.epoch, 9);
  ASSERT_EQ(write(a.get(), "{\"host\"", 7), 7);
  a.Reset();
  ErrorOf(Fault::kInternal, [&, fd = b.get()] { ReadWorkerStart(fd); });
}

TEST(RunToEnd, ALimitEndsAProgramWithAllThatItStarted) {
  TempFolder folder;
  const std::string script = "sleep 1000 & echo $! > " + (folder / "pid").string() + "; wait";
  RunBounds bounds;
  // Long enough for a shell to write a line, on any machine.
  bounds.limit = std::chrono::seconds(5);
  const Ran ran =
      RunToEnd({.program = "/bin/sh", .arguments = {"-c", script}, .own_group = true}, "", bounds);
  EXPECT_EQ(ran.by, Ran::By::kLimit);
  EXPECT_EQ(ran.ended.words(), "signal 9 (Killed)");
  EXPECT_TRUE(IsGone(std::stoi(ContentOf(folder / "pid"))));
}

TEST(RunToEnd, WhatAProgramLeavesBehindEndsWithIt) {
  TempFolder folder;
  const std::string script = "sleep 1000 & echo $! > " + (folder / "pid").string() + "; exit 3";
  const Ran ran = RunToEnd({.program = "/bin/sh", .arguments = {"-c", script}, .own_group = true},
                           "", RunBounds{});
  EXPECT_EQ(ran.by, Ran::By::kItself);
  EXPECT_EQ(ran.ended.words(), "exit code 3");
  EXPECT_TRUE(IsGone(std::stoi(ContentOf(folder / "pid"))));
}

TEST(RunToEnd, TellsLinesAsTheyComeAndEndsWhenItIsAskedTo) {
  const std::string script = "printf 'a\\nb\\nc' >&2; cat";
  std::vector<std::string> lines;
  RunBounds bounds;
  bounds.on_error_line = [&](const std::string& line) { lines.push_back(line); };
  bounds.stop = [&] { return lines.size() == 2; };
  bounds.hold_input = true;
  const Ran ran =
      RunToEnd({.program = "/bin/sh", .arguments = {"-c", script}, .own_group = true}, "", bounds);
  EXPECT_EQ(ran.by, Ran::By::kStop);
  EXPECT_EQ(lines, (std::vector<std::string>{"a", "b", "c"}));
}

}  // namespace
}  // namespace tilery
