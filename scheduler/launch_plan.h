// What a run starts and tells its workers, from the job and all that was decided for it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cluster/launcher.h"
#include "scheduler/devices.h"
#include "scheduler/job.h"
#include "scheduler/numerics.h"
#include "scheduler/prepare.h"
#include "scheduler/wire.h"

namespace tilery {

// One worker per device unless the job says how many; then they take turns on the devices. The CPUs
// of this process are divided among them, by NUMA node where there are several (BindToNodes).
std::vector<WorkerLaunch> LaunchPlan(const Job& job, const DeviceChoice& devices,
                                     const std::string& precision);

// With whom workers share this host, and what is settled.
struct CpuSharing {
  bool fixed_threads = false;  // the job says how many threads there are
  int ranks = 1, rank = 0;     // of mpirun, that start as many workers each; this one's number here
};

// Gives workers the CPUs of the NUMA nodes that their devices, which are among `seats`, are near
// (cluster/numa.h), and as many threads as that is CPUs. Threads that the job has fixed stay; where
// they are more than the node has CPUs, the worker is not bound. Ranks share out the CPUs between
// workers on CPUs; which GPUs other ranks have they do not know, so there a worker has the whole
// node and its usual number of threads. With one node nothing changes. `sysfs`: but for tests,
// "/sys".
void BindToNodes(std::vector<WorkerLaunch>& launches, const std::vector<DeviceSeat>& seats,
                 const CpuSharing& sharing, const std::filesystem::path& sysfs = "/sys");

// `graph`: GpuChoice::graph.
WorkerContext MakeContext(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                          const NumericsRecord& record, bool graph);

}  // namespace tilery
