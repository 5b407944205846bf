// Child processes that never outlive their parent.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <functional>
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
  std::vector<std::string> arguments{};  // without the program's name
  // Beside and over our own, of which what mpirun has told us is left out.
  std::vector<std::pair<std::string, std::string>> environment{};
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
  ~Child();  // kills and reaps what still runs, its group included
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
  bool Over() const;            // it runs no more, whether or not Poll or Wait have said so
  // SIGKILL to its whole group (to it alone if it leads none). Nothing once Poll or Wait have told
  // of its end: from then on its number may be another's.
  void KillGroup();

 private:
  void Reap(int options);
  pid_t pid_ = -1;
  const bool own_group_;
  std::optional<Ended> ended_;
};

// As a shell looks for a command: the first executable file of that name on the PATH; a name with a
// slash stands for itself. Empty if there is none.
std::filesystem::path FindOnPath(const std::string& name);

// What a program that ran to its end has written, at most kOutputKept bytes of each.
struct Ran {
  Child::Ended ended;
  std::string output, errors;
  enum class By : uint8_t { kItself, kLimit, kStop } by = By::kItself;  // who ended it
};
inline constexpr size_t kOutputKept = 1 << 20;

struct RunBounds {
  std::chrono::milliseconds limit{0};                     // of its time; 0: none
  std::function<bool()> stop;                             // asked every kLook: whether to end it
  std::function<void(const std::string&)> on_error_line;  // its standard error, line by line
  // Its standard input stays open as long as it runs, so that what it has started may take the end
  // of its input for the end of us.
  bool hold_input = false;

  static constexpr std::chrono::milliseconds kLook{50};
};

// Runs the program to its end, with `input` as its standard input; of `spec`, input_fd, output_fd
// and error_fd are not used. A program that ends without reading its input is no error. Of a
// program with a group of its own nothing is left running. Calls `bounds` on this thread.
Ran RunToEnd(SpawnSpec spec, const std::string& input, const RunBounds& bounds = {});

}  // namespace tilery
