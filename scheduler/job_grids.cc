// Jobs whose inputs are files of grids: compress, decompress.
#include <algorithm>

#include "scheduler/job_filler.h"

namespace tilery {
namespace {

// Of keys that mean something to such a job.
bool ConcernsGrids(const std::string& key, Task task) {
  constexpr std::array<std::string_view, 8> kKeys = {
      "name",        "task",        "on_failed",       "input.path",
      "output.name", "output.path", "output.existing", "compress.max_error"};
  if (key == "compress.max_error") return task == Task::kCompress;
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
    from.With("compress.max_error", [&](auto& v, auto& k) {
      RefuseValue(v, k.key,
                  std::string("is for task: compress, and this job's is ") + TaskName(job.task));
    });
  }
  if (job.task == Task::kInfer) return;
  for (const auto& [key, value] : flat) {
    if (!ConcernsGrids(key, job.task))
      RefuseValue(value, key, std::string("means nothing to task: ") + TaskName(job.task));
  }
  from.With("compress.max_error", [&](auto& v, auto& k) {
    try {
      job.max_error = ParseGridBounds(AsText(v, k));
    } catch (const Error& error) {
      RefuseValue(v, k.key, error.what());
    }
  });
}

}  // namespace tilery
