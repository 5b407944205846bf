// Local launcher: one supervisor process per worker, which owns and restarts its worker process.
//
//   tilery run (scheduler) -> tilery supervise (one per worker) -> tilery-worker
//
// Nothing outlives its parent: children ask the kernel for SIGKILL on the parent's death, and also watch a
// pipe that closes with it. The token travels through an inherited pipe, never argv or environment.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/client.h"

namespace tilery {

struct WorkerLaunch {
  std::string id;               // "w0"
  std::string device;           // "cpu"
  int threads = 1;              // CPU lanes it may use
};

// Not thread-safe. Start from a thread that lives as long as the children.
class LocalLauncher {
 public:
  LocalLauncher(std::filesystem::path tilery, std::vector<WorkerLaunch> workers, Endpoint endpoint,
                std::string token, int64_t epoch);
  ~LocalLauncher();  // kills what is left
  struct Event { std::string worker; std::string how; bool gone_for_good = false; };
  // Reaps and restarts supervisors (at most 5 times each within a minute); never blocks.
  std::vector<Event> Poll();
  void Signal(int signal);      // to all supervisors, which pass it on
  bool WaitAll(double seconds); // true if all have ended

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Body of `tilery supervise`: reads {token, endpoint, ...} from the pipe `control_fd`, spawns
// `worker_executable`, restarts it when it dies (capped, with back-off; reports "how" on `control_fd`), ends
// with its parent. Returns the exit code.
int RunSupervisor(int control_fd, const std::filesystem::path& worker_executable);

}  // namespace tilery
