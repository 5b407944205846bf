#include "tests/bench/light_workers.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <vector>

#include "cluster/client.h"
#include "cluster/frame.h"
#include "scheduler/wire.h"

namespace tilery {
namespace {

// One thread serves all workers of a process, so that they take little of the machine that the
// scheduler is measured on.
class LightWorker {
 public:
  LightWorker(const LightWorkers& common, int number)
      : ahead_(common.ahead), unit_us_(static_cast<int64_t>(common.unit_s * 1e6)) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(common.port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
      std::perror("light worker");
      std::_Exit(1);
    }
    out_ = EncodeFrame({{"type", "hello"},
                        {"protocol", kProtocol},
                        {"token", common.token},
                        {"worker", "w" + std::to_string(number)},
                        {"host", "localhost"},
                        {"pid", int64_t{getpid()} * 1000 + number},
                        {"device", "none"},
                        {"epoch", common.epoch}});
    Flush();
  }
  ~LightWorker() { close(fd_); }
  LightWorker(const LightWorker&) = delete;

  int fd() const { return fd_; }
  bool ended() const { return ended_; }
  const std::vector<int32_t>& waits() const { return waits_; }

  void Read() {
    char chunk[65536];
    const ssize_t got = recv(fd_, chunk, sizeof chunk, MSG_DONTWAIT);
    if (got == 0) ended_ = true;
    if (got <= 0) return;
    frames_.Append({chunk, static_cast<size_t>(got)});
    while (const auto body = frames_.Next()) Receive(DecodeBody(*body));
    Flush();
  }

  // Reports what has taken its time.
  void Work(int64_t now_us) {
    if (held_.empty() || now_us < due_us_) return;
    Report(held_.front());
    held_.pop_front();
    // A late turn is made up for, but not more than a few.
    due_us_ = std::max(due_us_ + unit_us_, now_us - 4 * unit_us_);
    Want();
    Flush();
  }
  void Renew(int64_t turn) {
    out_ += EncodeFrame({{"type", "renew"},
                         {"sent_us", ControlClient::NowUs()},
                         {"phase", "run"},
                         {"batches", turn}});
    Flush();
  }

 private:
  void Receive(const Json& message) {
    const auto& type = message.at("type").get_ref<const std::string&>();
    if (type == "welcome") {
      due_us_ = ControlClient::NowUs();
      Want();
    } else if (type == "leases" && !message.at("leases").empty()) {
      if (asked_us_ > 0) waits_.push_back(static_cast<int32_t>(ControlClient::NowUs() - asked_us_));
      asked_us_ = 0;
      for (const Json& lease : message.at("leases")) {
        if (unit_us_ > 0)
          held_.push_back(lease);
        else
          Report(lease);
      }
      if (unit_us_ == 0) Want();
    } else if (type == "end") {
      out_ += EncodeFrame({{"type", "bye"}});
      ended_ = true;
    }
  }
  void Report(const Json& lease) {
    const Json& work = lease.at("work");
    Done done;
    done.file = work.at("output").get<std::string>();
    done.published = {1234, work.at("item_key").get<std::string>(), {1234, 1, 2, 3}};
    done.tiles = 1;
    out_ += EncodeFrame({{"type", "outcome"},
                         {"lease", lease.at("lease")},
                         {"unit", lease.at("unit")},
                         {"attempt", lease.at("attempt")},
                         {"outcome", ToJson(Outcome(done))}});
  }
  void Want() {
    const int64_t tiles = ahead_ - static_cast<int64_t>(held_.size());
    out_ += EncodeFrame({{"type", "want"}, {"tiles", tiles}, {"stages", 1}, {"assembles", 1}});
    if (asked_us_ == 0) asked_us_ = ControlClient::NowUs();
  }
  void Flush() {
    while (!out_.empty()) {
      const ssize_t sent = send(fd_, out_.data(), out_.size(), MSG_NOSIGNAL);
      if (sent <= 0) {
        ended_ = true;
        return;
      }
      out_.erase(0, static_cast<size_t>(sent));
    }
  }

  const int64_t ahead_, unit_us_;
  int fd_ = -1;
  bool ended_ = false;
  FrameReader frames_{kMaxFrame};
  std::string out_;
  std::deque<Json> held_;
  int64_t due_us_ = 0, asked_us_ = 0;
  std::vector<int32_t> waits_;
};

}  // namespace

void RunLightWorkers(const LightWorkers& common, int fd) {
  const int poll = epoll_create1(EPOLL_CLOEXEC);
  std::vector<std::unique_ptr<LightWorker>> workers;
  for (int i = 0; i < common.count; ++i) {
    workers.push_back(std::make_unique<LightWorker>(common, common.first + i));
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.ptr = workers.back().get();
    epoll_ctl(poll, EPOLL_CTL_ADD, workers.back()->fd(), &event);
  }
  const auto ended = [&] {
    return std::all_of(workers.begin(), workers.end(), [](const auto& w) { return w->ended(); });
  };
  int64_t looked_us = 0;
  // Each renews once a second, at a time of its own: workers do not begin all at once.
  size_t renewed = 0;
  const int64_t began_us = ControlClient::NowUs();
  for (int64_t turn = 0; !ended(); ++turn) {
    epoll_event events[64];
    const int count = epoll_wait(poll, events, 64, 1);
    for (int i = 0; i < count; ++i) {
      auto* const worker = static_cast<LightWorker*>(events[i].data.ptr);
      if (!worker->ended()) worker->Read();
      if (worker->ended()) epoll_ctl(poll, EPOLL_CTL_DEL, worker->fd(), nullptr);
    }
    const int64_t now_us = ControlClient::NowUs();
    const auto due = static_cast<size_t>((now_us - began_us) * common.count / 1'000'000);
    for (; renewed < due; ++renewed) workers[renewed % workers.size()]->Renew(turn);
    if (common.unit_s > 0 && now_us - looked_us > 500) {
      looked_us = now_us;
      for (const auto& worker : workers) worker->Work(now_us);
    }
  }
  for (const auto& worker : workers) {
    const auto& waits = worker->waits();
    (void)!write(fd, waits.data(), waits.size() * sizeof waits[0]);
  }
  close(poll);
  close(fd);
}

}  // namespace tilery
