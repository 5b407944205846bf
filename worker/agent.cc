#include "worker/agent.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>

#include "cluster/meeting.h"
#include "io/error.h"
#include "io/file.h"
#include "pipeline/device_loss.h"
#include "worker/fault_points.h"
#include "worker/model_source.h"
#include "worker/unit_runner.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kBeat = std::chrono::milliseconds(50);
constexpr auto kProfileEvery = std::chrono::seconds(2);
constexpr auto kAnswerTime = std::chrono::milliseconds(100);  // for which a batch waits for leases
constexpr auto kLateFile = std::chrono::seconds(8);  // for what another host wrote to be seen here
constexpr size_t kTraceRows = 5000;                  // newest events in one message

class Agent {
 public:
  Agent(const WorkerStart& start, const AgentOptions& options) : start_(start), options_(options) {}

  AgentEnd Run() {
    ControlClient client(start_.endpoint,
                         {{"token", start_.token},
                          {"worker", start_.worker},
                          {"host", HostName()},
                          {"pid", getpid()},
                          {"device", start_.device},
                          {"epoch", start_.epoch}},
                         options_.give_up_s,
                         {[this](const Json& message) { Receive(message); },
                          [this](const std::string& why) {
                            Set(&Agent::lost_, why);
                            source_.GiveUp();
                          }});
    client_ = &client;
    const AgentEnd end = Serve();
    StopHeart();
    return end;  // the client's end sends what is queued
  }

 private:
  // ---- The main thread ----

