#include "scheduler/launch_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "scheduler/gpu_choice.h"

namespace tilery {
namespace {

int64_t BytesOf(const std::string& file) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(file, error);
  return error ? 0 : static_cast<int64_t>(bytes);
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
  return launches;
}

WorkerContext MakeContext(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                          const NumericsRecord& record, bool graph) {
  WorkerContext context;
  context.work = job.execution.work;
  context.scratch = job.execution.scratch;
  context.model = prepared.model.path;
  context.model_hash = prepared.model.hash;
  context.libraries = prepared.model.libraries;
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
