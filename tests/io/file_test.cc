#include "io/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;

std::string Read(const InputFile& file, int64_t offset, size_t size) {
  std::string text(size, '\0');
  file.ReadAt(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

TEST(InputFile, ReadsAnyRange) {
  const TempFolder folder;
  MakeFile(folder / "a", "0123456789");
  const InputFile file(folder / "a");
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(Read(file, 3, 4), "3456");
  EXPECT_EQ(Read(file, 10, 0), "");
  std::string some(8, '.');
  EXPECT_EQ(file.ReadSome(6, std::as_writable_bytes(std::span(some))), 4u);
  EXPECT_EQ(some, "6789....");
}

TEST(InputFile, ReadingBeyondTheEndNamesPathOffsetAndSizes) {
  const TempFolder folder;
  MakeFile(folder / "short.raw", "0123456789");
  const InputFile file(folder / "short.raw");
  const std::string message = ErrorOf(Fault::kInput, [&] { Read(file, 6, 8); });
  EXPECT_THAT(message, HasSubstr("short.raw"));
  EXPECT_THAT(message, HasSubstr("8 bytes"));
  EXPECT_THAT(message, HasSubstr("offset 6"));
  EXPECT_THAT(message, HasSubstr("10 bytes"));
}

TEST(InputFile, NoticesAFileThatIsCutWhileOpen) {
  const TempFolder folder;
  MakeFile(folder / "a", std::string(1000, 'x'));
  const InputFile file(folder / "a");
  std::filesystem::resize_file(folder / "a", 100);
  EXPECT_THAT(ErrorOf(Fault::kInput, [&] { Read(file, 0, 1000); }), HasSubstr("ends at byte 100"));
}

TEST(InputFile, StampIsThatOfTheOpenFileEvenIfThePathIsReplaced) {
  const TempFolder folder;
  MakeFile(folder / "a", "old");
  const InputFile file(folder / "a");
  MakeFile(folder / "b", "newer");
  std::filesystem::rename(folder / "b", folder / "a");
  EXPECT_EQ(file.stamp().size, 3);
  EXPECT_NE(file.stamp(), *StampOf(folder / "a"));
  EXPECT_EQ(Read(file, 0, 3), "old");
}

TEST(InputFile, RefusesWhatIsNoRegularFileWithoutBlocking) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf(Fault::kInput, [&] { InputFile file(folder / "fifo"); }), HasSubstr("FIFO"));
  EXPECT_THAT(ErrorOf(Fault::kInput, [&] { InputFile file(folder.path()); }), HasSubstr("folder"));
  EXPECT_THAT(ErrorOf(Fault::kInput, [&] { InputFile file("/dev/zero"); }), HasSubstr("device"));
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  (folder / "socket").string().copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  ErrorOf(Fault::kInput, [&] { InputFile file(folder / "socket"); });
  close(listener);
}

TEST(InputFile, MissingFilesAndDanglingLinksFailByName) {
  const TempFolder folder;
  EXPECT_THAT(ErrorOf(Fault::kInput, [&] { InputFile file(folder / "gone.png"); }),
              HasSubstr("gone.png: No such file"));
  std::filesystem::create_symlink("nowhere", folder / "link.png");
  EXPECT_THAT(ErrorOf(Fault::kInput, [&] { InputFile file(folder / "link.png"); }),
              HasSubstr("link.png"));
}

TEST(InputFile, DoesNotLeakIntoChildProcesses) {
  const TempFolder folder;
  MakeFile(folder / "a", "x");
  const InputFile file(folder / "a");
  int found = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code closed;  // the iterator's own descriptor
    if (std::filesystem::read_symlink(entry.path(), closed) != folder / "a") continue;
    ++found;
    EXPECT_EQ(fcntl(std::stoi(entry.path().filename().string()), F_GETFD), FD_CLOEXEC);
  }
  EXPECT_EQ(found, 1);
}

