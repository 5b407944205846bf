#include "scheduler/serve.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "cluster/launcher.h"
#include "io/error.h"
#include "scheduler/input_hasher.h"
#include "scheduler/launch_plan.h"
#include "scheduler/probe_client.h"
#include "scheduler/signals.h"
#include "scheduler/status.h"
#include "scheduler/worker_watch.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using Level = Console::Level;

constexpr double kFirstReminder = 10;  // seconds without any worker

// Hashes, beside the run, the inputs whose content the ledger does not know yet.
class InputMemory {
 public:
  InputMemory(const Plan& plan, Ledger& ledger)
      : plan_(plan), ledger_(ledger), hasher_(Unknown(plan, ledger)) {}
  void Record() {
    for (const InputHasher::Hashed& hashed : hasher_.Take()) {
      const std::string& path = plan_.items[hashed.index].input;
      auto known = ledger_.FindInput(path);
      if (!known) continue;
      known->content_hash = hashed.hash;
      ledger_.RecordInput(path, *known);
    }
  }
  // Before a run has ended, the rest may take a moment; one that was asked to end has none.
  void Finish(bool in_haste) {
    hasher_.Finish(int64_t{1} << 30, std::chrono::milliseconds(in_haste ? 0 : 3000));
    Record();
    ledger_.Commit();
  }

 private:
  static std::vector<InputHasher::Wanted> Unknown(const Plan& plan, const Ledger& ledger) {
    std::vector<InputHasher::Wanted> wanted;
    for (size_t k = 0; k < plan.items.size(); ++k) {
      const Item& item = plan.items[k];
      if (!item.refused.empty()) continue;
      const auto known = ledger.FindInput(item.input);
      if (known && known->content_hash.empty()) wanted.push_back({&item.input, item.stamp, k});
    }
    return wanted;
  }

  const Plan& plan_;
  Ledger& ledger_;
  InputHasher hasher_;
};

// What all hosts of a run must see, the work folder first. A scratch folder below it is seen with
// it.
std::vector<std::string> SharedFolders(const Job& job) {
  const std::string& work = job.execution.work;
  const std::string& scratch = job.execution.scratch;
  if (scratch.starts_with(work + "/")) return {work};
  return {work, scratch};
}

// WORK/join.json, as long as there is a run to join; in other folders that hosts share the same, by
// which they know that they see these very folders.
class OpenMeeting {
 public:
  OpenMeeting(const std::vector<std::string>& folders, const Meeting& meeting) : folders_(folders) {
    for (const fs::path folder : folders_) WriteMeeting(folder, meeting);
  }
  ~OpenMeeting() {
    std::error_code ignored;
    for (const fs::path folder : folders_) fs::remove(MeetingFile(folder), ignored);
    // It may have been made for this alone; one that holds something stays.
    if (folders_.size() > 1) fs::remove(folders_[1], ignored);
  }
  OpenMeeting(const OpenMeeting&) = delete;

 private:
  const std::vector<std::string> folders_;
};

RunOptions OptionsOf(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                     const NumericsRecord& record, const Crowd& crowd) {
  RunOptions options;
  options.token = NewToken();
  // For tests, which can't wait for two minutes.
  if (const char* hung = std::getenv("TILERY_TEST_HUNG_S")) options.hung_s = std::atof(hung);
  options.work = job.execution.work;
  options.scratch = job.execution.scratch;
  options.scratch_limit = job.execution.scratch_limit.value_or(-1);
  options.max_failures = job.execution.max_failures;
  // A count is a share of these items; the half keeps rounding from deciding.
  if (job.execution.max_failures_count >= 0 && !prepared.resolved.plan.items.empty()) {
    options.max_failures = (static_cast<double>(job.execution.max_failures_count) + 0.5) /
                           static_cast<double>(prepared.resolved.plan.items.size());
  }
  options.addresses = crowd.addresses;
  options.hosts = HostPolicy{devices.gpu() ? devices.seats[0].name : "", record.numerics.precision,
                             SharedFolders(job), crowd.workers, job.execution.threads};
  return options;
}

constexpr int64_t kPassedOn = 256 << 20;  // bytes of a model, from which it is worth a meeting

// Only GPUs have a way to pass it on.
ModelPassOptions PassOf(const Job& job, const WorkerContext& context, const Crowd& crowd,
                        bool gpu) {
  ModelPassOptions pass;
  const bool always = job.execution.broadcast == "on";
  pass.on = gpu && (always || (job.execution.broadcast == "auto" && context.shared &&
                               context.model_bytes >= kPassedOn));
  if (always) pass.least_hosts = 1;
  pass.hosts = crowd.ranks > 0 ? crowd.ranks : crowd.nodes;
  return pass;
}

// Workers of hosts that join, in the words of a launcher.
class Joined {
 public:
  Joined(const Crowd& crowd, WorkerWatch& watch, Console& console)
      : crowd_(crowd), watch_(watch), console_(console) {
    watch_.Expect(crowd.ranks > 0 ? crowd.ranks : crowd.local ? 0 : -1);
  }

