#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <optional>
#include <span>

#include "io/file.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

class OutputFileDurability : public ::testing::TestWithParam<Durability> {};
INSTANTIATE_TEST_SUITE_P(Both, OutputFileDurability,
                         ::testing::Values(Durability::kFsync, Durability::kRename));

TEST_P(OutputFileDurability, AppearsUnderItsNameOnlyWhenPublished) {
  const TempFolder folder;
  OutputFile file(folder / "out.png", "u1.e1.a1");
  file.Write(Bytes("hello "));
  file.Write(Bytes("world"));
  EXPECT_FALSE(std::filesystem::exists(folder / "out.png"));
  EXPECT_TRUE(std::filesystem::exists(folder / ".tilery-u1.e1.a1.part"));
  const Published published = file.Publish(GetParam());
  EXPECT_EQ(ContentOf(folder / "out.png"), "hello world");
  EXPECT_EQ(EntriesOf(folder.path()), 1);
  EXPECT_EQ(published.size, 11);
  EXPECT_EQ(published.hash, HashText("hello world"));
  EXPECT_EQ(published.stamp, *StampOf(folder / "out.png"));
}

TEST_P(OutputFileDurability, WritesOutOfOrderGiveTheHashOfTheContent) {
  const TempFolder folder;
  OutputFile file(folder / "a.tif", "1");
  file.Write(Bytes("????"));
  file.Write(Bytes("body"));
  file.WriteAt(0, Bytes("HEAD"));
  EXPECT_EQ(file.position(), 8);
  file.Seek(10);
  file.Write(Bytes("end"));
  EXPECT_EQ(file.size(), 13);
  std::string back(20, '.');
  EXPECT_EQ(file.ReadAt(4, std::as_writable_bytes(std::span(back))), 9u);
  EXPECT_EQ(back.substr(0, 4), "body");
  const std::string expected("HEADbody\0\0end", 13);
  EXPECT_EQ(file.Publish(GetParam()).hash, HashText(expected));
  EXPECT_EQ(ContentOf(folder / "a.tif"), expected);
}