TEST(InputFile, ManyThreadsReadAtOnce) {
  const TempFolder folder;
  std::string content(1 << 20, '\0');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i * 7 + i / 256);
  MakeFile(folder / "a", content);
  const InputFile file(folder / "a");
  std::vector<std::thread> threads;
  std::array<bool, 4> right{};
  for (size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      right[t] = true;
      for (size_t at = t * 1000; at + 5000 < content.size(); at += 37'123) {
        right[t] =
            right[t] && Read(file, static_cast<int64_t>(at), 5000) == content.substr(at, 5000);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(right, ::testing::Each(true));
}

TEST(InputFile, MovingHandsTheDescriptorOver) {
  const TempFolder folder;
  MakeFile(folder / "a", "content");
  InputFile first(folder / "a");
  const InputFile second(std::move(first));
  EXPECT_EQ(Read(second, 0, 7), "content");
  EXPECT_EQ(second.path(), folder / "a");
}

TEST(StampOf, IsNothingWhereNothingIsAndAnErrorWhereNobodyCanTell) {
  const TempFolder folder;
  EXPECT_EQ(StampOf(folder / "none"), std::nullopt);
  MakeFile(folder / "a", "123");
  EXPECT_EQ(StampOf(folder / "a" / "below"), std::nullopt);
  std::filesystem::create_symlink("a", folder / "link");
  EXPECT_EQ(StampOf(folder / "link"), StampOf(folder / "a")) << "links are followed";
  std::filesystem::create_symlink("loop", folder / "loop");
  EXPECT_THAT(ErrorOf(Fault::kInput, [&] { StampOf(folder / "loop"); }), HasSubstr("loop"));
}

TEST(StampOf, ChangesWithContentOfTheSameSizeAndTime) {
  const TempFolder folder;
  MakeFile(folder / "a", "123");
  const FileStamp before = *StampOf(folder / "a");
  usleep(20'000);  // the clock of the file system may tick at 100 Hz only
  MakeFile(folder / "a", "456");
  const timespec times[2] = {{before.mtime_ns / 1'000'000'000, before.mtime_ns % 1'000'000'000},
                             {before.mtime_ns / 1'000'000'000, before.mtime_ns % 1'000'000'000}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder / "a").c_str(), times, 0), 0);
  const FileStamp after = *StampOf(folder / "a");
  EXPECT_EQ(after.size, before.size);
  EXPECT_EQ(after.mtime_ns, before.mtime_ns);
  EXPECT_NE(after, before) << "ctime can't be set back";
}

TEST(Hash, IsXxh3Of128BitsAndTheSameForTextBytesAndFiles) {
  EXPECT_EQ(HashText(""), "99aa06d3014798d86001c324468d497f");
  const TempFolder folder;
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{1} << 20, (size_t{1} << 20) + 1, size_t{3'000'000}}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 31 + i / 255);
    MakeFile(folder / "a", content);
    EXPECT_EQ(HashFile(folder / "a"), HashText(content)) << size;
    EXPECT_EQ(HashBytes(std::as_bytes(std::span(content))), HashText(content)) << size;
  }
}

TEST(ReadSmallFile, ReturnsAllOfItAlsoWhereTheSizeIsNotKnownBefore) {
  const TempFolder folder;
  const std::string content("with\0zero", 9);
  MakeFile(folder / "a", content);
  EXPECT_EQ(ReadSmallFile(folder / "a"), content);
  MakeFile(folder / "empty", "");
  EXPECT_EQ(ReadSmallFile(folder / "empty"), "");
  EXPECT_THAT(ReadSmallFile("/proc/self/status"), HasSubstr("VmPeak"));
}

TEST(ReadSmallFile, RefusesWhatIsLargerThanTheLimit) {
  const TempFolder folder;
  MakeFile(folder / "a", std::string(101, 'x'));
  EXPECT_THAT(ErrorOf(Fault::kInput, [&] { ReadSmallFile(folder / "a", 100); }),
              HasSubstr("100 bytes"));
  EXPECT_EQ(ReadSmallFile(folder / "a", 101).size(), 101u);
}

}  // namespace
}  // namespace tilery
