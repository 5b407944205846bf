// What files do when the system refuses: short counts, signals, full disks, failing disks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <span>
#include <string>

#include "io/brick.h"
#include "io/file.h"
#include "tests/io/expect_error.h"
#include "tests/io/syscall_faults.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Content() {
  std::string content(10'000, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 31 + i / 256);
  return content;
}

Published Write(const std::filesystem::path& target, const std::string& content,
                Durability durability) {
  OutputFile file(target, "u1.1.1");
  file.Write(std::as_bytes(std::span(content)));
  return file.Publish(durability);
}

class FileFaults : public ::testing::TestWithParam<Durability> {
 protected:
  // Publishing must fail with this reason, keep the old file, and leave nothing else behind.
  void ExpectRefused(const SyscallFaults& faults, Fault fault, int errno_value) {
    const TempFolder folder;
    MakeFile(folder / "out.png", "old");
    {
      const InjectedFaults injected(faults);
      EXPECT_THAT(ErrorOf(fault, [&] { Write(folder / "out.png", Content(), GetParam()); }),
                  AllOf(HasSubstr("out.png"), HasSubstr(std::strerror(errno_value))));
    }
    EXPECT_EQ(ContentOf(folder / "out.png"), "old");
    EXPECT_EQ(EntriesOf(folder.path()), 1);
  }
};
INSTANTIATE_TEST_SUITE_P(Both, FileFaults,
                         ::testing::Values(Durability::kFsync, Durability::kRename));

TEST_P(FileFaults, ShortAndInterruptedCallsGoOnWhereTheyStopped) {
  const TempFolder folder;
  const std::string content = Content();
  const InjectedFaults injected({.short_count = 7, .interrupt = true});
  const Published published = Write(folder / "a", content, GetParam());
  EXPECT_EQ(published.hash, HashText(content));
  EXPECT_EQ(HashFile(folder / "a"), HashText(content));
  EXPECT_EQ(ReadSmallFile(folder / "a"), content);
  std::string part(5000, '\0');
  InputFile(folder / "a").ReadAt(1234, std::as_writable_bytes(std::span(part)));
  EXPECT_EQ(part, content.substr(1234, 5000));
}

