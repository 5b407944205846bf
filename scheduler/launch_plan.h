// What a run starts and tells its workers, from the job and all that was decided for it.
#pragma once

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
// of this process are divided among them.
std::vector<WorkerLaunch> LaunchPlan(const Job& job, const DeviceChoice& devices,
                                     const std::string& precision);

// `graph`: GpuChoice::graph.
WorkerContext MakeContext(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                          const NumericsRecord& record, bool graph);

}  // namespace tilery
