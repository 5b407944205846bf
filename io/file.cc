#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <utility>

#include "io/error.h"
#include "io/posix.h"

namespace tilery {
namespace {

std::string Named(const char* verb, const std::filesystem::path& path) {
  return std::string(verb) + " " + Printable(path.string());
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "of an unknown kind";
}

std::atomic<std::chrono::milliseconds> late_files{std::chrono::milliseconds(0)};

int OpenToRead(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO without a writer would wait for one.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  int fd;
  do {
    fd = open(path.c_str(), flags);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

// -1 with errno if it does not come in time.
int OpenLate(const std::filesystem::path& path) {
  using Clock = std::chrono::steady_clock;
  const int reason = errno;
  const auto until = Clock::now() + late_files.load();
  for (auto pause = std::chrono::milliseconds(5); Clock::now() < until; pause *= 2) {
    std::this_thread::sleep_for(std::min(pause, std::chrono::milliseconds(200)));
    // To open the folder makes a client of NFS ask for what has changed there.
    std::error_code ignored;
    (void)std::filesystem::directory_iterator(path.parent_path(), ignored);
    const int fd = OpenToRead(path);
    if (fd >= 0 || (errno != ENOENT && errno != ESTALE)) return fd;
  }
  errno = reason;
  return -1;
}

// The handle of a file on a network file system became stale, as after a restart of its server: the
// same read by a new one, if it is still the same file. An errno, 0 if all is well.
int ReadAnew(const std::filesystem::path& path, const FileStamp& stamp, int64_t offset,
             std::span<std::byte> into, size_t* done) {
  constexpr int kTries = 3;
  int failed = ESTALE;
  for (int i = 0; i < kTries && failed == ESTALE; ++i) {
    const int fd = OpenToRead(path);
    if (fd < 0) return errno == ENOENT ? ESTALE : errno;
    struct stat status;
    failed = fstat(fd, &status) != 0         ? errno
             : !(StampFrom(status) == stamp) ? ESTALE
                                             : PreadFully(fd, offset, into, done);
    CloseFile(fd);
  }
  return failed;
}

}  // namespace

std::optional<FileStamp> StampOf(const std::filesystem::path& path) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0) return StampFrom(status);
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  throw SystemError(Fault::kInput, Named("look at", path), errno);
}

void WaitForLateFiles(std::chrono::milliseconds patience) { late_files = patience; }

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  fd_ = OpenToRead(path);
  if (fd_ < 0 && (errno == ENOENT || errno == ESTALE)) fd_ = OpenLate(path);
  if (fd_ < 0) throw SystemError(Fault::kInput, Named("open", path), errno);
  struct stat status;
  if (fstat(fd_, &status) != 0) {
    const int failed = errno;
    CloseFile(fd_);
    throw SystemError(Fault::kInput, Named("look at", path), failed);
  }
  if (!S_ISREG(status.st_mode)) {
    CloseFile(fd_);
    throw Error(Fault::kInput, Named("open", path) + ": this is " + KindOf(status.st_mode) +
                                   "; only regular files can be read");
  }
  stamp_ = StampFrom(status);
}

InputFile::~InputFile() {
  if (fd_ >= 0) CloseFile(fd_);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), stamp_(other.stamp_), fd_(std::exchange(other.fd_, -1)) {}

size_t InputFile::ReadSome(int64_t offset, std::span<std::byte> into) const {
  size_t done = 0;
  int failed = PreadFully(fd_, offset, into, &done);
  if (failed == ESTALE) failed = ReadAnew(path_, stamp_, offset, into, &done);
  if (failed != 0) {
    throw SystemError(Fault::kInput,
                      Named("read", path_) + ", " + std::to_string(into.size()) +
                          " bytes at offset " + std::to_string(offset) + " of " +
                          std::to_string(size()),
                      failed);
  }
  return done;
}

void InputFile::ReadAt(int64_t offset, std::span<std::byte> into) const {
  const size_t done = ReadSome(offset, into);
  if (done == into.size()) return;
  throw Error(Fault::kInput, Named("read", path_) + ": the file ends at byte " +
                                 std::to_string(offset + static_cast<int64_t>(done)) + ", but " +
                                 std::to_string(into.size()) + " bytes are needed at offset " +
                                 std::to_string(offset) + " (it had " + std::to_string(size()) +
                                 " bytes when opened); it is cut short or was changed");
}

std::string ReadSmallFile(const std::filesystem::path& path, size_t limit) {
  const InputFile file(path);
  std::string content;
  // The size is only a hint: files under /proc say 0, and others may grow.
  size_t room = static_cast<size_t>(file.size()) < limit ? static_cast<size_t>(file.size()) : limit;
  while (true) {
    const size_t before = content.size();
    content.resize(before + room + 1);
    const auto into = std::as_writable_bytes(std::span(content)).subspan(before);
    const size_t got = file.ReadSome(static_cast<int64_t>(before), into);
    content.resize(before + got);
    if (content.size() > limit) {
      throw Error(Fault::kInput, Named("read", path) + ": the file has more than " +
                                     std::to_string(limit) + " bytes, the limit for its kind");
    }
    if (got < into.size()) return content;
    room = 4096;
  }
}

}  // namespace tilery
