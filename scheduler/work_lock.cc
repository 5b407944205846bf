#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/error.h"
#include "scheduler/ledger.h"

namespace tilery {
namespace {

struct flock WholeFile(short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  return lock;
}

std::string Holder(int fd) {
  char text[256] = {};
  const ssize_t got = pread(fd, text, sizeof text - 1, 0);
  std::string holder = got > 0 ? std::string(text, static_cast<size_t>(got)) : "";
  while (!holder.empty() && holder.back() == '\n') holder.pop_back();
  return holder.empty() ? "another process" : Printable(holder);
}

}  // namespace

WorkLock::WorkLock(const std::filesystem::path& work) {
  const std::string name = Printable(work.string());
  std::error_code error;
  if (!std::filesystem::is_directory(work, error)) {
    if (work.has_parent_path()) std::filesystem::create_directories(work.parent_path(), error);
    if (mkdir(work.c_str(), 0700) != 0 && errno != EEXIST) {
      throw Error(Fault::kOutput, Errno("create the work folder " + name, errno));
    }
  }
  const std::filesystem::path file = work / "lock";
  fd_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0) throw Error(Fault::kOutput, Errno("open " + Printable(file.string()), errno));
  struct flock lock = WholeFile(F_WRLCK);
  if (fcntl(fd_, F_OFD_SETLK, &lock) != 0) {
    const int reason = errno;
    const std::string holder = Holder(fd_);
    close(fd_);
    fd_ = -1;
    if (reason != EAGAIN && reason != EACCES) {
      throw Error(Fault::kOutput, Errno("lock " + Printable(file.string()), reason));
    }
    throw Error(Fault::kUsage,
                "the work folder " + name + " is in use by " + holder +
                    ": wait until it has finished, end it, or name another folder with "
                    "execution.work (--work)");
  }
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string text = "host " + std::string(host) + " pid " + std::to_string(getpid()) + "\n";
  // Only words for others: failing to write them (a full disk) does not make the lock worth less.
  if (ftruncate(fd_, 0) == 0) (void)!pwrite(fd_, text.data(), text.size(), 0);
}

WorkLock::~WorkLock() {
  if (fd_ >= 0) close(fd_);
}

bool WorkLock::Held(const std::filesystem::path& work) {
  const int fd = open((work / "lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock lock = WholeFile(F_WRLCK);
  const bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  close(fd);
  return held;
}

}  // namespace tilery
