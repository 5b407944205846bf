#include "tests/io/syscall_faults.h"

#include <dlfcn.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace tilery {
namespace {

bool active = false;
SyscallFaults faults;
int fsync_calls = 0;
int interruptions = 0;

bool Interrupted() {
  if (!active || !faults.interrupt || ++interruptions % 2 == 0) return false;
  errno = EINTR;
  return true;
}

size_t Shortened(size_t size) {
  return active && faults.short_count > 0 ? std::min(size, faults.short_count) : size;
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

InjectedFaults::InjectedFaults(const SyscallFaults& wanted) {
  faults = wanted;
  fsync_calls = 0;
  interruptions = 0;
  active = true;
}

InjectedFaults::~InjectedFaults() { active = false; }

int FsyncCalls() { return fsync_calls; }

}  // namespace tilery

extern "C" {

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  using namespace tilery;
  static auto* const real = Real<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  if (Interrupted()) return -1;
  size = Shortened(size);
  if (active && faults.write_errno != 0) {
    if (faults.write_budget == 0) {
      errno = faults.write_errno;
      return -1;
    }
    size =
        std::min(size, faults.write_budget);  // a disk that fills up first writes less than asked
    faults.write_budget -= size;
  }
  return real(fd, data, size, offset);
}

ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  using namespace tilery;
  static auto* const real = Real<ssize_t(int, void*, size_t, off_t)>("pread");
  if (Interrupted()) return -1;
  if (active && faults.read_errno != 0) {
    errno = faults.read_errno;
    return -1;
  }
  return real(fd, data, Shortened(size), offset);
}

int fsync(int fd) {
  using namespace tilery;
  static auto* const real = Real<int(int)>("fsync");
  if (Interrupted()) return -1;
  const int call = fsync_calls++;
  if (active && faults.fsync_errno != 0 && call == faults.fsync_skip) {
    errno = faults.fsync_errno;
    return -1;
  }
  return real(fd);
}

int close(int fd) {
  using namespace tilery;
  static auto* const real = Real<int(int)>("close");
  const int result = real(fd);
  if (active && faults.close_errno != 0) {
    errno = faults.close_errno;
    return -1;
  }
  return result;
}

int rename(const char* from, const char* to) noexcept {
  using namespace tilery;
  static auto* const real = Real<int(const char*, const char*)>("rename");
  if (active && faults.rename_errno != 0) {
    errno = faults.rename_errno;
    return -1;
  }
  return real(from, to);
}

}  // extern "C"
