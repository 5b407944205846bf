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
  int input_fd = -1;       // becomes its standard input; -1: an empty one
  int output_fd = -1;      // becomes its standard output; -1: its standard error
};

// One child process. It has no descriptor of ours but those named, no blocked signal, and gets
// SIGKILL from the kernel when the thread that started it ends.
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
  Ended Wait();                 // until it ends
  void Kill(int signal);        // nothing if it has ended

 private:
  void Reap(int options);
  pid_t pid_ = -1;
  std::optional<Ended> ended_;
};

// What a program that ran to its end has written, at most kOutputKept bytes of each.
struct Ran {
  Child::Ended ended;
  std::string output, errors;
};
inline constexpr size_t kOutputKept = 1 << 20;

// Runs the program to its end, with `input` as its standard input; of `spec`, input_fd, output_fd
// and error_fd are not used. A program that ends without reading its input is no error.
Ran RunToEnd(SpawnSpec spec, const std::string& input);

}  // namespace tilery
