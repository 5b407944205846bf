// Gives out units, judges outcomes, keeps the ledger: the thin runner around the pure queue. One
// thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "scheduler/hosts.h"
#include "scheduler/ledger.h"
#include "scheduler/model_pass.h"
#include "scheduler/plan.h"
#include "scheduler/wire.h"

namespace tilery {

// What was found done before the run, unit by unit (see scheduler/resume.h).
enum class ItemState : uint8_t { kOpen, kUnchanged, kFailed };
struct Resume {
  std::vector<ItemState> items;  // kUnchanged: published output is whole; kFailed: refused
  std::vector<std::pair<int64_t, BrickRecord>>
      bricks;  // infer units whose brick is there and right
  std::vector<std::pair<int64_t, BrickRecord>> stages;  // items whose stage file is there and whole
  int64_t adopted_tiles = 0;  // of bricks found on disk that the ledger did not know
};

// A host has joined with these workers, one of them has died, or it has gone with them.
struct HostNews {
  std::string host;
  std::vector<HostOrder::Worker> workers;  // not empty: it has joined with them
  std::string refused;                     // it may not join, and why
  // A worker's death; `gone`: it will not be started again. As LocalLauncher::Event.
  std::string worker, how;
  bool gone = false, refuses_job = false, no_memory = false;
};

struct RunOptions {
  double lease_s = 15;
  double hung_s = 120;   // a busy worker may show the same (phase, batches) for so long, or for
                         // 20 times its slowest batch
  int max_attempts = 3;  // of a unit, over all workers; a unit that kills two workers is set aside
  int64_t scratch_limit = -1;  // bytes; -1: free space of the scratch folder minus 5 %
  double drain_s = 10;         // on Drain, for what is begun
  double max_failures = 1.0;   // share of the items; beyond it the run stops as "failed"
  std::string token, work, scratch;
  std::vector<std::string> addresses = {"127.0.0.1"};  // on which it listens
  ModelPassOptions model_pass;
  std::optional<HostPolicy> hosts;  // of hosts that may join; nullopt: none may
  int first_host_worker = 0;        // number of their first worker
  // Of workers on hosts that joined; called on the run's thread.
  std::function<void(const HostNews&)> host_news;
  // Ends the process of a worker that shows no sign of life (LocalLauncher::Kill), called on the
  // run's thread. Without it a hung worker only loses its leases.
  std::function<void(const std::string& worker)> kill_worker;
};

struct TraceRow {    // one piece of work of one thread, in the run's microseconds
  std::string name;  // of the stage
  int64_t begin_us = 0, duration_us = 0, thread = 0, unit = -1;
  bool operator==(const TraceRow&) const = default;
};

struct WorkerReport {  // of profile.json, for every worker that ever joined
  std::string id, host, device;
  int64_t pid = 0;
  double joined_s = 0, left_s = -1;  // of the run; -1: it is there
  double last_s = -1;                // its last unit was accepted; -1: none was
  std::string state;                 // "idle", "busy", "gone"
  int64_t tiles = 0, units = 0;      // accepted
  int64_t repeated = 0;              // model runs for them that were thrown away
  int64_t careful = 0;               // of `tiles`, run in fp32 since they were not finite otherwise
  double busy_s = 0, idle_s = 0;
  Json stages;         // name -> {s, calls, bytes, under_model_s}
  double model_s = 0;  // with at least one model run under way
  Json model_idle_s;   // cause -> s: the rest of its time (pipeline/model_time.h)
  Json queues;         // name -> {mean, most}: infer units
  Json model;          // where its bytes came from (worker/model_source.h)
  int64_t peak_host_bytes = 0, peak_device_bytes = 0, steady_allocations = 0;
  std::vector<TraceRow> trace;  // the newest
};
struct Failure {
  std::string item, stage, reason;
};
struct RunResult {
  std::string status;  // done | failed | interrupted
  int64_t items_done = 0, items_failed = 0, items_unchanged = 0;
  int64_t tiles_inferred = 0, tiles_skipped = 0, tiles_repeated = 0, tiles_reused = 0;
  int64_t tiles_careful = 0;  // of tiles_inferred: see WorkerReport::careful
  int64_t units_run = 0, units_reused = 0;
  int64_t units_twice = 0;      // given to a second worker, since the first was slow
  int64_t units_different = 0;  // of which two attempts have made different bytes
  static constexpr size_t kDifferentNamed = 20;
  std::set<std::string> different;  // their inputs, so many of them
  double wall_s = 0;
  // Seconds of it: when the first unit was given out, and when the last output was recorded.
  std::optional<double> first_lease_s, last_publish_s;
  int64_t control_in_bytes = 0, control_out_bytes = 0;  // of the control protocol
  std::string interrupted_by;  // words, if interrupted, or if more items failed than may
  std::vector<WorkerReport> workers;
  std::vector<Failure> failures;
  // Inputs with tiles_careful, and how many; the first kCarefulNamed.
  static constexpr size_t kCarefulNamed = 1000;
  std::map<std::string, int64_t> careful_items;
};

// Progress, at most once a second and at the end; for the terminal and status.json.
struct Progress {
  std::string state;  // running | draining | done | failed | interrupted
  int64_t tiles_done = 0, tiles = 0;
  double eta_s = -1;                                      // -1: not known
  int64_t waiting = 0, leased = 0, done = 0, failed = 0;  // units
  std::vector<WorkerReport> workers;                      // alive now; no stages, no trace
};

class Coordinator {
 public:
  Coordinator(const Plan& plan, const Resume& resume, Ledger& ledger, const WorkerContext& context,
              const RunOptions& options);
  ~Coordinator();
  uint16_t port() const;  // listening since construction

  // Serves until all is done, failed or drained, then ends the workers. `tick` runs about ten times
  // a second on this thread (supervise children there; what it adds to the ledger is committed with
  // the next results). A ledger that can't be written (a full disk) ends the run as "interrupted";
  // all else that ends it is thrown as Error (exit 1).
  RunResult Run(const std::function<void(const Progress&)>& progress,
                const std::function<void()>& tick);

  // Thread-safe, also from the tick; done in the next turn of Run.
  void Drain(const std::string& why);  // finish what is begun, then return "interrupted"
  // Its leases come back at once. kNoMemory: without blame for their units, whose fault it is not.
  enum class Death : uint8_t { kUnknown, kNoMemory };
  void WorkerDied(const std::string& worker, const std::string& how, Death death = Death::kUnknown);
  void WorkersExhausted(const std::string& why);  // none will come any more

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
