// What a run makes of the ends of its workers' processes: who is gone, for which reason, and what
// people are told. Starts and ends nothing itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/launcher.h"
#include "scheduler/coordinator.h"

namespace tilery {

// Not thread-safe.
class WorkerWatch {
 public:
  // For the advice where memory runs out.
  struct Needs {
    std::string model;
    int64_t batch = 1;
    std::optional<int64_t> gpu_memory;  // bytes, of the job
  };
  WorkerWatch(const std::vector<WorkerLaunch>& launches, Needs needs);
  void Add(const std::string& worker, const std::string& device);  // it has joined
  // So many hosts are still to come, each with workers; -1: there may always be another. Until
  // then nobody is the last, but that a worker refuses the job, others will too.
  void Expect(int hosts) { hosts_to_come_ = hosts; }

  struct Verdict {
    std::string say;  // a warning; "": nothing
    Coordinator::Death death = Coordinator::Death::kUnknown;
    std::string exhausted;  // not empty: all are gone, and this is why
  };
  Verdict Judge(const LocalLauncher::Event& event);

  // Once all are gone: the first worker's reason why it can't do the job at all; "" if there is
  // none, or if some worker could have done it with more memory.
  std::string refusal() const;
  // A line for each worker that was retired since its device had not the memory.
  const std::vector<std::string>& retired() const { return retired_; }

 private:
  const std::string& DeviceOf(const std::string& worker) const;
  bool all_gone() const {
    if (gone_ < launches_.size()) return false;
    return hosts_to_come_ == 0 || (hosts_to_come_ < 0 && !refusal_.empty());
  }
  std::string WantOfMemory() const;

  std::vector<WorkerLaunch> launches_;
  const Needs needs_;
  int hosts_to_come_ = 0;
  size_t gone_ = 0;
  std::string refusal_;
  std::string no_memory_;  // "w1: why" of the last that was retired
  std::vector<std::string> retired_;
};

}  // namespace tilery
