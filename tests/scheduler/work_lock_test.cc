#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "scheduler/ledger.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

TEST(WorkLock, ASecondHolderIsRefusedWithHostAndPidOfTheFirst) {
  const TempFolder folder;
  const WorkLock lock(folder / "deep/work");
  EXPECT_TRUE(WorkLock::Held(folder / "deep/work"));
  const std::string why = ErrorOf(Fault::kUsage, [&] { WorkLock second(folder / "deep/work"); });
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  EXPECT_NE(why.find("pid " + std::to_string(getpid())), std::string::npos) << why;
  EXPECT_NE(why.find(host), std::string::npos) << why;
}

TEST(WorkLock, AFolderThatItMakesIsForItsOwnerAlone) {
  const TempFolder folder;
  const WorkLock lock(folder / "work");
  struct stat info {};
  ASSERT_EQ(stat((folder / "work").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST(WorkLock, TakesTheRightToWriteToItFromEverybody) {
  const TempFolder folder;
  ASSERT_EQ(mkdir((folder / "work").c_str(), 0700), 0);
  ASSERT_EQ(chmod((folder / "work").c_str(), 0777), 0);
  const WorkLock lock(folder / "work");
  struct stat info {};
  ASSERT_EQ(stat((folder / "work").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0775u);
}

TEST(WorkLock, AFolderOfSomebodyElseThatEverybodyMayWriteToIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become somebody else";
  const TempFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  ASSERT_EQ(mkdir((folder / "work").c_str(), 0700), 0);
  ASSERT_EQ(chmod((folder / "work").c_str(), 0777), 0);
  ASSERT_EQ(seteuid(65534), 0);
  const std::string why = ErrorOf(Fault::kUsage, [&] { WorkLock lock(folder / "work"); });
  ASSERT_EQ(seteuid(0), 0);
  EXPECT_NE(why.find("chmod o-w"), std::string::npos) << why;
}

TEST(WorkLock, EndsWithItsHolder) {
  const TempFolder folder;
  { const WorkLock lock(folder.path()); }
  EXPECT_FALSE(WorkLock::Held(folder.path()));
  EXPECT_FALSE(WorkLock::Held(folder / "none"));

  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  const pid_t child = fork();
  if (child == 0) {
    const WorkLock lock(folder.path());
    (void)!write(fds[1], "x", 1);
    pause();
  }
  char c;
  ASSERT_EQ(read(fds[0], &c, 1), 1);
  EXPECT_TRUE(WorkLock::Held(folder.path()));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(WorkLock::Held(folder.path()));
  const WorkLock again(folder.path());
  close(fds[0]), close(fds[1]);
}

TEST(WorkLock, LookingDoesNotDisturbAStart) {
  const TempFolder folder;
  { const WorkLock lock(folder.path()); }
  std::atomic<bool> stop{false};
  std::thread looker([&] {
    while (!stop) WorkLock::Held(folder.path());
  });
  for (int i = 0; i < 2000; ++i) EXPECT_NO_THROW(WorkLock lock(folder.path()));
  stop = true;
  looker.join();
}

TEST(WorkLock, DiscardedItLeavesNoFolderThatItMade) {
  const TempFolder folder;
  {
    WorkLock lock(folder / "out/.tilery/job");
    EXPECT_TRUE(lock.made_folder());
    lock.Discard();
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "out"));

  std::filesystem::create_directory(folder / "out");
  { WorkLock(folder / "out/.tilery/job").Discard(); }
  EXPECT_TRUE(std::filesystem::is_empty(folder / "out"));

  {
    WorkLock lock(folder / "out/.tilery/job");
    MakeFile(folder / "out/.tilery/kept", "x");
    lock.Discard();
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "out/.tilery/job"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/.tilery/kept"));
}

TEST(WorkLock, AFolderThatWasThereIsNeverDiscarded) {
  const TempFolder folder;
  {
    WorkLock lock(folder.path());
    EXPECT_FALSE(lock.made_folder());
    lock.Discard();
    EXPECT_TRUE(WorkLock::Held(folder.path()));
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "lock"));
}

// Two holders at a time would be two runs in one ledger.
TEST(WorkLock, OneThatIsDiscardedNeverLetsTwoIn) {
  const TempFolder folder;
  std::atomic<int> inside{0}, most{0}, taken{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        try {
          WorkLock lock(folder / "a/work");
          most = std::max<int>(most, ++inside);
          ++taken;
          std::this_thread::sleep_for(std::chrono::microseconds(300));
          --inside;
          lock.Discard();
        } catch (const Error& error) {
          EXPECT_EQ(error.fault(), Fault::kUsage) << error.what();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, 1);
  EXPECT_GT(taken, 0);
}

TEST(WorkLock, AFolderThatCannotBeMadeIsNamed) {
  const std::string why = ErrorOf(Fault::kOutput, [] { WorkLock lock("/proc/none/work"); });
  EXPECT_NE(why.find("/proc/none/work"), std::string::npos) << why;
}

}  // namespace
}  // namespace tilery
