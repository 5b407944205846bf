// The way from a job to its plan, shared by `plan` and `run`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scheduler/job.h"
#include "scheduler/ledger.h"
#include "scheduler/model_file.h"
#include "scheduler/planner.h"

namespace tilery {

struct Prepared {
  ModelFile model;
  Resolved resolved;
  std::vector<std::string> warnings;  // in the order they arose; resolved.warnings included
};

// `ledger` (may be null) tells outputs apart from inputs and answers for headers and identities
// that are known; what it learns is recorded there, uncommitted. Errors: Error(kUsage).
Prepared Prepare(const Job& job, Ledger* ledger);

// What job, model file and the model itself say, key by key; `inputs` tell the dimensions of a job
// that says none. Errors: Error(kUsage).
Contract CompleteContract(const Job& job, const ModelFile& model,
                          const std::vector<InputHeader>& inputs,
                          std::vector<std::string>& warnings);

// CPUs this process may use.
int UsableCpus();

}  // namespace tilery
