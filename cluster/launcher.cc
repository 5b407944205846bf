#include "cluster/launcher.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#include <utility>

#include "cluster/process.h"
#include "io/error.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kRestarts = 5;  // of a supervisor within kRestartWindow
constexpr auto kRestartWindow = std::chrono::minutes(1);
constexpr auto kPause = std::chrono::milliseconds(200);  // before a supervisor is started again

}  // namespace

struct LocalLauncher::Impl {
  struct Supervised {
    WorkerStart start;
    std::unique_ptr<Child> process;
    UniqueFd control;
    std::string reports;  // the line begun
    std::deque<Clock::time_point> restarts;
    std::optional<Clock::time_point> start_at;
    bool gone = false;  // for good
  };

  void Start(Supervised& s) {
    auto [ours, its] = SocketPair();
    WriteWorkerStart(ours.get(), s.start);
    s.process = std::make_unique<Child>(SpawnSpec{tilery, {"supervise"}, {}, its.get(), -1, true});
    SetNonBlocking(ours.get());
    s.control = std::move(ours);
    s.reports.clear();
    s.start_at.reset();
  }

  void Read(Supervised& s, std::vector<Event>& events) {
    char chunk[4096];
    for (;;) {
      const ssize_t got = read(s.control.get(), chunk, sizeof chunk);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return;
      s.reports.append(chunk, static_cast<size_t>(got));
      for (size_t end; (end = s.reports.find('\n')) != std::string::npos;
           s.reports.erase(0, end + 1)) {
        const Json report = Json::parse(s.reports.begin(),
                                        s.reports.begin() + static_cast<long>(end), nullptr, false);
        if (!report.is_object()) continue;
        s.gone = s.gone || report.value("gone", false);
        events.push_back({s.start.worker, report.value("how", std::string()), s.gone,
                          report.value("refused", false), report.value("no_memory", false)});
      }
    }
  }

  void Watch(Supervised& s, std::vector<Event>& events) {
    if (s.process) {
      const auto ended = s.process->Poll();
      Read(s, events);
      if (!ended) return;
      s.process.reset();
      if (s.gone || stopping) return;
      const auto now = Clock::now();
      while (!s.restarts.empty() && now - s.restarts.front() > kRestartWindow)
        s.restarts.pop_front();
      s.gone = s.restarts.size() >= kRestarts;
      events.push_back({s.start.worker, "its supervisor ended by " + ended->words(), s.gone});
      if (s.gone) return;
      s.restarts.push_back(now);
      s.start_at = now + kPause;
    }
    if (!s.gone && !stopping && s.start_at && Clock::now() >= *s.start_at) {
      try {
        Start(s);
      } catch (const Error& error) {
        s.gone = true;
        events.push_back({s.start.worker, error.what(), true});
      }
    }
  }

  void Command(Supervised& s, const std::string& line) {
    if (s.process) (void)!send(s.control.get(), line.data(), line.size(), MSG_NOSIGNAL);
  }

  std::filesystem::path tilery;
  std::vector<std::unique_ptr<Supervised>> all;
  bool stopping = false;
};

LocalLauncher::LocalLauncher(std::filesystem::path tilery, std::vector<WorkerLaunch> workers,
                             Endpoint endpoint, std::string token, int64_t epoch,
                             std::filesystem::path logs)
    : impl_(std::make_unique<Impl>()) {
  impl_->tilery = std::move(tilery);
  for (const WorkerLaunch& worker : workers) {
    auto s = std::make_unique<Impl::Supervised>();
    s->start = {endpoint,
                token,
                worker.id,
                worker.device,
                worker.threads,
                epoch,
                logs.empty() ? "" : (logs / WorkerLogName(worker.id)).string(),
                worker.program.string(),
                worker.environment,
                worker.cpus};
    impl_->Start(*s);
    impl_->all.push_back(std::move(s));
  }
}

LocalLauncher::~LocalLauncher() = default;

std::vector<LocalLauncher::Event> LocalLauncher::Poll() {
  std::vector<Event> events;
  for (auto& s : impl_->all) impl_->Watch(*s, events);
  return events;
}

void LocalLauncher::Signal(int signal) {
  impl_->stopping = true;
  for (auto& s : impl_->all) {
    if (s->process) s->process->Kill(signal);
  }
}

void LocalLauncher::Kill(const std::string& worker) {
  for (auto& s : impl_->all) {
    if (s->start.worker == worker) impl_->Command(*s, "kill\n");
  }
}

void LocalLauncher::Stop() {
  impl_->stopping = true;
  for (auto& s : impl_->all) impl_->Command(*s, "stop\n");
}

bool LocalLauncher::AllEnded() const {
  return std::all_of(impl_->all.begin(), impl_->all.end(),
                     [](const auto& s) { return s->process == nullptr; });
}

bool LocalLauncher::WaitAll(double seconds) {
  Stop();
  const auto until = Clock::now() + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
  for (;;) {
    Poll();
    const bool ended = AllEnded();
    if (ended || Clock::now() >= until) return ended;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace tilery
