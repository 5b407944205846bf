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

WorkLock::WorkLock(const std::filesystem::path& work) : work_(work) {
  // The holder of before may discard the folder while we wait at its door.
  for (int attempt = 0; !Take(); ++attempt) {
    if (attempt < 100) continue;
    throw Error(Fault::kOutput, "the work folder " + Printable(work.string()) +
                                    " is removed again and again while it is being locked");
  }
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  const std::string text = "host " + std::string(host) + " pid " + std::to_string(getpid()) + "\n";
  // Only words for others: failing to write them (a full disk) does not make the lock worth less.
  if (ftruncate(fd_, 0) == 0) (void)!pwrite(fd_, text.data(), text.size(), 0);
}

// False if the folder went away meanwhile.
bool WorkLock::Take() {
  const std::string name = Printable(work_.string());
  std::error_code error;
  made_.clear();
  if (!std::filesystem::is_directory(work_, error)) {
    for (std::filesystem::path folder = work_;
         folder.has_relative_path() && !std::filesystem::exists(folder, error);
         folder = folder.parent_path()) {
      made_.push_back(folder);
    }
    error.clear();
    if (work_.has_parent_path()) std::filesystem::create_directories(work_.parent_path(), error);
    if (mkdir(work_.c_str(), 0700) != 0 && errno != EEXIST) {
      if (errno == ENOENT && !error) return false;
      // Where the parent could not be made, its reason says more.
      const int reason = error ? error.value() : errno;
      throw Error(Fault::kOutput, Errno("create the work folder " + name, reason));
    }
  }
  // What lies there decides what counts as done. A file system without permissions shows all
  // folders as writable, and lets that be.
  struct stat folder {};
  if (stat(work_.c_str(), &folder) == 0 && (folder.st_mode & S_IWOTH) != 0 &&
      chmod(work_.c_str(), folder.st_mode & 07777 & ~static_cast<mode_t>(S_IWOTH)) != 0 &&
      errno == EPERM) {
    throw Error(Fault::kUsage, "everybody may write to the work folder " + name +
                                   ", which is somebody else's, and what lies there decides what "
                                   "counts as done: have its owner chmod o-w it, or name another "
                                   "folder with execution.work (--work)");
  }
  const std::filesystem::path file = work_ / "lock";
  fd_ = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd_ < 0) {
    if (errno == ENOENT) return false;
    const int reason = errno;
    RemoveMade();
    throw Error(Fault::kOutput, Errno("open " + Printable(file.string()), reason));
  }
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
  struct stat locked {
  }, named{};
  if (fstat(fd_, &locked) == 0 && stat(file.c_str(), &named) == 0 &&
      locked.st_ino == named.st_ino && locked.st_dev == named.st_dev) {
    return true;
  }
  close(fd_);
  fd_ = -1;
  return false;
}

void WorkLock::Discard() {
  if (made_.empty()) return;
  unlink((work_ / "lock").c_str());
  RemoveMade();
}

void WorkLock::RemoveMade() {
  for (const std::filesystem::path& folder : made_) {
    if (rmdir(folder.c_str()) != 0) break;
  }
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
