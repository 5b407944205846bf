#include "tests/bench/light_workers.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "cluster/client.h"
#include "scheduler/wire.h"

namespace tilery {
namespace {

class LightWorker {
 public:
  LightWorker(const LightWorkers& common, int number)
      : ahead_(common.ahead), unit_us_(static_cast<int64_t>(common.unit_s * 1e6)) {
    client_ = std::make_unique<ControlClient>(
        Endpoint{"127.0.0.1", common.port},
        Json{{"token", common.token},
             {"worker", "w" + std::to_string(number)},
             {"host", "localhost"},
             {"pid", int64_t{getpid()} * 1000 + number},
             {"device", "none"},
             {"epoch", common.epoch}},
        10,
        ControlClient::Handlers{[this](const Json& message) { Receive(message); },
                                [this](const std::string&) { ended_ = true; }});
    ready_ = true;
  }
  bool ended() const { return ended_; }

  // Reports what has taken its time.
  void Work(int64_t now_us) {
    const std::lock_guard lock(mutex_);
    if (held_.empty() || now_us < due_us_) return;
    Report(held_.front());
    held_.pop_front();
    // Late turns are made up for, but not more than a few.
    due_us_ = std::max(due_us_ + unit_us_, now_us - 4 * unit_us_);
    Want();
  }
  void Renew(int64_t turn) {
    client_->Send({{"type", "renew"},
                   {"sent_us", ControlClient::NowUs()},
                   {"phase", "run"},
                   {"batches", turn}});
  }
  std::vector<int32_t> waits() const { return waits_; }  // once it has ended
  void Close() { client_.reset(); }

 private:
  void Receive(const Json& message) {
    while (!ready_) usleep(10);
    const auto& type = message.at("type").get_ref<const std::string&>();
    const std::lock_guard lock(mutex_);
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
      client_->Send({{"type", "bye"}});
      ended_ = true;
    }
  }
  void Report(const Json& lease) {
    const Json& work = lease.at("work");
    Done done;
    done.file = work.at("output").get<std::string>();
    done.published = {1234, work.at("item_key").get<std::string>(), {1234, 1, 2, 3}};
    done.tiles = 1;
    client_->Send({{"type", "outcome"},
                   {"lease", lease.at("lease")},
                   {"unit", lease.at("unit")},
                   {"attempt", lease.at("attempt")},
                   {"outcome", ToJson(Outcome(done))}});
  }
  void Want() {
    const int64_t tiles = ahead_ - static_cast<int64_t>(held_.size());
    client_->Send({{"type", "want"}, {"tiles", tiles}, {"stages", 1}, {"assembles", 1}});
    if (asked_us_ == 0) asked_us_ = ControlClient::NowUs();
  }

  const int64_t ahead_, unit_us_;
  std::unique_ptr<ControlClient> client_;
  std::atomic<bool> ready_{false}, ended_{false};
  std::mutex mutex_;  // guards the rest
  std::deque<Json> held_;
  int64_t due_us_ = 0, asked_us_ = 0;
  std::vector<int32_t> waits_;
};

}  // namespace

void RunLightWorkers(const LightWorkers& common, int fd) {
  std::vector<std::unique_ptr<LightWorker>> workers;
  for (int i = 0; i < common.count; ++i)
    workers.push_back(std::make_unique<LightWorker>(common, common.first + i));
  const auto ended = [&] {
    for (const auto& worker : workers)
      if (!worker->ended()) return false;
    return true;
  };
  for (int64_t turn = 0, renewed_us = 0; !ended(); ++turn) {
    const int64_t now_us = ControlClient::NowUs();
    if (now_us - renewed_us > 1000000) {
      renewed_us = now_us;
      for (const auto& worker : workers) worker->Renew(turn);
    }
    if (common.unit_s > 0)
      for (const auto& worker : workers) worker->Work(now_us);
    usleep(common.unit_s > 0 ? 500 : 10000);
  }
  for (const auto& worker : workers) {
    worker->Close();
    const std::vector<int32_t> waits = worker->waits();
    (void)!write(fd, waits.data(), waits.size() * sizeof waits[0]);
  }
  close(fd);
}

}  // namespace tilery
