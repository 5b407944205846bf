// `tilery submit`: the same job through a batch queue. No MPI: the first node runs the scheduler
// (`tilery run --execution.launch join --listen`), all nodes take part with `tilery worker --join`,
// and a job that is queued again resumes.
#pragma once

#include <string>

#include "scheduler/batch_script.h"
#include "scheduler/job.h"

namespace tilery {

struct SubmitOptions {
  std::string file, stage;  // as of LoadPipeline
  JobFlags flags;
  BatchRequest request;  // queue "": the one whose command is on the PATH
  std::string template_file;
  bool dry_run = false, json = false;
};

// One submission for each stage, chained where stages have an order. The first stage is looked at
// as `plan` does, also for outputs in its way; one whose inputs are not there yet is only parsed.
// Scripts and logs lie in WORK/submit. With --dry-run scripts are printed and nothing is written.
// Document of --json: {"queue", "jobs": [{"id", "name", "stage", "after", "script", "log",
// "work"}]}; dry: the script's text as "text", no id. Error(kUsage), also if the queue refuses:
// then what was queued before it is cancelled.
int SubmitCommand(const SubmitOptions& options);

// What to tell somebody who runs a job where jobs should be submitted: on a host with Slurm's
// commands, outside of an allocation. "" elsewhere.
std::string LoginNodeWords();

}  // namespace tilery