  AgentEnd Serve() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return welcome_ || lost_ || ended_; });
    if (lost_) return Lost(*lost_);
    if (!welcome_) return AgentEnd::kDone;
    const Json welcome = *welcome_;
    lock.unlock();

    heart_ = std::thread([this] { Beat(); });
    try {
      Start(welcome);
    } catch (const OutOfDeviceMemory& e) {
      // The batch had been proven, so others have taken what it needs.
      return Failed(e.what(), AgentEnd::kNoMemory);
    } catch (const Error& e) {
      // What may go away, and what is a fault of ours, may be different the next time.
      const bool lasts = e.fault() != Fault::kTransient && e.fault() != Fault::kInternal;
      return Failed(e.what(), lasts ? AgentEnd::kRefused : AgentEnd::kFailed);
    } catch (const std::exception& e) {
      return Failed(e.what(), AgentEnd::kFailed);
    }
    if (options_.ready) options_.ready();
    phase_ = "run";
    UpdateWant();

    lock.lock();
    changed_.wait(lock, [this] { return draining_ || ended_ || lost_; });
    const bool drain = draining_ && !ended_ && !lost_;
    lock.unlock();
    const double time = (drain ? options_.drain_s : 0) + kStopLimit;
    doomed_at_us_ = ControlClient::NowUs() + static_cast<int64_t>(time * 1e6);
    if (drain) {
      phase_ = "drain";
      runner_->Drain();
      lock.lock();
      changed_.wait_for(lock, std::chrono::duration<double>(options_.drain_s),
                        [this] { return ended_ || lost_ || runner_->held().empty(); });
      lock.unlock();
    }
    runner_->Stop();
    lock.lock();
    if (lost_) return Lost(*lost_);
    lock.unlock();
    SendProfile();
    client_->Send({{"type", "bye"}});
    return AgentEnd::kDone;
  }

  void Start(const Json& welcome) {
    WorkerContext said = ContextFromJson(welcome.at("context"));
    if (said.shared) WaitForLateFiles(kLateFile);
    // On a CPU every thread is a lane, and hosts have different numbers of them.
    if (start_.device == "cpu") said.lanes = start_.threads;
    if (!said.grids) source_.Get(said);
    const auto context = std::make_shared<const WorkerContext>(std::move(said));
    std::unique_ptr<Engine> engine;
    if (!context->grids) {
      engine = options_.engine(*context, start_, profile_);
      source_.Loaded();
    }
    RunnerOptions options = RunnerOptionsFor(start_.threads);
    options.context = context;
    if (context->grids && options_.codec) codec_ = options_.codec();
    options.codec = codec_.get();
    options.epoch = welcome.at("epoch").get<int64_t>();
    options.lease_is_young = [this] { return LeaseIsYoung(); };
    options.abandoned = [this] { HeldLess(); };
    most_stages_ = options.stagers;
    most_assembles_ = options.assemblers;
    // Before the engine and behind it.
    tiles_ahead_ = 2 * UnitRunner::kBatchesAhead * context->batch * context->lanes;
    tiles_step_ = context->batch * context->lanes;
    if (context->grids) tiles_ahead_ = tiles_step_ = 1;  // files; the runner says how many
    auto runner = std::make_unique<UnitRunner>(
        std::move(options), std::move(engine), profile_,
        [this](const Lease& lease, const Outcome& outcome) { Report(lease, outcome); });
    const std::lock_guard lock(mutex_);
    runner_ = std::move(runner);
  }

  AgentEnd Lost(const std::string& why) const {
    std::fprintf(stderr, "tilery-worker %s: the scheduler is gone: %s\n", start_.worker.c_str(),
                 why.c_str());
    return AgentEnd::kLost;
  }

  AgentEnd Failed(const std::string& why, AgentEnd end) {
    // A reason that is handed on stands alone; of others the log should say whose they are.
    const std::string whose =
        end == AgentEnd::kFailed ? "tilery-worker " + start_.worker + ": " : "";
    std::fprintf(stderr, "%s%s\n", whose.c_str(), why.c_str());
    client_->Send({{"type", "bye"}, {"reason", why}});
    return end;
  }

  template <typename T, typename V>
  void Set(T Agent::*member, V value) {
    {
      const std::lock_guard lock(mutex_);
      this->*member = std::move(value);
    }
    changed_.notify_all();
  }

  // ---- The client's thread ----

  void Receive(const Json& message) {
    const std::string type = message.at("type").get<std::string>();
    if (type == "welcome") {
      lease_s_ = message.at("lease_s").get<double>();
      margin_s_ = message.at("margin_s").get<double>();
      Set(&Agent::welcome_, message);
    } else if (type == "leases") {
      Take(message);
    } else if (type == "renewed") {
      UpdateWant();  // work may be taken now, if it was not before
    } else if (type == "drop") {
      if (UnitRunner* runner = Runner()) {
        runner->Drop(message.at("leases").get<std::vector<int64_t>>());
        if (message.value("early", false)) runner->DropEarly();
        UpdateWant();
      }
    } else if (type == "bricks") {
      if (UnitRunner* runner = Runner()) {
        runner->AddBricks(message.at("lease").get<int64_t>(), BricksFromJson(message.at("bricks")));
      }
    } else if (type == "model") {
      source_.Answer(message);
    } else if (type == "drain") {
      Set(&Agent::draining_, true);
      source_.GiveUp();
    } else if (type == "end") {
      Set(&Agent::ended_, true);
      source_.GiveUp();
    }
  }

  void Take(const Json& message) {
    UnitRunner* const runner = Runner();
    if (runner == nullptr) throw Error(Fault::kInternal, "leases came before they were wanted");
    for (const Json& lease : message.at("leases")) {
      runner->Submit({lease.at("lease").get<int64_t>(), lease.at("unit").get<int64_t>(),
                      lease.at("attempt").get<int64_t>(), UnitWorkFromJson(lease.at("work"))});
    }
    {
      const std::lock_guard lock(want_mutex_);
      want_open_until_ = {};
      if (!message.at("leases").empty()) last_tiles_ = last_stages_ = last_assembles_ = -1;
    }
    UpdateWant();
  }

  UnitRunner* Runner() {
    const std::lock_guard lock(mutex_);
    return runner_.get();
  }

  // ---- Any thread ----

  void Report(const Lease& lease, const Outcome& outcome) {
    FaultPoint(FaultPlace::kReport);
    client_->Send({{"type", "outcome"},
                   {"lease", lease.lease},
                   {"unit", lease.unit},
                   {"attempt", lease.attempt},
                   {"outcome", ToJson(outcome)}});
    UpdateWant();
    HeldLess();
  }

  // A drain may wait for the last one.
  void HeldLess() {
    { const std::lock_guard lock(mutex_); }  // not between its look and its sleep
    changed_.notify_all();
  }

  bool LeaseIsYoung() const { return client_->LeaseYoungerThan(lease_s_ - margin_s_); }

  // Says what may be sent, unless an answer is on its way or it would be too little to matter.
  // Nothing may while no renewal is known to have arrived: a result could not be published.
  void UpdateWant() {
    UnitRunner* const runner = Runner();
    if (runner == nullptr) return;
    {
      const std::lock_guard lock(want_mutex_);
      // Looked at under the lock: else leases that have come since would be asked for once more.
      const UnitRunner::Held held = runner->held();
      const bool open = Clock::now() < want_open_until_;
      if (!open && LeaseIsYoung() && !Draining()) {
        const int64_t ahead = std::max(tiles_ahead_, runner->most_units() * held.largest);
        const int64_t tiles = std::max<int64_t>(ahead - held.tiles, 0);
        const int64_t stages = std::max<int64_t>(most_stages_ - held.stage_units, 0);
        const int64_t assembles = std::max<int64_t>(most_assembles_ - held.assemble_units, 0);
        const bool others = stages != last_stages_ || assembles != last_assembles_;
        const bool matters = tiles >= tiles_step_ || others || held.empty();
        if (matters && (tiles != last_tiles_ || others)) {
          client_->Send(
              {{"type", "want"}, {"tiles", tiles}, {"stages", stages}, {"assembles", assembles}});
          last_tiles_ = tiles;
          last_stages_ = stages;
          last_assembles_ = assembles;
          if (tiles > 0) want_open_until_ = Clock::now() + kAnswerTime;
        }
      }
    }
    TellRunner(*runner);
  }

  void TellRunner(UnitRunner& runner) {
    const std::lock_guard order(tell_mutex_);
    bool open = false;
    {
      const std::lock_guard lock(want_mutex_);
      open = Clock::now() < want_open_until_;
    }
    runner.ExpectMore(open);
  }

  bool Draining() {
    const std::lock_guard lock(mutex_);
    return draining_ || ended_ || lost_;
  }

  // ---- The heartbeat's thread ----

  void Beat() {
    const auto renew_every = std::chrono::duration<double>(std::min(lease_s_ / 4, 1.0));
    Clock::time_point next_renewal{}, next_profile = Clock::now() + kProfileEvery;
    std::unique_lock lock(heart_mutex_);
    while (!heart_stops_) {
      lock.unlock();
      const int64_t memory = PrivateMemory();
      peak_memory_ = std::max(peak_memory_.load(), memory);
      const Clock::time_point now = Clock::now();
      UnitRunner* const runner = Runner();
      if (now >= next_renewal) {
        client_->Send({{"type", "renew"},
                       {"sent_us", ControlClient::NowUs()},
                       {"phase", phase_.load()},
                       {"batches", runner == nullptr ? 0 : runner->progress()},
                       {"busy_s", profile_.busy_s()},
                       {"private_bytes", memory}});
        next_renewal = now + std::chrono::duration_cast<Clock::duration>(renew_every);
      }
      if (now >= next_profile) {
        SendProfile();
        next_profile = now + kProfileEvery;
      }
      if (runner != nullptr) UpdateWant();
      if (doomed_at_us_ != 0 && ControlClient::NowUs() > doomed_at_us_) {
        std::fprintf(stderr, "tilery-worker %s: a batch takes longer than the time to end\n",
                     start_.worker.c_str());
        _exit(static_cast<int>(AgentEnd::kLost));
      }
      lock.lock();
      heart_wakes_.wait_for(lock, kBeat, [this] { return heart_stops_; });
    }
  }

  void StopHeart() {
    if (!heart_.joinable()) return;
    {
      const std::lock_guard lock(heart_mutex_);
      heart_stops_ = true;
    }
    heart_wakes_.notify_all();
    heart_.join();
  }

  // Totals so far, and the newest trace events since the last time, on the clock of
  // ControlClient::NowUs().
  void SendProfile() {
    const std::lock_guard order(profile_mutex_);
    const int64_t now_us = ControlClient::NowUs();
    const auto began_us = now_us - static_cast<int64_t>(profile_.alive_s() * 1e6);
    Json stages = Json::object();
    const auto totals = profile_.totals();
    for (int i = 0; i < kStages; ++i) {
      stages[StageName(static_cast<Stage>(i))] = {{"s", totals[i].s},
                                                  {"calls", totals[i].calls},
                                                  {"bytes", totals[i].bytes},
                                                  {"under_model_s", totals[i].under_model_s}};
    }
    const ModelTime::Totals model = profile_.model_time();
    Json idle = Json::object(), queues = Json::object();
    for (int i = 0; i < kIdleCauses; ++i)
      idle[IdleCauseName(static_cast<IdleCause>(i))] = model.idle_s[i];
    for (int i = 0; i < kQueues; ++i)
      queues[QueueName(i)] = {{"mean", model.mean[i]}, {"most", model.most[i]}};
    Json trace = Json::array();
    const std::vector<TraceEvent> events = profile_.TakeTrace();
    for (size_t i = events.size() - std::min(events.size(), kTraceRows); i < events.size(); ++i) {
      const TraceEvent& event = events[i];
      trace.push_back(
          {event.name, began_us + event.begin_us, event.duration_us, event.thread, event.unit});
    }
    peak_memory_ = std::max(peak_memory_.load(), PrivateMemory());
    UnitRunner* const runner = Runner();
    const DeviceUse use = runner == nullptr ? DeviceUse{} : runner->device_use();
    client_->Send({{"type", "profile"},
                   {"stages", std::move(stages)},
                   {"model_s", model.model_s},
                   {"model_idle_s", std::move(idle)},
                   {"queues", std::move(queues)},
                   {"busy_s", profile_.busy_s()},
                   {"alive_s", profile_.alive_s()},
                   {"peak_host_bytes", peak_memory_.load()},
                   {"peak_device_bytes", use.peak_bytes},
                   {"steady_allocations", runner == nullptr ? 0 : runner->steady_allocations()},
                   {"clock_us", now_us},
                   {"model", source_.words()},
                   {"trace", std::move(trace)}});
  }

  const WorkerStart& start_;
  const AgentOptions& options_;
  Profile profile_;
  ControlClient* client_ = nullptr;
  ModelSource source_{[this](Json message) { client_->Send(std::move(message)); },
                      options_.broadcaster, start_.worker};
  std::atomic<double> lease_s_{15}, margin_s_{3};
  std::atomic<const char*> phase_{"load"};
  std::atomic<int64_t> peak_memory_{0};
  std::atomic<int64_t> doomed_at_us_{0};  // 0: not
  int64_t tiles_ahead_ = 1, tiles_step_ = 1, most_stages_ = 1, most_assembles_ = 1;

  std::mutex mutex_;  // guards the five below
  std::condition_variable changed_;
  std::optional<Json> welcome_;
  std::optional<std::string> lost_;
  bool draining_ = false, ended_ = false;
  std::unique_ptr<CodecDevices> codec_;  // outlives the runner
  std::unique_ptr<UnitRunner> runner_;

  std::mutex want_mutex_;                                             // guards the three below
  int64_t last_tiles_ = -1, last_stages_ = -1, last_assembles_ = -1;  // as sent and not used up
  Clock::time_point want_open_until_{};  // an answer is expected until then

  std::mutex tell_mutex_;     // the runner is told in the order in which it became true
  std::mutex profile_mutex_;  // profiles are sent in the order of their totals

  std::mutex heart_mutex_;
  std::condition_variable heart_wakes_;
  bool heart_stops_ = false;
  std::thread heart_;
};

}  // namespace

AgentEnd RunAgent(const WorkerStart& start, const AgentOptions& options) {
  return Agent(start, options).Run();
}

}  // namespace tilery
