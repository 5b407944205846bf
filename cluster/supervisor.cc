#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "cluster/launcher.h"
#include "cluster/numa.h"
#include "cluster/process.h"
#include "cluster/worker_log.h"
#include "io/error.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFailedByCode = 3;  // starts in a row
constexpr int kFailedBySignal = 5;
constexpr int kWithoutMemory = 2;    // processes of one device; the second was a fresh one
constexpr int kNoProgramExit = 127;  // of the dynamic loader, where libraries are missing
constexpr auto kFirstPause = std::chrono::milliseconds(100);
constexpr auto kLongestPause = std::chrono::milliseconds(5000);
constexpr const char* kHostFull =
    "the kernel has ended it, since there was no memory left on its host (signal 9); fewer workers "
    "(execution.workers) or smaller units (execution.unit_memory) take less";

// Processes that this host's kernel has ended for want of memory, in a control group or at all; 0
// if it does not say. Source: proc(5), /proc/vmstat.
int64_t OutOfMemoryKills() {
  std::ifstream counters("/proc/vmstat");
  std::string name;
  for (int64_t value = 0; counters >> name >> value;)
    if (name == "oom_kill") return value;
  return 0;
}

class Supervisor {
 public:
  explicit Supervisor(int control_fd)
      : control_fd_(control_fd), start_(ReadWorkerStart(control_fd)), log_(start_.log) {
    environment_ = WorkerEnvironment();
    environment_.insert(environment_.end(), start_.environment.begin(), start_.environment.end());
    sigset_t set;
    sigemptyset(&set);
    for (int signal : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    signals_ = UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    SetNonBlocking(control_fd_);
  }

  int Run() {
    Bind();
    Start();
    while (!over_) {
      Wait();
      Signals();
      Commands();
      ReadWorker();
      Judge();
      if (!over_ && !worker_ && !stopping_ && Clock::now() >= start_at_) Start();
    }
    worker_.reset();
    return code_;
  }

 private:
  // Ourselves: what we start inherits it, from its first instruction on.
  void Bind() {
    if (start_.cpus.empty()) return;
    if (const int error = BindTo(start_.cpus); error != 0) {
      log_.Append("tilery: worker " + start_.worker + " has no CPUs of its own: " +
                  Errno("bind it to " + ToText(start_.cpus), error) + "\n");
    }
  }

  void Wait() {
    pollfd fds[] = {{signals_.get(), POLLIN, 0},
                    {control_fd_, POLLIN, 0},
                    {worker_ ? errors_.get() : -1, POLLIN, 0},
                    {worker_ && !worker_control_over_ ? worker_control_.get() : -1, POLLIN, 0}};
    int timeout = 1000;
    if (!worker_) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(start_at_ - Clock::now());
      timeout = static_cast<int>(std::clamp<int64_t>(left.count() + 1, 0, 1000));
    }
    poll(fds, 4, timeout);
  }