  void Take(const HostNews& news) {
    if (!news.worker.empty()) {
      events_.push_back({news.worker, news.how, news.gone, news.refuses_job, news.no_memory});
      return;
    }
    if (crowd_.ranks > 0) watch_.Expect(crowd_.ranks - ++hosts_);
    if (!news.refused.empty()) {
      console_.Say(Level::kWarning,
                   fmt::format("{} may not join: {}", Printable(news.host), news.refused));
      return;
    }
    std::string workers;
    for (const HostOrder::Worker& worker : news.workers) {
      watch_.Add(worker.id, worker.device);
      workers += fmt::format("{}{} on {}", workers.empty() ? "" : ", ", worker.id, worker.device);
    }
    console_.Say(Level::kInfo, fmt::format("{} joins: {}", Printable(news.host), workers));
  }
  std::vector<LocalLauncher::Event> Events() { return std::exchange(events_, {}); }

 private:
  const Crowd& crowd_;
  WorkerWatch& watch_;
  Console& console_;
  int hosts_ = 0;
  std::vector<LocalLauncher::Event> events_;
};

}  // namespace

Served Serve(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
             const NumericsRecord& record, bool graph, const Resume& resume, const Crowd& crowd,
             Ledger& ledger, Console& console) {
  const std::vector<WorkerLaunch> launches =
      crowd.local ? LaunchPlan(job, devices, record.numerics.precision)
                  : std::vector<WorkerLaunch>();
  WorkerWatch watch(launches,
                    {prepared.model.path, record.numerics.batch, job.execution.gpu_memory});
  Joined joined(crowd, watch, console);
  RunOptions options = OptionsOf(job, prepared, devices, record, crowd);
  options.first_host_worker = static_cast<int>(launches.size());
  options.host_news = [&joined](const HostNews& news) { joined.Take(news); };
  // The launcher needs the coordinator's port, and the coordinator the launcher's hand for hung
  // workers.
  LocalLauncher* hand = nullptr;
  options.kill_worker = [&hand](const std::string& worker) {
    if (hand != nullptr) hand->Kill(worker);
  };
  WorkerContext context = MakeContext(job, prepared, devices, record, graph);
  context.shared = crowd.addresses != Crowd().addresses;
  options.model_pass = PassOf(job, context, crowd, devices.gpu());
  context.pass_model = options.model_pass.on;
  Coordinator coordinator(prepared.resolved.plan, resume, ledger, context, options);
  const Meeting meeting{crowd.addresses, coordinator.port(), options.token, ledger.epoch()};
  const OpenMeeting open(SharedFolders(job), meeting);
  if (crowd.announce) crowd.announce(meeting);
  LocalLauncher launcher(SelfExecutable(), launches, {crowd.addresses.at(0), coordinator.port()},
                         options.token, ledger.epoch(), job.execution.work);
  hand = &launcher;
  InputMemory inputs(prepared.resolved.plan, ledger);
  bool draining = false;
  const fs::path work = job.execution.work;
  double lonely_since = 0, next_reminder = kFirstReminder;
  const auto begin = std::chrono::steady_clock::now();
  RunResult result = coordinator.Run(
      [&](const Progress& progress) {
        console.Show(progress);
        WriteStatus(work, progress);
        const double now =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        if (!progress.workers.empty()) {
          lonely_since = now;
          next_reminder = kFirstReminder;
        } else if (!crowd.local && crowd.ranks == 0 && now - lonely_since > next_reminder) {
          next_reminder *= 4;
          console.Say(Level::kInfo,
                      fmt::format("no worker is here: `tilery worker --join {}` on any host that "
                                  "sees this folder adds one",
                                  Printable(work.string())));
        }
      },
      [&] {
        inputs.Record();
        if (crowd.look) crowd.look();
        std::vector<LocalLauncher::Event> events = launcher.Poll();
        for (LocalLauncher::Event& event : joined.Events()) events.push_back(std::move(event));
        for (const LocalLauncher::Event& event : events) {
          const WorkerWatch::Verdict verdict = watch.Judge(event);
          if (!verdict.say.empty()) console.Say(Level::kWarning, verdict.say);
          coordinator.WorkerDied(event.worker, event.how, verdict.death);
          if (!verdict.exhausted.empty()) coordinator.WorkersExhausted(verdict.exhausted);
        }
        if (const std::string signal = DrainSignal(); !signal.empty() && !draining) {
          draining = true;
          console.Say(Level::kInfo, signal + ": finishing what is begun; the same command resumes");
          coordinator.Drain(signal);
        }
      });
  for (const WorkerLaunch& launch : launches) {
    // Who is still starting holds nothing, and would wait for an answer that nobody gives any more.
    const bool joined =
        std::any_of(result.workers.begin(), result.workers.end(),
                    [&](const WorkerReport& worker) { return worker.id == launch.id; });
    if (!joined) launcher.Kill(launch.id);
  }
  launcher.WaitAll(5);
  try {
    inputs.Finish(result.status == "interrupted");
  } catch (const Error& e) {
    // On a full disk only hashes are forgotten: the run itself has ended as it says.
    if (e.fault() != Fault::kOutput) throw;
    console.Log(Level::kWarning, e.what());
  }
  const bool hopeless = result.status == "interrupted" && !draining;
  return {std::move(result), hopeless ? watch.refusal() : "", watch.retired()};
}

}  // namespace tilery
