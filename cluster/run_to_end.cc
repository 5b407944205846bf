// RunToEnd of cluster/process.h.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "cluster/process.h"
#include "io/error.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kLastWords{1};  // of a group that is dead

// One stream of the child's words: what is kept of it, and its lines.
class Words {
 public:
  Words(UniqueFd fd, std::string& kept, std::function<void(const std::string&)> on_line)
      : fd_(std::move(fd)), kept_(kept), on_line_(std::move(on_line)) {}

  int fd() const { return fd_.get(); }
  bool open() const { return fd_.get() >= 0; }

  void Read() {
    char chunk[16384];
    const ssize_t got = read(fd_.get(), chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
      fd_.Reset();
      if (on_line_ && !line_.empty()) on_line_(line_);
      return;
    }
    const size_t size = static_cast<size_t>(got);
    if (kept_.size() < kOutputKept) kept_.append(chunk, size);
    if (!on_line_) return;
    for (size_t k = 0; k < size; ++k) {
      if (chunk[k] == '\n') {
        on_line_(line_);
        line_.clear();
      } else if (line_.size() < kLongestLine) {
        line_ += chunk[k];
      }
    }
  }

 private:
  static constexpr size_t kLongestLine = 1 << 16;
  UniqueFd fd_;
  std::string& kept_;
  const std::function<void(const std::string&)> on_line_;
  std::string line_;
};

}  // namespace

Ran RunToEnd(SpawnSpec spec, const std::string& input, const RunBounds& bounds) {
  const auto begin = Clock::now();
  // A socket, since writing to a pipe that nobody reads any more would send us SIGPIPE.
  auto [input_end, its_input] = SocketPair();
  auto [output_end, its_output] = Pipe();
  auto [error_end, its_errors] = Pipe();
  spec.input_fd = its_input.get();
  spec.output_fd = its_output.get();
  spec.error_fd = its_errors.get();
  Child child(spec);
  for (UniqueFd* its : {&its_input, &its_output, &its_errors}) its->Reset();

  Ran ran;
  Words words[] = {{std::move(output_end), ran.output, {}},
                   {std::move(error_end), ran.errors, bounds.on_error_line}};
  const bool looks = bounds.limit.count() > 0 || bounds.stop || spec.own_group;
  const int wait_ms = looks ? static_cast<int>(RunBounds::kLook.count()) : -1;
  std::optional<Clock::time_point> killed;
  size_t sent = 0;
  while (words[0].open() || words[1].open()) {
    if (sent == input.size() && !bounds.hold_input) input_end.Reset();
    const bool sends = sent < input.size();
    pollfd fds[] = {{words[0].fd(), POLLIN, 0},
                    {words[1].fd(), POLLIN, 0},
                    {sends ? input_end.get() : -1, POLLOUT, 0}};
    if (poll(fds, 3, wait_ms) < 0 && errno != EINTR) {
      throw Error(Fault::kInternal, Errno("wait for " + spec.program.string(), errno));
    }
    for (int k = 0; k < 2; ++k) {
      if (fds[k].revents != 0) words[k].Read();
    }
    if (fds[2].revents != 0) {
      const ssize_t got = send(input_end.get(), input.data() + sent, input.size() - sent,
                               MSG_NOSIGNAL | MSG_DONTWAIT);
      if (got > 0) sent += static_cast<size_t>(got);
      if (got < 0 && errno != EINTR && errno != EAGAIN) sent = input.size();
    }
    if (ran.by == Ran::By::kItself && bounds.limit.count() > 0 &&
        Clock::now() - begin >= bounds.limit) {
      ran.by = Ran::By::kLimit;
    } else if (ran.by == Ran::By::kItself && bounds.stop && bounds.stop()) {
      ran.by = Ran::By::kStop;
    } else if (ran.by == Ran::By::kItself && !(spec.own_group && child.Over())) {
      continue;
    }
    // What it has started may still hold its output open. What has left its group, too.
    child.KillGroup();
    if (!killed) killed = Clock::now();
    if (Clock::now() - *killed > kLastWords) break;
  }
  // It has closed its output, and may take its time to end.
  while (looks && !child.Over()) {
    if (bounds.limit.count() > 0 && Clock::now() - begin >= bounds.limit) {
      ran.by = Ran::By::kLimit;
      child.KillGroup();
    } else if (bounds.stop && bounds.stop()) {
      ran.by = Ran::By::kStop;
      child.KillGroup();
    }
    poll(nullptr, 0, 5);
  }
  if (spec.own_group) child.KillGroup();
  ran.ended = child.Wait();
  return ran;
}

}  // namespace tilery