  void Signals() {
    signalfd_siginfo info;
    while (read(signals_.get(), &info, sizeof info) == sizeof info) {
      const int signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGCHLD) continue;
      if (signal != SIGUSR1 && ++ends_asked_ > 1) return End(1);
      stopping_ = true;
      if (!worker_) return End(0);
      worker_->Kill(signal);
    }
  }

  // Lines from the launcher; its end is ours.
  void Commands() {
    char chunk[256];
    for (;;) {
      const ssize_t got = read(control_fd_, chunk, sizeof chunk);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EAGAIN) return;
      if (got <= 0) return End(1);
      commands_.append(chunk, static_cast<size_t>(got));
      for (size_t end; (end = commands_.find('\n')) != std::string::npos;
           commands_.erase(0, end + 1)) {
        const std::string command = commands_.substr(0, end);
        if (command == "kill" && worker_) worker_->Kill(SIGKILL);
        if (command == "stop") {
          stopping_ = true;
          if (!worker_) return End(0);
        }
      }
    }
  }

  void Start() {
    auto [ours, its] = SocketPair();
    auto [read_end, write_end] = Pipe();
    ready_ = worker_control_over_ = false;
    kills_before_ = OutOfMemoryKills();
    log_.NewProcess();
    try {
      WriteWorkerStart(ours.get(), start_);
      worker_ = std::make_unique<Child>(
          SpawnSpec{start_.program, {}, environment_, its.get(), write_end.get(), false});
    } catch (const Error& error) {
      // A want of processes may go away, a program that is not there will not come.
      Report({{"how", error.what()},
              {"gone", true},
              {"refused", access(start_.program.c_str(), X_OK) != 0}});
      return End(1);
    }
    SetNonBlocking(ours.get());
    SetNonBlocking(read_end.get());
    worker_control_ = std::move(ours);
    errors_ = std::move(read_end);
  }

  void ReadWorker() {
    if (!worker_) return;
    char chunk[16384];
    // At most so much at a time: a worker that writes without end must not keep us from our
    // signals.
    for (int i = 0; i < 64; ++i) {
      const ssize_t got = read(errors_.get(), chunk, sizeof chunk);
      if (got == 0) errors_.Reset();  // it closed them and lives on: no reason to look again
      if (got <= 0) break;
      log_.Append({chunk, static_cast<size_t>(got)});
    }
    while (!worker_control_over_) {
      const ssize_t got = read(worker_control_.get(), chunk, sizeof chunk);
      if (got < 0) break;
      if (got == 0) worker_control_over_ = true;
      if (got > 0) ready_ = true;
    }
  }

  void Judge() {
    if (!worker_) return;
    const auto ended = worker_->Poll();
    if (!ended) return;
    ReadWorker();
    worker_.reset();
    if (stopping_) return End(0);
    if (ready_ && !ended->by_signal && ended->number == 0) {
      // It was told that all is done, and we are about to be.
      start_at_ = Clock::now() + kLongestPause;
      return;
    }
    if (ready_) failed_by_code_ = failed_by_signal_ = 0;
    const bool by_kernel =
        ended->by_signal && ended->number == SIGKILL && OutOfMemoryKills() > kills_before_;
    const bool no_memory = by_kernel || (!ended->by_signal && ended->number == kNoMemoryExit);
    if (no_memory) ++without_memory_;
    const bool started = ready_ || no_memory;
    const int failed = started ? 0 : ended->by_signal ? ++failed_by_signal_ : ++failed_by_code_;
    const std::string words = by_kernel ? kHostFull : log_.LastLine();
    std::string how = "its process ended by " + ended->words();
    if (!words.empty()) how += ": " + words;
    const bool refused = !ready_ && !ended->by_signal && ended->number == kRefusedExit;
    const bool missing = !ready_ && !ended->by_signal && ended->number == kNoProgramExit;
    const bool gone = refused || missing || failed_by_code_ >= kFailedByCode ||
                      failed_by_signal_ >= kFailedBySignal || without_memory_ >= kWithoutMemory;
    Report({{"how", (refused || no_memory) && !words.empty() ? words : how},
            {"gone", gone},
            {"refused", refused || missing},
            {"no_memory", no_memory}});
    if (gone) return End(1);
    const auto pause =
        std::min<Clock::duration>(kFirstPause * (1 << std::min(failed, 10)), kLongestPause);
    start_at_ = Clock::now() + pause;
  }

  // As LocalLauncher::Event has it.
  void Report(const Json& event) {
    const std::string line = event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    (void)!send(control_fd_, line.data(), line.size(), MSG_NOSIGNAL);
  }

  void End(int code) {
    over_ = true;
    code_ = code;
  }

  const int control_fd_;
  const WorkerStart start_;
  std::vector<std::pair<std::string, std::string>> environment_;
  WorkerLog log_;
  UniqueFd signals_, errors_, worker_control_;
  std::unique_ptr<Child> worker_;
  std::string commands_;
  bool ready_ = false, worker_control_over_ = false, stopping_ = false, over_ = false;
  int failed_by_code_ = 0, failed_by_signal_ = 0, without_memory_ = 0;
  int ends_asked_ = 0, code_ = 0;
  int64_t kills_before_ = 0;  // OutOfMemoryKills() when the worker was started
  Clock::time_point start_at_{};
};

}  // namespace

int RunSupervisor(int control_fd) { return Supervisor(control_fd).Run(); }

}  // namespace tilery
