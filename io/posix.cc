#include "io/posix.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace tilery {

int PreadFully(int fd, int64_t offset, std::span<std::byte> into, size_t* done) {
  *done = 0;
  while (*done < into.size()) {
    const ssize_t got =
        pread(fd, into.data() + *done, into.size() - *done, offset + static_cast<int64_t>(*done));
    if (got == 0) return 0;
    if (got > 0) {
      *done += static_cast<size_t>(got);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

int PwriteFully(int fd, int64_t offset, std::span<const std::byte> bytes, size_t* done) {
  *done = 0;
  while (*done < bytes.size()) {
    const ssize_t put = pwrite(fd, bytes.data() + *done, bytes.size() - *done,
                               offset + static_cast<int64_t>(*done));
    if (put > 0) {
      *done += static_cast<size_t>(put);
    } else if (put == 0) {
      return EIO;  // a write that moves nothing and says nothing would loop for ever
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

int SyncFile(int fd) {
  while (fsync(fd) != 0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

int CloseFile(int fd) {
  // On Linux the descriptor is released even when close reports EINTR: calling it again could close
  // a file that another thread has just opened.
  return close(fd) == 0 || errno == EINTR ? 0 : errno;
}

int SyncFolder(const std::filesystem::path& folder) {
  const int fd = open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return errno;
  int failed = SyncFile(fd);
  // Some file systems (FUSE, CIFS) can't sync folders and say so; there is nothing more to be done.
  if (failed == EINVAL || failed == ENOTSUP || failed == ENOSYS) failed = 0;
  const int closed = CloseFile(fd);
  return failed != 0 ? failed : closed;
}

FileStamp StampFrom(const struct stat& status) {
  const auto nanoseconds = [](const timespec& t) {
    return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
  };
  return {static_cast<int64_t>(status.st_size), nanoseconds(status.st_mtim),
          nanoseconds(status.st_ctim), static_cast<uint64_t>(status.st_ino)};
}

Error SystemError(Fault fault, const std::string& what, int errno_value) {
  const bool transient = errno_value == ESTALE || errno_value == EMFILE || errno_value == ENFILE ||
                         errno_value == ENOMEM;
  return Error(transient ? Fault::kTransient : fault, Errno(what, errno_value));
}

}  // namespace tilery
