// How a job is run: devices, workers, memory, folders.
#include <set>

#include "scheduler/attempt_name.h"
#include "scheduler/job_filler.h"

namespace tilery {
namespace fs = std::filesystem;
namespace {

void FillDevices(const JobValue& value, const JobKey& key, Job& job) {
  std::set<std::string> seen;
  for (const std::string& device : AsTexts(value, key)) {
    if (device == "auto") {
      if (AsTexts(value, key).size() > 1) RefuseValue(value, key.key, "'auto' stands alone");
      continue;
    }
    if (!seen.insert(device).second) {
      RefuseValue(value, key.key,
                  "'" + Printable(device, 60) +
                      "' is named twice; execution.workers lets workers share a device");
    }
    job.execution.devices.push_back(device);
  }
}

}  // namespace

void FillExecution(const JobFiller& from, Job& job) {
  auto& execution = job.execution;
  from.With("execution.devices", [&](auto& v, auto& k) { FillDevices(v, k, job); });
  const auto small = [](const JobValue& v, const JobKey& k) -> std::optional<int> {
    const auto n = AsInteger(v, k);
    if (n && *n > 100000) RefuseValue(v, k.key, "'" + Shown(v) + "' is beyond the limit of 100000");
    return n ? std::optional<int>(static_cast<int>(*n)) : std::nullopt;
  };
  from.With("execution.workers", [&](auto& v, auto& k) { execution.workers = small(v, k); });
  from.With("execution.launch", [&](auto& v, auto& k) { execution.join = AsWord(v, k) == "join"; });
  from.With("execution.listen", [&](auto& v, auto& k) { execution.listen = AsText(v, k); });
  from.With("execution.threads", [&](auto& v, auto& k) { execution.threads = small(v, k); });
  from.With("execution.broadcast", [&](auto& v, auto& k) { execution.broadcast = AsWord(v, k); });
  from.With("execution.batch", [&](auto& v, auto& k) {
    execution.batch = AsInteger(v, k);
    if (execution.batch.value_or(1) > kLargestBatch) {
      RefuseValue(v, k.key,
                  "'" + Shown(v) + "' is beyond the limit of " + std::to_string(kLargestBatch));
    }
  });
  from.With("execution.reproducible",
            [&](auto& v, auto& k) { execution.strict = AsWord(v, k) == "strict"; });
  from.With("execution.scratch_limit",
            [&](auto& v, auto& k) { execution.scratch_limit = AsMemory(v, k); });
  from.With("execution.unit_memory",
            [&](auto& v, auto& k) { execution.unit_memory = AsMemory(v, k); });
  from.With("execution.gpu_memory",
            [&](auto& v, auto& k) { execution.gpu_memory = AsMemory(v, k); });
  from.With("execution.numerics", [&](auto& v, auto& k) {
    execution.numerics_file = from.PathOf(v, k);
    std::error_code error;
    if (!fs::is_regular_file(execution.numerics_file, error)) {
      RefuseValue(v, k.key, Printable(execution.numerics_file) + " is no file");
    }
  });
  from.With("execution.failures.max", [&](auto& v, auto& k) {
    const Share share = AsShare(v, k);
    execution.max_failures = share.share;
    execution.max_failures_count = share.count;
  });
  from.With("execution.work", [&](auto& v, auto& k) { execution.work = from.PathOf(v, k); });
  if (execution.work.empty()) {
    execution.work = FolderOfTemplate(job.outputs[0].path) + "/.tilery/" + job.name;
    execution.work = fs::path(execution.work).lexically_normal().string();
  }
  while (execution.work.size() > 1 && execution.work.ends_with('/')) execution.work.pop_back();
  // Several jobs may be given one fast disk: each sweeps, and counts on, a folder of its own there.
  from.With("execution.scratch", [&](auto& v, auto& k) {
    execution.scratch = from.PathOf(v, k) + "/tilery-" + WorkTag(execution.work);
  });
  if (execution.scratch.empty()) execution.scratch = execution.work + "/scratch";
}

}  // namespace tilery
