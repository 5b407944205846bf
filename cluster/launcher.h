// Local launcher: one supervisor process per worker, which owns and restarts its worker process.
//
//   tilery run (scheduler) -> tilery supervise (one per worker) -> tilery-worker
//
// Nothing outlives its parent: children ask the kernel for SIGKILL on the parent's death, and also
// watch a socket that closes with it. The token travels through that socket, never argv or
// environment (see cluster/worker_start.h). Supervisors form process groups of their own, so that a
// terminal's Ctrl-C reaches the scheduler alone, which then drains.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/worker_start.h"

namespace tilery {

struct WorkerLaunch {
  std::string id;                                                // "w0"
  std::string device;                                            // "cpu"
  int threads = 1;                                               // CPU threads it may use
  std::filesystem::path program;                                 // the worker's executable
  std::vector<std::pair<std::string, std::string>> environment;  // beside and over our own
  CpuSet cpus{};                                                 // see WorkerStart
};

// Not thread-safe. Start from a thread that lives as long as the children: the kernel ends them
// with it.
class LocalLauncher {
 public:
  // Runs `tilery` with the one argument "supervise" per worker. What workers write to standard
  // error goes to `logs`/worker-<id>.log (appended, at most 1 MiB each a run); empty: to our own
  // standard error.
  LocalLauncher(std::filesystem::path tilery, std::vector<WorkerLaunch> workers, Endpoint endpoint,
                std::string token, int64_t epoch, std::filesystem::path logs = {});
  ~LocalLauncher();  // kills what is left
  // A worker process that died, with its last words, or a supervisor. gone_for_good: it will not be
  // started again (see RunSupervisor). For Coordinator::WorkerDied and WorkersExhausted.
  struct Event {
    std::string worker;
    std::string how;
    bool gone_for_good = false;
    // It can't do this job, and no other start will change that; `how` is its own reason.
    bool refused = false;
    // Its device ran out of memory (kNoMemoryExit); `how` is its own reason. The second time, it is
    // gone for good: retired.
    bool no_memory = false;
  };
  // Reaps and restarts supervisors (at most 5 times each within a minute); never blocks.
  std::vector<Event> Poll();
  void Signal(int signal);  // to all supervisors, which pass it on and restart nothing afterwards
  void Kill(const std::string& worker);  // SIGKILL to a hung worker's process; it is restarted
  void Stop();                           // restarts nothing any more
  bool WaitAll(double seconds);          // Stop, then waits; true if all have ended
  bool AllEnded() const;                 // no supervisor runs

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Body of `tilery supervise`: reads a WorkerStart from `control_fd`, spawns its program (no
// arguments, the same WorkerStart on its descriptor kControlFd), restarts it when it dies, reports
// each death, ends with its parent. Back-off: 0.1 s, doubling up to 5 s while starts fail. A worker
// that ends before it is ready three times in a row with an exit code, or five times by a signal,
// is gone for good; one that refuses the job (kRefusedExit) or can't be executed, at once; one
// whose device ran out of memory (kNoMemoryExit), ready or not, when that happens to a second
// process. INT, TERM and USR1 are passed on and end the restarting; a second INT or TERM ends
// worker and supervisor at once. Folder TILERY_TORCH (or its lib/) goes to the front of the
// worker's LD_LIBRARY_PATH. Returns the exit code.
int RunSupervisor(int control_fd);

}  // namespace tilery
