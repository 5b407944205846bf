#include "scheduler/launch_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "cluster/numa.h"
#include "scheduler/gpu_choice.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

int64_t BytesOf(const std::string& file) {
  std::error_code error;
  const auto bytes = fs::file_size(file, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

// As ShareCpus() wants them.
std::vector<int> NodesNear(const std::vector<WorkerLaunch>& launches,
                           const std::vector<DeviceSeat>& seats, const fs::path& sysfs) {
  std::vector<int> near;
  for (const WorkerLaunch& launch : launches) {
    const auto seat = std::find_if(seats.begin(), seats.end(), [&](const DeviceSeat& one) {
      return one.device == launch.device;
    });
    near.push_back(launch.device == "cpu" ? kAnyNode
                   : seat == seats.end()  ? kNoNode
                                          : NumaNodeOf(sysfs, seat->pci));
  }
  return near;
}

// Of this rank's workers on CPUs among those of all ranks, who all reckon alike.
std::vector<CpuShare> ShareAmongRanks(const std::vector<NumaNode>& nodes, size_t workers,
                                      const CpuSharing& sharing) {
  const std::vector<int> all(workers * static_cast<size_t>(sharing.ranks), kAnyNode);
  const std::vector<CpuShare> shares = ShareCpus(nodes, all);
  const auto first = shares.begin() + static_cast<std::ptrdiff_t>(workers) * sharing.rank;
  return {first, first + static_cast<std::ptrdiff_t>(workers)};
}

}  // namespace

std::vector<WorkerLaunch> LaunchPlan(const Job& job, const DeviceChoice& devices,
                                     const std::string& precision) {
  const int cpus = job.execution.threads.value_or(UsableCpus());
  const int workers = job.execution.workers.value_or(static_cast<int>(devices.seats.size()));
  std::vector<WorkerLaunch> launches;
  for (int k = 0; k < workers; ++k) {
    const DeviceSeat& seat = devices.seats[k % devices.seats.size()];
    launches.push_back({fmt::format("w{}", k), seat.device, std::max(1, cpus / workers),
                        seat.executable, seat.EnvironmentFor(precision)});
  }
  BindToNodes(launches, devices.seats, {job.execution.threads.has_value()});
  return launches;
}

void BindToNodes(std::vector<WorkerLaunch>& launches, const std::vector<DeviceSeat>& seats,
                 const CpuSharing& sharing, const fs::path& sysfs) {
  const std::vector<NumaNode> nodes = ReadNumaNodes(sysfs, UsableCpuList());
  if (nodes.empty() || launches.empty()) return;
  const std::vector<int> near = NodesNear(launches, seats, sysfs);
  const bool whole_nodes = sharing.ranks > 1 && near[0] != kAnyNode;
  const std::vector<CpuShare> shares =
      near[0] == kAnyNode ? ShareAmongRanks(nodes, near.size(), sharing) : ShareCpus(nodes, near);
  for (size_t k = 0; k < launches.size(); ++k) {
    CpuShare share = shares[k];
    if (share.cpus.empty()) continue;
    int& threads = launches[k].threads;
    if (whole_nodes) {
      share = ShareCpus(nodes, {near[k]}, false)[0];
      share.threads = std::min(threads, share.threads);
    }
    if (!sharing.fixed_threads) threads = share.threads;
    if (threads <= static_cast<int>(share.cpus.size())) launches[k].cpus = share.cpus;
  }
}

WorkerContext MakeContext(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                          const NumericsRecord& record, bool graph) {
  WorkerContext context;
  context.work = job.execution.work;
  context.scratch = job.execution.scratch;
  context.model = prepared.model.path;
  context.model_hash = prepared.model.hash;
  context.libraries = prepared.model.libraries;
  context.grids = job.task != Task::kInfer;
  context.compiled_only = prepared.model.compiled_only();
  context.dims = prepared.resolved.dims;
  const std::vector<ItemParams>& params = prepared.resolved.plan.params;
  if (!params.empty()) {
    context.tile = params[0].tiling.tile;
    context.scale = params[0].tiling.scale;
    context.model_in = params[0].transfer.model_in;
    context.model_out = params[0].transfer.model_out;
  }
  context.batch = record.numerics.batch;
  context.slots = record.numerics.slots;
  context.precision = record.numerics.precision;
  context.layout = record.numerics.layout;
  context.package_hash = record.numerics.package;
  if (!context.package_hash.empty())
    context.package = PackageFile(context.work, context.package_hash).string();
  context.model_bytes = BytesOf(context.runs());
  context.numerics_key = record.Key();
  context.device_kind = record.numerics.device_kind;
  context.torch = record.numerics.torch;
  context.lanes = 1;  // of a GPU, which its own threads feed; a worker on a CPU has its threads
  context.graph = graph;
  if (devices.gpu()) context.device_memory = MemoryOfWorker(job, devices);
  context.params = params;
  return context;
}

}  // namespace tilery
