// Jobs whose inputs are files of grids: compress, decompress.
#include <algorithm>

#include "scheduler/job_filler.h"

namespace tilery {
namespace {

// Of keys that mean something to such a job.
bool ConcernsGrids(const std::string& key, Task task) {
  constexpr std::array<std::string_view, 7> kKeys = {
      "name", "task", "on_failed", "input.path", "output.name", "output.path", "output.existing"};
  if (key.starts_with("compress.")) return task == Task::kCompress;
  return key.starts_with("execution.") || std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

}  // namespace

const char* TaskName(Task task) {
  switch (task) {
    case Task::kInfer:
      return "infer";
    case Task::kMeasure:
      return "measure";
    case Task::kCompress:
      return "compress";
    case Task::kDecompress:
      return "decompress";
  }
  return "unknown";
}

std::string InputExtension(Task task) {
  return task == Task::kInfer ? "" : task == Task::kDecompress ? ".tvdb" : ".vdb";
}

std::string OutputExtension(Task task) {
  return task == Task::kInfer ? "" : task == Task::kDecompress ? ".vdb" : ".tvdb";
}

void FillGrids(const JobFiller& from, const FlatJob& flat, Job& job) {
  from.With("task", [&](auto& v, auto& k) {
    job.task = Named<Task>(v, k,
                           {{"infer", Task::kInfer},
                            {"compress", Task::kCompress},
                            {"decompress", Task::kDecompress}});
  });
  if (job.task != Task::kCompress) {
    for (const char* const key : {"compress.max_error", "compress.method"}) {
      from.With(key, [&](auto& v, auto& k) {
        RefuseValue(v, k.key,
                    std::string("is for task: compress, and this job's is ") + TaskName(job.task));
      });
    }
  }
  if (job.task == Task::kInfer) return;
  for (const auto& [key, value] : flat) {
    if (!ConcernsGrids(key, job.task))
      RefuseValue(value, key, std::string("means nothing to task: ") + TaskName(job.task));
  }
  GridMethod method = GridMethod::kBounded;
  from.With("compress.method", [&](auto& v, auto& k) {
    method = Named<GridMethod>(
        v, k,
        {{"bounded", GridMethod::kBounded}, {"vq", GridMethod::kVq}, {"auto", GridMethod::kAuto}});
  });
  job.max_error.method = method;
  // Codes are for speed: how near they come is said, not asked, unless it is.
  if (method == GridMethod::kVq) job.max_error.standard = {GridBound::Kind::kNone, 0};
  from.With("compress.max_error", [&](auto& v, auto& k) {
    try {
      job.max_error = ParseGridBounds(AsText(v, k));
      job.max_error.method = method;
    } catch (const Error& error) {
      RefuseValue(v, k.key, error.what());
    }
    const auto none = [](const GridBound& bound) { return bound.kind == GridBound::Kind::kNone; };
    if (method != GridMethod::kVq &&
        (none(job.max_error.standard) ||
         std::any_of(job.max_error.named.begin(), job.max_error.named.end(),
                     [&](const auto& entry) { return none(entry.second); })))
      RefuseValue(v, k.key, "is without a bound, which is for compress.method vq alone");
  });
}

}  // namespace tilery
