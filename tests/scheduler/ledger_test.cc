#include "scheduler/ledger.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <thread>

#include "scheduler/checkpointer.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

OutputRecord Output(const std::string& path, int64_t tiles) {
  OutputRecord record;
  record.path = path;
  record.item_key = "key of " + path;
  record.published = true;
  record.file = {100, "hash", {100, 1, 2, 3}};
  record.tiles = tiles;
  return record;
}

// More than a checkpoint's worth of pages, again and again, beside the commits.
TEST(Ledger, ItsLogIsMovedIntoTheDatabaseBesideTheCommits) {
  const TempFolder folder;
  const std::filesystem::path database = folder / "ledger.sqlite",
                              log = folder / "ledger.sqlite-wal";
  std::mt19937 random(7);
  int64_t bricks = 0;
  {
    Ledger ledger(folder.path());
    const auto commit = [&] {
      for (int k = 0; k < 50; ++k, ++bricks) {
        const std::string key = std::to_string(random()) + " " + std::to_string(bricks);
        ledger.RecordBrick({key, std::string(200, 'f'), 1, "h", 1});
      }
      ledger.Commit(Durability::kRename);
    };
    constexpr int64_t kPage = 4096 + 24;  // bytes of one in the log
    const auto before_any = std::filesystem::file_size(database);
    while (std::filesystem::file_size(log) < (Checkpointer::kPages + 100) * kPage) commit();
    // Nobody commits any more: only the thread can do it. The log has many versions of few pages.
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::filesystem::file_size(database) < before_any + 50 * 4096) {
      ASSERT_LT(std::chrono::steady_clock::now(), until) << "nothing has been moved";
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    // The rest is moved with a commit, so that the next one begins the log anew: it grows no more.
    for (int64_t before = 0, now = 1; now > before;) {
      before = static_cast<int64_t>(std::filesystem::file_size(log));
      commit();
      now = static_cast<int64_t>(std::filesystem::file_size(log));
      ASSERT_LT(now, Checkpointer::kTooMany / 2 * kPage);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  const Ledger again(folder.path());
  int64_t found = 0;
  again.EachBrick([&](const BrickRecord&) { ++found; });
  EXPECT_EQ(found, bricks);
}

TEST(Ledger, KeepsWhatWasCommitted) {
  const TempFolder folder;
  const std::string odd("o\xff\0dd", 5);  // paths are bytes
  {
    Ledger ledger(folder.path());
    ledger.ClaimOutput("a", "key a");
    ledger.RecordOutput(Output(odd, 7));
    ledger.RecordBrick({"k", "k.1.1.brick", 5, "h", 3});
    Header header;
    header.format = "png";
    header.shape = {1, 20, 30};
    header.channels = 3;
    ledger.RecordInput("in", {{1, 2, 3, 4}, {1, 5, 6, 4}, header, "content"});
    ledger.SetMeta("numerics", "n");
    ledger.Commit();
    ledger.RecordBrick({"lost", "x", 1, "h", 1});  // never committed
  }
  const Ledger ledger(folder.path());
  EXPECT_EQ(ledger.epoch(), 2);
  EXPECT_FALSE(ledger.FindOutput("a")->published);
  const auto output = ledger.FindOutput(odd);
  ASSERT_TRUE(output);
  EXPECT_EQ(output->tiles, 7);
  EXPECT_EQ(output->file.stamp, (FileStamp{100, 1, 2, 3}));
  EXPECT_EQ(ledger.FindBrick("k")->file, "k.1.1.brick");
  EXPECT_FALSE(ledger.FindBrick("lost"));
  const auto input = ledger.FindInput("in");
  ASSERT_TRUE(input);
  EXPECT_EQ(input->header.format, "png");
  EXPECT_EQ(input->stamp, (FileStamp{1, 2, 3, 4}));
  EXPECT_EQ(input->header.shape, (Index{1, 20, 30}));
  EXPECT_EQ(input->content_hash, "content");
  EXPECT_EQ(ledger.Meta("numerics"), "n");
  EXPECT_EQ(ledger.Meta("none"), "");
}

TEST(Ledger, AClaimUnderAnotherKeyTakesBackThePublication) {
  const TempFolder folder;
  Ledger ledger(folder.path());
  ledger.RecordOutput(Output("a", 1));
  ledger.ClaimOutput("a", "key of a");
  EXPECT_TRUE(ledger.FindOutput("a")->published);
  ledger.ClaimOutput("a", "new key");
  EXPECT_FALSE(ledger.FindOutput("a")->published);
  ledger.Commit();
}

TEST(Ledger, VisitsAllRecords) {
  const TempFolder folder;
  Ledger ledger(folder.path());
  for (int i = 0; i < 10; ++i) {
    ledger.RecordOutput(Output("p" + std::to_string(i), i));
    ledger.RecordBrick({"k" + std::to_string(i), "f", i, "h", 0});
  }
  ledger.Commit();
  ledger.ForgetBrick("k3");
  ledger.Commit();
  int64_t tiles = 0, bytes = 0;
  ledger.EachOutput([&](const OutputRecord& r) { tiles += r.tiles; });
  ledger.EachBrick([&](const BrickRecord& r) { bytes += r.size; });
  EXPECT_EQ(tiles, 45);
  EXPECT_EQ(bytes, 42);
}

TEST(Ledger, ARunThatWasTakenOverSaysSoInsteadOfWriting) {
  const TempFolder folder;
  Ledger first(folder.path());
  first.SetMeta("who", "first");
  first.Commit();
  Ledger second(folder.path());
  EXPECT_EQ(second.epoch(), first.epoch() + 1);
  const std::string why = ErrorOf(Fault::kInternal, [&] { first.SetMeta("who", "first again"); });
  EXPECT_NE(why.find("lock lost"), std::string::npos) << why;
  EXPECT_EQ(second.Meta("who"), "first");
}

TEST(ClaimedOutputs, AreReadWithoutALockAndBesideARun) {
  const TempFolder folder;
  EXPECT_TRUE(ReadClaimedOutputs(folder.path()).empty());
  EXPECT_FALSE(std::filesystem::exists(folder / "ledger.sqlite"));
  MakeFile(folder / "ledger.sqlite", "");  // of a process that died at once
  EXPECT_TRUE(ReadClaimedOutputs(folder.path()).empty());
  Ledger ledger(folder.path());
  EXPECT_TRUE(ReadClaimedOutputs(folder.path()).empty());
  ledger.ClaimOutput("b", "key");
  ledger.RecordOutput(Output("a", 1));
  ledger.Commit();
  ledger.ClaimOutput("c", "key");  // not committed
  EXPECT_EQ(ReadClaimedOutputs(folder.path()), (std::vector<std::string>{"a", "b"}));
}

TEST(Ledger, GarbageIsNamedAndNotTouched) {
  for (const std::string& garbage : {std::string("hello"), std::string(100000, 'x')}) {
    const TempFolder folder;
    MakeFile(folder / "ledger.sqlite", garbage);
    const std::string why = ErrorOf(Fault::kInternal, [&] { Ledger ledger(folder.path()); });
    EXPECT_NE(why.find("ledger.sqlite"), std::string::npos) << why;
    EXPECT_NE(why.find("damaged"), std::string::npos) << why;
    EXPECT_EQ(ContentOf(folder / "ledger.sqlite"), garbage);
  }
}

TEST(Ledger, ADatabaseOfSomebodyElseIsRefused) {
  const TempFolder folder;
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((folder / "ledger.sqlite").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "CREATE TABLE mine(x)", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(db);
  const std::string why = ErrorOf(Fault::kInternal, [&] { Ledger ledger(folder.path()); });
  EXPECT_NE(why.find("no ledger of tilery"), std::string::npos) << why;
}

TEST(Ledger, ATruncatedFileIsAnErrorOrWholeNeverSilentlyLess) {
  const TempFolder folder;
  {
    Ledger ledger(folder.path());
    for (int i = 0; i < 2000; ++i) ledger.RecordOutput(Output("path/" + std::to_string(i), 1));
    ledger.Commit();
  }
  const std::string whole = ContentOf(folder / "ledger.sqlite");
  ASSERT_GT(whole.size(), 100000u);
  std::mt19937 random(1);
  for (int round = 0; round < 60; ++round) {
    const size_t length = 1 + random() % (whole.size() - 1);
    const TempFolder cut;
    MakeFile(cut / "ledger.sqlite", whole.substr(0, length));
    const std::string why = ErrorOf(Fault::kInternal, [&] { Ledger ledger(cut.path()); });
    EXPECT_NE(why.find("ledger.sqlite"), std::string::npos) << length << ": " << why;
  }
}

// A child commits numbers one by one and says which are committed; it is killed at a random moment.
TEST(Ledger, WhatWasCommittedBeforeAKillStaysAndNothingElse) {
  std::mt19937 random(2);
  for (int round = 0; round < 25; ++round) {
    const TempFolder folder;
    int fds[2];
    ASSERT_EQ(pipe(fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(fds[0]);
      Ledger ledger(folder.path());
      for (int n = 0;; ++n) {
        // Two records that belong together, and one that is never committed.
        ledger.RecordOutput(Output("a" + std::to_string(n), n));
        ledger.RecordBrick({"b" + std::to_string(n), "f", n, "h", n});
        ledger.Commit(n % 7 == 0 ? Durability::kFsync : Durability::kRename);
        if (write(fds[1], &n, sizeof n) != sizeof n) _exit(0);
        ledger.RecordOutput(Output("uncommitted", n));
        ledger.ForgetBrick("b" + std::to_string(n));
        ledger.RecordBrick({"b" + std::to_string(n), "f", n, "h", n});
        ledger.RecordOutput(Output("a" + std::to_string(n), n));
        // Rolled back by the death of the process, or by nothing: this commit removes the probe
        // again.
        OutputRecord gone = Output("uncommitted", n);
        gone.published = false;
        ledger.RecordOutput(gone);
        ledger.Commit(Durability::kRename);
      }
    }
    close(fds[1]);
    std::this_thread::sleep_for(std::chrono::microseconds(20000 + random() % 60000));
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    int committed = -1;
    for (int n; read(fds[0], &n, sizeof n) == sizeof n;) committed = n;
    close(fds[0]);

    const Ledger ledger(folder.path());
    for (int n = 0; n <= committed; ++n) {
      ASSERT_TRUE(ledger.FindOutput("a" + std::to_string(n))) << n << " of " << committed;
      ASSERT_TRUE(ledger.FindBrick("b" + std::to_string(n))) << n << " of " << committed;
    }
    // The next one may have been committed without having been told; both of its records or none.
    const std::string next = std::to_string(committed + 1);
    EXPECT_EQ(ledger.FindOutput("a" + next).has_value(), ledger.FindBrick("b" + next).has_value());
    EXPECT_FALSE(ledger.FindOutput("a" + std::to_string(committed + 2)));
    const auto probe = ledger.FindOutput("uncommitted");
    EXPECT_FALSE(probe && probe->published) << "half a transaction was kept";
  }
}

// A limit on the size of files stands for the full disk: every further write fails.
TEST(Ledger, AFullDiskIsAnErrorInWordsAndTakesNothingBack) {
  const TempFolder folder;
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);
    Ledger ledger(folder.path());
    ledger.RecordOutput(Output("kept", 1));
    ledger.Commit();
    const rlimit limit{300000, 300000};
    setrlimit(RLIMIT_FSIZE, &limit);
    try {
      for (int n = 0; n < 100000; ++n) {
        ledger.RecordOutput(Output("path/" + std::to_string(n), 1));
        ledger.Commit(Durability::kRename);
      }
      _exit(1);
    } catch (const Error& error) {
      const std::string words = error.what();
      const bool named = words.find("ledger.sqlite") != std::string::npos;
      const bool usable = ledger.FindOutput("kept").has_value();
      _exit(error.fault() == Fault::kOutput && named && usable ? 0 : 2);
    }
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const Ledger ledger(folder.path());
  EXPECT_TRUE(ledger.FindOutput("kept"));
}

}  // namespace
}  // namespace tilery
