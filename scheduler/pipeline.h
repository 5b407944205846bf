// A file of several jobs: `stages`, which run in order, or `jobs`, which have none. A file that is
// one job is a pipeline of one stage.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "scheduler/job.h"

namespace tilery {

struct Stage {
  std::string name;  // as the job says, else its number, from 1
  Job job;           // called "<stem of the file>-<name>"
};

struct Pipeline {
  std::filesystem::path file;  // empty: flags only
  bool several = false;        // the file holds a list of jobs; else `stages` has one without name
  bool ordered = false;        // a stage may need what those before it write
  std::vector<Stage> stages;
};

// `file` may be empty. `flags` beat what every job says; what only one job can have (its model,
// input, output, name and work folder) is refused where several are meant. `stage`: the name or
// number of the only one wanted, "" for all. Error(kUsage) with file, line and what is allowed.
Pipeline LoadPipeline(const std::filesystem::path& file, const JobFlags& flags,
                      const std::string& stage);

// Whether everything that the job's input names is there already.
bool InputsAreThere(const Job& job);

}  // namespace tilery
