#include "cluster/process.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>

#include "cluster/worker_start.h"
#include "io/error.h"

extern char** environ;

namespace tilery {
namespace {

// All that the child needs between fork and exec, prepared before: there only async-signal-safe
// calls are allowed, since another thread of the parent may hold any lock.
struct Prepared {
  const char* program;
  char* const* arguments;
  char* const* environment;
  int control_fd, input_fd, output_fd, error_fd, report_fd;
  bool own_group;
  pid_t parent;
};

[[noreturn]] void Give(const Prepared& p, int error) {
  (void)!write(p.report_fd, &error, sizeof error);
  _exit(127);
}

// Some libraries open descriptors that would survive exec (sockets of Asio, for one).
void CloseOnExecFrom(int first) {
  if (close_range(first, ~0U, CLOSE_RANGE_CLOEXEC) == 0) return;
  for (int fd = first; fd < 65536; ++fd) fcntl(fd, F_SETFD, FD_CLOEXEC);
}

[[noreturn]] void BecomeChild(const Prepared& p) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before the kernel knew of our wish.
  if (getppid() != p.parent) _exit(127);
  if (p.own_group) setpgid(0, 0);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &usual, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A copy made by dup2 is not closed on exec. The sources lie above kControlFd (see Above).
  const int error_fd = p.error_fd >= 0 ? p.error_fd : STDERR_FILENO;
  const int output_fd = p.output_fd >= 0 ? p.output_fd : error_fd;
  if (dup2(p.input_fd, STDIN_FILENO) < 0 || dup2(output_fd, STDOUT_FILENO) < 0 ||
      (p.error_fd >= 0 && dup2(p.error_fd, STDERR_FILENO) < 0) ||
      (p.control_fd >= 0 && dup2(p.control_fd, kControlFd) < 0)) {
    Give(p, errno);
  }
  CloseOnExecFrom(p.control_fd >= 0 ? kControlFd + 1 : kControlFd);
  execve(p.program, p.arguments, p.environment);
  Give(p, errno);
}

// A duplicate that no dup2 of BecomeChild can hit.
UniqueFd Above(int fd) {
  const int copy = fcntl(fd, F_DUPFD_CLOEXEC, kControlFd + 1);
  if (copy < 0) throw Error(Fault::kInternal, Errno("duplicate a descriptor", errno));
  return UniqueFd(copy);
}

// What mpirun tells its ranks. A child that finds it would take itself for one of them.
bool IsOfMpi(const std::string& entry) {
  for (const char* prefix : {"OMPI_", "ORTE_", "PRTE_", "PMIX_", "PMI_", "HYDRA_", "HYDI_", "MPIR_",
                             "MPI_LOCAL", "I_MPI_"}) {
    if (entry.starts_with(prefix)) return true;
  }
  return false;
}

std::vector<std::string> Environment(const std::vector<std::pair<std::string, std::string>>& over) {
  std::map<std::string, std::string> all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    if (equals == std::string::npos || IsOfMpi(text)) continue;
    all[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : over) all[name] = value;
  std::vector<std::string> out;
  for (const auto& [name, value] : all) out.push_back(name + "=" + value);
  return out;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::string SignalName(int signal) {
  const char* text = sigdescr_np(signal);
  return text != nullptr ? text : "unknown";
}

}  // namespace

void UniqueFd::Reset() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

std::pair<UniqueFd, UniqueFd> SocketPair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    throw Error(Fault::kInternal, Errno("make a socket pair", errno));
  }
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

std::pair<UniqueFd, UniqueFd> Pipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) throw Error(Fault::kInternal, Errno("make a pipe", errno));
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void SetNonBlocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

Child::Child(const SpawnSpec& spec) : own_group_(spec.own_group) {
  std::vector<std::string> arguments = {spec.program.string()};
  arguments.insert(arguments.end(), spec.arguments.begin(), spec.arguments.end());
  std::vector<std::string> environment = Environment(spec.environment);
  const std::vector<char*> argument_list = Pointers(arguments);
  const std::vector<char*> environment_list = Pointers(environment);

  auto [report, report_write] = Pipe();
  UniqueFd report_fd = Above(report_write.get());
  const UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (null.get() < 0) throw Error(Fault::kInternal, Errno("open /dev/null", errno));
  const auto above = [](int fd) { return fd >= 0 ? Above(fd) : UniqueFd(); };
  const UniqueFd control_fd = above(spec.control_fd);
  const UniqueFd input_fd = Above(spec.input_fd >= 0 ? spec.input_fd : null.get());
  const UniqueFd output_fd = above(spec.output_fd);
  const UniqueFd error_fd = above(spec.error_fd);
  const Prepared prepared{spec.program.c_str(),    argument_list.data(),
                          environment_list.data(), control_fd.get(),
                          input_fd.get(),          output_fd.get(),
                          error_fd.get(),          report_fd.get(),
                          spec.own_group,          getpid()};

  // No handler of ours may run in the child before it has reset them.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) BecomeChild(prepared);
  const int fork_error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) throw Error(Fault::kInternal, Errno("start " + spec.program.string(), fork_error));
  pid_ = pid;

  // The pipe closes when the program runs, or says why it does not.
  report_fd.Reset();
  report_write.Reset();
  int error = 0;
  ssize_t got = 0;
  do {
    got = read(report.get(), &error, sizeof error);
  } while (got < 0 && errno == EINTR);
  if (got == sizeof error) {
    waitpid(pid_, nullptr, 0);
    throw Error(Fault::kInternal, Errno("start " + spec.program.string(), error));
  }
}

Child::~Child() {
  if (ended_) return;
  KillGroup();
  Wait();
}

std::string Child::Ended::words() const {
  if (!by_signal) return "exit code " + std::to_string(number);
  return "signal " + std::to_string(number) + " (" + SignalName(number) + ")";
}

std::optional<Child::Ended> Child::Poll() {
  if (!ended_) Reap(WNOHANG);
  return ended_;
}

Child::Ended Child::Wait() {
  while (!ended_) Reap(0);
  return *ended_;
}

void Child::Reap(int options) {
  int status = 0;
  const pid_t got = waitpid(pid_, &status, options);
  if (got == 0 || (got < 0 && errno == EINTR)) return;
  if (got < 0) {
    ended_ = Ended{false, 127};  // somebody else reaped it
  } else {
    ended_ =
        WIFSIGNALED(status) ? Ended{true, WTERMSIG(status)} : Ended{false, WEXITSTATUS(status)};
  }
}

void Child::Kill(int signal) {
  if (!ended_) kill(pid_, signal);
}

bool Child::Over() const {
  if (ended_) return true;
  siginfo_t info{};
  const int result = waitid(P_PID, pid_, &info, WEXITED | WNOHANG | WNOWAIT);
  return result == 0 ? info.si_pid == pid_ : errno == ECHILD;
}

void Child::KillGroup() {
  // Until it is reaped, its number can't become that of another group.
  if (!ended_) kill(own_group_ ? -pid_ : pid_, SIGKILL);
}

std::filesystem::path FindOnPath(const std::string& name) {
  if (name.find('/') != std::string::npos) return name;
  const char* given = getenv("PATH");
  const std::string all = given != nullptr ? given : "";
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find(':', at), all.size());
    const std::filesystem::path file = std::filesystem::path(all.substr(at, end - at)) / name;
    std::error_code error;
    if (end > at && access(file.c_str(), X_OK) == 0 &&
        std::filesystem::is_regular_file(file, error))
      return file;
    at = end + 1;
  }
  return {};
}

}  // namespace tilery
