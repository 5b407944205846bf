#include "io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
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

}  // namespace

std::optional<FileStamp> StampOf(const std::filesystem::path& path) {
  struct stat status;
  if (stat(path.c_str(), &status) == 0) return StampFrom(status);
  if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
  throw SystemError(Fault::kInput, Named("look at", path), errno);
}

InputFile::InputFile(const std::filesystem::path& path) : path_(path) {
  // O_NONBLOCK: opening a FIFO without a writer would wait for one.
  const int flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  do {
    fd_ = open(path.c_str(), flags);
  } while (fd_ < 0 && errno == EINTR);
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
  if (const int failed = PreadFully(fd_, offset, into, &done)) {
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
