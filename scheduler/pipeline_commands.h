// Commands over the stages of a pipeline. One that is a single job does what the job's own command
// does; of several, the document of --json is {"stages": [{"name", ...the stage's own}], ...}.
#pragma once

#include <functional>

#include "scheduler/commands.h"
#include "scheduler/pipeline.h"

namespace tilery {

// Runs one stage; its exit code. Errors are thrown.
using RunStage = std::function<int(const Job& job, const TakeDocument& take)>;

// One stage after the other. Code 3 if items of any have failed; a stage that was interrupted ends
// the run with 75, one with failed items only if it says so (Job::stop_on_failed). What is done
// already is found done again, so the same command resumes. The document holds the sums of the
// stages' numbers and the worst status.
int RunPipeline(const Pipeline& pipeline, bool json, const RunStage& run);

// A stage whose inputs the stages before it have yet to write has no plan: "plan" is null there.
int PlanPipeline(const Pipeline& pipeline, bool json);

// A stage that has not begun is "waiting". Error(kUsage) if none has.
int StatusOfPipeline(const Pipeline& pipeline, bool json);

}  // namespace tilery
