// Real disks that are full or read-only: small file systems in memory, mounted in a child's own
// mount namespace. Permission bits would not do: they do not stop root.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <span>
#include <string>

#include "io/brick.h"
#include "io/error.h"
#include "io/file.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

constexpr int kCannotMount = 77;

bool WriteText(const char* path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

// A namespace in which this process may mount: as root at once, else as root of a user namespace.
bool EnterMountNamespace() {
  const std::string uid = std::to_string(getuid());
  const std::string gid = std::to_string(getgid());
  if (unshare(CLONE_NEWNS) != 0) {
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
    WriteText("/proc/self/setgroups", "deny");
    if (!WriteText("/proc/self/uid_map", "0 " + uid + " 1")) return false;
    if (!WriteText("/proc/self/gid_map", "0 " + gid + " 1")) return false;
  }
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

// Runs `body` in a child that has a disk of 512 KiB on `folder`. `body` returns what went wrong, or
// "".
std::string OnSmallDisk(const std::filesystem::path& folder,
                        const std::function<std::string()>& body) {
  int pipe_ends[2];
  if (pipe(pipe_ends) != 0) return "no pipe";
  fflush(nullptr);  // what is buffered must not be printed by the child as well
  const pid_t child = fork();
  if (child == 0) {
    close(pipe_ends[0]);
    if (!EnterMountNamespace() || mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=512k") != 0) {
      _exit(kCannotMount);
    }
    std::string wrong;
    try {
      wrong = body();
    } catch (const std::exception& error) {
      wrong = std::string("threw ") + error.what();
    }
    if (write(pipe_ends[1], wrong.data(), wrong.size()) < 0) _exit(1);
    _exit(0);
  }
  close(pipe_ends[1]);
  std::string wrong;
  char part[512];
  for (ssize_t got; (got = read(pipe_ends[0], part, sizeof(part))) > 0;)
    wrong.append(part, static_cast<size_t>(got));
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kCannotMount) return "cannot mount";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? wrong : "the child died: " + wrong;
}

void Publish(const std::filesystem::path& target, size_t size) {
  const std::string content(size, 'x');
  OutputFile file(target, "u.1");
  file.Write(std::as_bytes(std::span(content)));
  file.Publish(Durability::kFsync);
}

// "" if `action` throws Error(kOutput) that says `reason`.
std::string Refusal(const std::string& reason, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    const bool right = error.fault() == Fault::kOutput &&
                       std::string(error.what()).find(reason) != std::string::npos;
    return right ? "" : std::string("wrong error: ") + error.what();
  }
  return "no error for \"" + reason + "\"";
}

TEST(SmallDisk, WhenFullTheFileFailsTheFinishedOnesStayAndTheSpaceComesBack) {
  const TempFolder folder;
  const std::string wrong = OnSmallDisk(folder.path(), [&]() -> std::string {
    Publish(folder / "first", 200'000);
    for (int round = 0; round < 3; ++round) {
      const std::string refusal =
          Refusal("No space left", [&] { Publish(folder / "first", 400'000); });
      if (!refusal.empty()) return refusal;
      if (ContentOf(folder / "first") != std::string(200'000, 'x'))
        return "the finished file was touched";
      if (EntriesOf(folder.path()) != 1) return "something was left behind";
    }
    Publish(folder / "second", 200'000);
    return "";
  });
  if (wrong == "cannot mount") GTEST_SKIP() << "no right to mount on this machine";
  EXPECT_EQ(wrong, "");
}

TEST(SmallDisk, WhenFullABrickFailsAndLeavesNothing) {
  const TempFolder folder;
  const std::string wrong = OnSmallDisk(folder.path(), [&]() -> std::string {
    const std::string content(1'000'000, 'x');
    const Index shape{1, 1000, 1000};
    const std::string refusal = Refusal("No space left", [&] {
      BrickWriter writer(folder / "brick", "1", std::string(32, 'c'));
      writer.Add({"interior", DType::kU8, 1, Box::Whole(shape)},
                 DenseView(reinterpret_cast<const std::byte*>(content.data()), DType::kU8, 1, shape,
                           Layout::kPlanar));
      writer.Finish();
    });
    if (!refusal.empty()) return refusal;
    return EntriesOf(folder.path()) == 0 ? "" : "something was left behind";
  });
  if (wrong == "cannot mount") GTEST_SKIP() << "no right to mount on this machine";
  EXPECT_EQ(wrong, "");
}

TEST(SmallDisk, WhenReadOnlyNothingIsWrittenAndReadingStillWorks) {
  const TempFolder folder;
  const std::string wrong = OnSmallDisk(folder.path(), [&]() -> std::string {
    Publish(folder / "first", 1000);
    if (mount(nullptr, folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0) {
      return "the disk can't be made read-only";
    }
    for (const char* name : {"first", "second", "new/folder/third"}) {
      const std::string refusal =
          Refusal("Read-only file system", [&] { Publish(folder / name, 10); });
      if (!refusal.empty()) return refusal;
    }
    if (SweepTemporaries(folder.path(), [](const std::string&) { return true; }) != 0)
      return "swept";
    return HashFile(folder / "first") == HashText(std::string(1000, 'x')) ? "" : "unreadable";
  });
  if (wrong == "cannot mount") GTEST_SKIP() << "no right to mount on this machine";
  EXPECT_EQ(wrong, "");
}

}  // namespace
}  // namespace tilery
