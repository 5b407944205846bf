// File system and clock of a bad day, for tests: a library for LD_PRELOAD. TILERY_TEST_SYSTEM holds
// rules, separated by commas; TILERY_TEST_SYSTEM_FOLDER the folder (absolute) that those of files
// are about:
//
//   late=MS     for so long after its last change a file can't be opened by a process that did not
//   make it, as on a
//               network file system whose clients keep what they know of folders
//   stale=N     every Nth read of a file that another process made fails with ESTALE
//   slow=MS     fsync and rename take so much longer
//   clock=S     the calendar clock jumps S seconds ahead and back again, at every 50th look
//
// Source: nfs(5) on attribute caching; ld.so(8).
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <string>

namespace {

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

long RuleOf(const char* name) {
  const char* rules = getenv("TILERY_TEST_SYSTEM");
  const char* found = rules != nullptr ? strstr(rules, name) : nullptr;
  return found != nullptr ? atol(found + strlen(name)) : 0;
}
long Late() {
  static const long value = RuleOf("late=");
  return value;
}
long Stale() {
  static const long value = RuleOf("stale=");
  return value;
}
long Slow() {
  static const long value = RuleOf("slow=");
  return value;
}
long Jump() {
  static const long value = RuleOf("clock=");
  return value;
}

bool Below(const char* path) {
  static const char* const folder = getenv("TILERY_TEST_SYSTEM_FOLDER");
  return folder != nullptr && strncmp(path, folder, strlen(folder)) == 0;
}

// Files of this process itself. Never destroyed: others run after the end of main, too.
std::mutex& OwnMutex() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}
std::set<std::string>& Own() {
  static auto* const own = new std::set<std::string>;
  return *own;
}
void MakeOwn(const char* path) {
  if ((Late() == 0 && Stale() == 0) || !Below(path)) return;
  const std::lock_guard lock(OwnMutex());
  Own().insert(path);
}
bool IsOwn(const char* path) {
  const std::lock_guard lock(OwnMutex());
  return Own().count(path) != 0;
}

// The kernel's clock, not ours.
double Now() {
  timespec now{};
  syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int Judge(const char* path, int flags, int fd) {
  if (fd < 0 || !Below(path)) return fd;
  if ((flags & (O_CREAT | O_WRONLY | O_RDWR)) != 0) {
    MakeOwn(path);
    return fd;
  }
  if (Late() == 0) return fd;
  struct stat status {};
  if (IsOwn(path) || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return fd;
  const double changed = static_cast<double>(status.st_ctim.tv_sec) +
                         1e-9 * static_cast<double>(status.st_ctim.tv_nsec);
  if (Now() - changed > 1e-3 * static_cast<double>(Late())) return fd;
  close(fd);
  errno = ENOENT;
  return -1;
}

void Pause() {
  if (Slow() > 0) usleep(static_cast<useconds_t>(Slow() * 1000));
}

bool IsStale(int fd) {
  static std::atomic<long> reads{0};
  if (Stale() == 0 || ++reads % Stale() != 0) return false;
  char path[4096];
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = 0;
  return Below(path) && !IsOwn(path);
}

time_t Offset() {
  static std::atomic<long> looks{0};
  return Jump() != 0 && (++looks / 50) % 2 == 1 ? Jump() : 0;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto next = Next<int (*)(const char*, int, ...)>("open");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  return Judge(path, flags, next(path, flags, mode));
}

int rename(const char* from, const char* to) {
  static const auto next = Next<int (*)(const char*, const char*)>("rename");
  Pause();
  const int result = next(from, to);
  if (result == 0) MakeOwn(to);
  return result;
}

int fsync(int fd) {
  static const auto next = Next<int (*)(int)>("fsync");
  Pause();
  return next(fd);
}

ssize_t pread(int fd, void* into, size_t size, off_t offset) {
  static const auto next = Next<ssize_t (*)(int, void*, size_t, off_t)>("pread");
  if (IsStale(fd)) {
    errno = ESTALE;
    return -1;
  }
  return next(fd, into, size, offset);
}

int clock_gettime(clockid_t clock, timespec* now) {
  static const auto next = Next<int (*)(clockid_t, timespec*)>("clock_gettime");
  const int result = next(clock, now);
  if (result == 0 && clock == CLOCK_REALTIME) now->tv_sec += Offset();
  return result;
}

int gettimeofday(timeval* now, void* zone) {
  static const auto next = Next<int (*)(timeval*, void*)>("gettimeofday");
  const int result = next(now, zone);
  if (result == 0) now->tv_sec += Offset();
  return result;
}

time_t time(time_t* now) {
  const time_t result = static_cast<time_t>(Now()) + Offset();
  if (now != nullptr) *now = result;
  return result;
}

}  // extern "C"
