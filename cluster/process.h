// Child processes that never outlive their parent.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tilery {

// A descriptor that is closed when its owner goes. Movable.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    other.Reset();
    return *this;
  }
  ~UniqueFd() { Reset(); }
  int get() const { return fd_; }
  void Reset();

 private:
  int fd_ = -1;
};

std::pair<UniqueFd, UniqueFd> SocketPair();  // of a stream, closed on exec
std::pair<UniqueFd, UniqueFd> Pipe();        // {read end, write end}, closed on exec
void SetNonBlocking(int fd);

struct SpawnSpec {
  std::filesystem::path program;
  std::vector<std::string> arguments;                            // without the program's name
  std::vector<std::pair<std::string, std::string>> environment;  // beside and over our own
  int control_fd = -1;     // becomes the child's descriptor kControlFd
  int error_fd = -1;       // becomes its standard error; -1: ours
  bool own_group = false;  // leads a process group of its own
};

// One child process. Its standard input is empty, its standard output is its standard error. It has
// no other descriptor of ours, no blocked signal, and gets SIGKILL from the kernel when the thread
// that started it ends.
class Child {
 public:
  // Error(kInternal) naming program and reason if it can't be executed.
  explicit Child(const SpawnSpec& spec);
  ~Child();  // kills and reaps what still runs
  Child(const Child&) = delete;

  struct Ended {
    bool by_signal = false;
    int number = 0;             // exit code or signal
    std::string words() const;  // "exit code 3", "signal 9 (Killed)"
  };
  pid_t pid() const { return pid_; }
  std::optional<Ended> Poll();  // never blocks; keeps its answer
  void Kill(int signal);        // nothing if it has ended

 private:
  pid_t pid_ = -1;
  std::optional<Ended> ended_;
};

}  // namespace tilery
