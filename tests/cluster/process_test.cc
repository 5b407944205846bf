#include "cluster/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cluster/worker_start.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

Child::Ended Wait(Child& child) {
  for (;;) {
    if (const auto ended = child.Poll()) return *ended;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

std::string OutputOf(const std::string& script) {
  auto [read_end, write_end] = Pipe();
  Child child({"/bin/sh", {"-c", script}, {}, -1, write_end.get(), false});
  write_end.Reset();
  std::string text;
  char chunk[4096];
  for (ssize_t got; (got = read(read_end.get(), chunk, sizeof chunk)) > 0;)
    text.append(chunk, static_cast<size_t>(got));
  Wait(child);
  return text;
}

TEST(Child, TellsHowItEnded) {
  Child code({"/bin/sh", {"-c", "exit 7"}, {}, -1, -1, false});
  EXPECT_EQ(Wait(code).words(), "exit code 7");
  Child killed({"/bin/sh", {"-c", "kill -9 $$"}, {}, -1, -1, false});
  EXPECT_EQ(Wait(killed).words(), "signal 9 (Killed)");
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
  EXPECT_EQ(Wait(child).words(), "exit code 0");
}

TEST(Child, AProgramThatCannotRunIsNamedAtOnce) {
  const std::string why = ErrorOf(Fault::kInternal, [] {
    Child({"/none/program", {}, {}, -1, -1, false});
  });
  EXPECT_NE(why.find("/none/program"), std::string::npos) << why;
  EXPECT_NE(why.find("No such file"), std::string::npos) << why;
}

TEST(WorkerStart, TravelsWholeAndNeedsAWholeLine) {
  auto [a, b] = SocketPair();
  WriteWorkerStart(a.get(), {{"host", 77}, "token", "w3", "cpu", 4, 9, "/log"});
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

}  // namespace
}  // namespace tilery