TEST_P(OutputFileDurability, LargeFilesComeBackWithTheHashOfTheirContent) {
  const TempFolder folder;
  std::string content(5'000'001, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 13 + i / 251);
  OutputFile file(folder / "large", "1");
  for (size_t at = 0; at < content.size(); at += 70'001)
    file.Write(Bytes(content).subspan(at, std::min<size_t>(70'001, content.size() - at)));
  EXPECT_EQ(file.Publish(GetParam()).hash, HashText(content));
  EXPECT_EQ(HashFile(folder / "large"), HashText(content));
}

TEST_P(OutputFileDurability, AnEmptyFileIsAFile) {
  const TempFolder folder;
  OutputFile file(folder / "empty", "1");
  const Published published = file.Publish(GetParam());
  EXPECT_EQ(published.size, 0);
  EXPECT_EQ(published.hash, HashText(""));
  EXPECT_EQ(std::filesystem::file_size(folder / "empty"), 0u);
}

TEST_P(OutputFileDurability, WhatMayNotBeRenamedVanishesAndLeavesTheOldFileAlone) {
  const TempFolder folder;
  MakeFile(folder / "a", "old");
  {
    OutputFile file(folder / "a", "1");
    file.Write(Bytes("new"));
    EXPECT_THAT(ErrorOf(Fault::kTransient,
                        [&] {
                          file.Publish(GetParam(),
                                       [] { throw Error(Fault::kTransient, "the lease is old"); });
                        }),
                HasSubstr("lease"));
  }
  EXPECT_EQ(ContentOf(folder / "a"), "old");
  EXPECT_EQ(EntriesOf(folder.path()), 1);
}

TEST_P(OutputFileDurability, NoticesAFileThatAnotherProcessHasChanged) {
  const TempFolder folder;
  OutputFile file(folder / "a", "1");
  file.Write(Bytes("content"));
  std::filesystem::resize_file(folder / ".tilery-1.part", 3);
  EXPECT_THAT(ErrorOf(Fault::kOutput, [&] { file.Publish(GetParam()); }), HasSubstr("damaged"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(OutputFile, NoticesBytesThatChangedBeforeTheyAreReadBack) {
  const TempFolder folder;
  OutputFile file(folder / "a", "1");
  file.Write(Bytes("content"));
  MakeFile(folder / ".tilery-1.part", "c0ntent");
  EXPECT_THAT(ErrorOf(Fault::kOutput, [&] { file.Publish(Durability::kFsync); }),
              HasSubstr("read back"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a"));
}

TEST(OutputFile, DisappearsWhenNotPublished) {
  const TempFolder folder;
  { OutputFile(folder / "a", "1").Write(Bytes("half")); }
  EXPECT_EQ(EntriesOf(folder.path()), 0);
}

TEST(OutputFile, ReplacesWhatWasThereAndKeepsItForThoseWhoHaveItOpen) {
  const TempFolder folder;
  MakeFile(folder / "a", "old");
  const InputFile old(folder / "a");
  OutputFile file(folder / "a", "1");
  file.Write(Bytes("brand new"));
  file.Publish(Durability::kFsync);
  EXPECT_EQ(ContentOf(folder / "a"), "brand new");
  std::string text(3, '.');
  old.ReadAt(0, std::as_writable_bytes(std::span(text)));
  EXPECT_EQ(text, "old");
}

TEST(OutputFile, CreatesTheFoldersOfItsTarget) {
  const TempFolder folder;
  OutputFile file(folder / "x/y/z/a", "1");
  file.Publish(Durability::kFsync);
  EXPECT_TRUE(std::filesystem::exists(folder / "x/y/z/a"));
}

TEST(OutputFile, ARelativeNameWithoutFolderMeansTheCurrentOne) {
  const TempFolder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  OutputFile file("plain", "1");
  file.Publish(Durability::kFsync);
  std::filesystem::current_path(before);
  EXPECT_TRUE(std::filesystem::exists(folder / "plain"));
}

TEST(OutputFile, NamesOf255BytesWorkAndLongerOnesAreRefusedBeforeAnyWork) {
  const TempFolder folder;
  const std::string longest(255, 'n');
  OutputFile file(folder / longest, "1");
  file.Publish(Durability::kFsync);
  EXPECT_TRUE(std::filesystem::exists(folder / longest));
  EXPECT_THAT(ErrorOf(Fault::kOutput, [&] { OutputFile longer(folder / (longest + "n"), "1"); }),
              HasSubstr("name too long"));
  EXPECT_EQ(EntriesOf(folder.path()), 1);
}

TEST(OutputFile, AnAttemptIsUsedOnceAtATimeAndMustFitAFileName) {
  const TempFolder folder;
  OutputFile first(folder / "a", "u.1");
  EXPECT_THAT(ErrorOf(Fault::kOutput, [&] { OutputFile second(folder / "a", "u.1"); }),
              HasSubstr("exists"));
  OutputFile third(folder / "a", std::string(242, 'a'));
  for (const std::string& bad :
       {std::string(), std::string("a/b"), std::string("a b"), std::string(243, 'a')}) {
    ErrorOf(Fault::kInternal, [&] { OutputFile refused(folder / "a", bad); });
  }
}

TEST(OutputFile, FoldersAndFilesInTheWayAreErrorsByName) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "taken/inside");
  OutputFile file(folder / "taken", "1");
  EXPECT_THAT(ErrorOf(Fault::kOutput, [&] { file.Publish(Durability::kFsync); }),
              HasSubstr("taken"));
  MakeFile(folder / "plain", "");
  ErrorOf(Fault::kOutput, [&] { OutputFile below(folder / "plain/a", "1"); });
  ErrorOf(Fault::kOutput, [&] { OutputFile none(folder.path() / "", "1"); });
}

TEST(OutputFile, IsPublishedOnce) {
  const TempFolder folder;
  OutputFile file(folder / "a", "1");
  file.Publish(Durability::kFsync);
  ErrorOf(Fault::kInternal, [&] { file.Publish(Durability::kFsync); });
}

TEST(OutputFile, TruncateCutsAndExtends) {
  const TempFolder folder;
  OutputFile file(folder / "a", "1");
  file.Write(Bytes("0123456789"));
  file.Truncate(4);
  EXPECT_EQ(file.size(), 4);
  file.Truncate(6);
  EXPECT_EQ(file.Publish(Durability::kRename).hash, HashText(std::string("0123\0\0", 6)));
}

TEST(OutputFile, AWriteBeyondWhatFilesCanHoldNamesTargetAndSize) {
  const TempFolder folder;
  OutputFile file(folder / "big.raw", "1");
  EXPECT_THAT(
      ErrorOf(Fault::kOutput, [&] { file.WriteAt(INT64_MAX - 10, Bytes("0123456789abcdef")); }),
      ::testing::AllOf(HasSubstr("big.raw"), HasSubstr("of 16 bytes")));
}

TEST(WriteFileAtomically, ReplacesWholeFilesAndSetsTheMode) {
  const TempFolder folder;
  WriteFileAtomically(folder / "token", "one", Durability::kFsync, 0600);
  WriteFileAtomically(folder / "token", "secret", Durability::kRename, 0600);
  EXPECT_EQ(ContentOf(folder / "token"), "secret");
  struct stat status;
  ASSERT_EQ(stat((folder / "token").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_EQ(EntriesOf(folder.path()), 1);
}

TEST(SweepTemporaries, RemovesDeadAttemptsOnly) {
  const TempFolder folder;
  MakeFile(folder / ".tilery-u1.1.1.part", "dead");
  MakeFile(folder / ".tilery-u1.2.1.part", "alive");
  MakeFile(folder / ".tilery-.part", "no attempt");
  MakeFile(folder / ".tilery-u1.1.1.partx", "not ours");
  MakeFile(folder / "x.tilery-u1.1.1.part", "not ours");
  MakeFile(folder / "photo.png", "not ours");
  std::filesystem::create_directories(folder / ".tilery-u1.1.2.part");
  std::filesystem::create_directories(folder / "below");
  MakeFile(folder / "below/.tilery-u1.1.1.part", "not looked at");
  std::filesystem::create_symlink("photo.png", folder / ".tilery-u1.1.3.part");
  EXPECT_EQ(
      SweepTemporaries(folder.path(),
                       [](const std::string& attempt) { return attempt.starts_with("u1.1."); }),
      1);
  EXPECT_EQ(EntriesOf(folder.path()), 8);
  EXPECT_FALSE(std::filesystem::exists(folder / ".tilery-u1.1.1.part"));
  EXPECT_EQ(SweepTemporaries(folder / "none", [](const std::string&) { return true; }), 0);
}

}  // namespace
}  // namespace tilery