TEST_P(FileFaults, AFullDiskIsAnErrorAtTheWriteAndLeavesNothing) {
  for (const int reason : {ENOSPC, EDQUOT, EIO, EFBIG}) {
    for (const size_t budget : {size_t{0}, size_t{1}, size_t{9'999}}) {
      ExpectRefused({.write_errno = reason, .write_budget = budget}, Fault::kOutput, reason);
    }
  }
}

TEST_P(FileFaults, AFailedCloseIsNoticedBeforeTheRename) {
  for (const int reason : {ENOSPC, EDQUOT, EIO}) {
    ExpectRefused({.close_errno = reason}, Fault::kOutput, reason);
  }
}

TEST_P(FileFaults, AFailedRenameLeavesTheOldFile) {
  ExpectRefused({.rename_errno = EROFS}, Fault::kOutput, EROFS);
}

TEST_P(FileFaults, AStaleHandleIsWorthAnotherAttempt) {
  ExpectRefused({.write_errno = ESTALE}, Fault::kTransient, ESTALE);
}

TEST_P(FileFaults, WritesAndReadsNameHowFarTheyCame) {
  const TempFolder folder;
  const InjectedFaults injected({.write_errno = ENOSPC, .write_budget = 4321});
  EXPECT_THAT(ErrorOf(Fault::kOutput, [&] { Write(folder / "a", Content(), GetParam()); }),
              HasSubstr("4321 of 10000 bytes"));
}

TEST(FileFaultsOfFsync, AFailedSyncOfTheFileStopsItsPublication) {
  for (const int reason : {EIO, ENOSPC, EDQUOT}) {
    const TempFolder folder;
    MakeFile(folder / "a", "old");
    {
      const InjectedFaults injected({.fsync_errno = reason});
      ErrorOf(Fault::kOutput, [&] { Write(folder / "a", Content(), Durability::kFsync); });
    }
    EXPECT_EQ(ContentOf(folder / "a"), "old");
    EXPECT_EQ(EntriesOf(folder.path()), 1);
  }
}

TEST(FileFaultsOfFsync, AFailedSyncOfTheFolderIsAnErrorToo) {
  const TempFolder folder;
  const InjectedFaults injected({.fsync_errno = EIO, .fsync_skip = 1});
  EXPECT_THAT(ErrorOf(Fault::kOutput, [&] { Write(folder / "a", Content(), Durability::kFsync); }),
              HasSubstr("folder of"));
}

TEST(FileFaultsOfFsync, ANewFolderWhoseEntryIsNotSafeIsAnErrorAndGoneAgain) {
  const TempFolder folder;
  for (const int skip : {0, 1}) {  // of "new", and of "new/sub"
    const InjectedFaults injected({.fsync_errno = EIO, .fsync_skip = skip});
    EXPECT_THAT(ErrorOf(Fault::kOutput,
                        [&] { Write(folder / "new/sub/b", Content(), Durability::kFsync); }),
                AllOf(HasSubstr("sync the folder of"), HasSubstr(skip == 0 ? "new" : "new/sub"),
                      HasSubstr(std::strerror(EIO))));
    EXPECT_FALSE(std::filesystem::exists(folder / "new/sub"));
  }
  const InjectedFaults injected({});
  Write(folder / "new/sub/b", Content(), Durability::kFsync);
  EXPECT_EQ(ContentOf(folder / "new/sub/b"), Content());
}

TEST(FileFaultsOfFsync, FoldersThatCannotBeSyncedAreNoFault) {
  const TempFolder folder;
  const InjectedFaults injected({.fsync_errno = EINVAL, .fsync_skip = 1});
  Write(folder / "a", Content(), Durability::kFsync);
  EXPECT_EQ(ContentOf(folder / "a"), Content());
}

TEST(FileFaultsOfFsync, OutputsSyncFileAndFolderAndCachesNeither) {
  const TempFolder folder;
  {
    const InjectedFaults injected({});
    Write(folder / "a", Content(), Durability::kFsync);
    EXPECT_EQ(FsyncCalls(), 2);
  }
  {
    const InjectedFaults injected({});
    Write(folder / "new/sub/b", Content(), Durability::kFsync);
    EXPECT_EQ(FsyncCalls(), 4) << "each new folder's entry as well";
  }
  const InjectedFaults injected({});
  Write(folder / "c", Content(), Durability::kRename);
  EXPECT_EQ(FsyncCalls(), 0);
}

TEST(FileFaultsOfReading, AFailingDiskIsAnErrorWithPathOffsetAndSize) {
  const TempFolder folder;
  MakeFile(folder / "scan.nii", Content());
  const InputFile file(folder / "scan.nii");
  const InjectedFaults injected({.read_errno = EIO});
  std::string part(100, '\0');
  EXPECT_THAT(
      ErrorOf(Fault::kInput, [&] { file.ReadAt(50, std::as_writable_bytes(std::span(part))); }),
      AllOf(HasSubstr("scan.nii"), HasSubstr("100 bytes at offset 50 of 10000"),
            HasSubstr(std::strerror(EIO))));
}

TEST(FileFaultsOfReading, WhatCannotBeReadBackIsNotPublished) {
  const TempFolder folder;
  {
    const InjectedFaults injected({.read_errno = EIO});
    ErrorOf(Fault::kOutput, [&] { Write(folder / "a", Content(), Durability::kFsync); });
  }
  EXPECT_EQ(EntriesOf(folder.path()), 0);
}

TEST(FileFaultsOfBricks, AFailingDiskMakesABrickTransientAndAFullOneAnOutputError) {
  const TempFolder folder;
  const std::string key(32, 'a');
  const BrickArray array{"interior", DType::kU8, 1, Box::Whole({1, 100, 100})};
  const std::string content = Content();
  const ConstView samples = DenseView(reinterpret_cast<const std::byte*>(content.data()),
                                      DType::kU8, 1, {1, 100, 100}, Layout::kPlanar);
  {
    const InjectedFaults injected({.write_errno = ENOSPC, .write_budget = 5000});
    ErrorOf(Fault::kOutput, [&] { BrickWriter(folder / "b", "1", key).Add(array, samples); });
  }
  EXPECT_EQ(EntriesOf(folder.path()), 0);
  BrickWriter writer(folder / "b", "1", key);
  writer.Add(array, samples);
  writer.Finish();
  const BrickReader reader(folder / "b", key);
  const InjectedFaults injected({.read_errno = EIO});
  std::string back(10'000, '\0');
  ErrorOf(Fault::kTransient, [&] {
    reader.Read(0, array.box,
                DenseView(reinterpret_cast<std::byte*>(back.data()), DType::kU8, 1, {1, 100, 100},
                          Layout::kPlanar));
  });
  ErrorOf(Fault::kTransient, [&] { BrickReader again(folder / "b", key); });
}

}  // namespace
}  // namespace tilery
