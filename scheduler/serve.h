// Runs a plan: the scheduler, the workers that it starts or that join, and the words on the way.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cluster/meeting.h"
#include "scheduler/console.h"
#include "scheduler/coordinator.h"
#include "scheduler/devices.h"
#include "scheduler/job.h"
#include "scheduler/ledger.h"
#include "scheduler/numerics.h"
#include "scheduler/prepare.h"

namespace tilery {

// Where the workers of a run come from.
struct Crowd {
  bool local = true;                                   // this process starts some itself
  std::vector<std::string> addresses = {"127.0.0.1"};  // on which hosts may join
  int ranks = 0;               // of mpirun, each of which joins once; 0: not under mpirun
  int ranks_here = 1;          // of them on this host
  int nodes = 0;               // that are expected to join, as of a batch queue; 0: not known
  std::optional<int> workers;  // of each rank, if the job says how many; nullopt: one
  // Told where to join, once it listens; WORK/join.json says it in any case.
  std::function<void(const Meeting&)> announce;
  std::function<void()> look;  // about ten times a second
};

struct Served {
  RunResult result;
  std::string refusal;  // why no worker can run this job at all, "" if that is not what ended it
  std::vector<std::string> retired;  // for want of memory, in words
};

// Until the plan is done, drained or hopeless. `graph`: GpuChoice::graph. The folder's lock is
// held.
Served Serve(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
             const NumericsRecord& record, bool graph, const Resume& resume, const Crowd& crowd,
             Ledger& ledger, Console& console);

}  // namespace tilery
