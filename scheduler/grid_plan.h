// Plans of jobs whose inputs are files of grids as a whole: measure, compress, decompress. Each
// file is an item of one unit.
//
// A share of a range as bound means the range over a whole sequence: all inputs in one folder whose
// names differ only in their last number. Where a sequence has several files, a job of its own
// measures them first (MeasureJobOf); what it publishes, one small file for each input, is read
// when the job itself is planned. So both are jobs like all others: with units for all workers, a
// ledger, and resume.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "scheduler/inputs.h"
#include "scheduler/job.h"
#include "scheduler/planner.h"

namespace tilery {

// Of each input: the grids that it says it holds, with no more than label and name; none if it
// can't be read. Fills everything of the headers; a file that is not what the task reads has an
// error.
std::vector<InputHeader> ReadGridHeaders(Task task, const std::vector<std::string>& paths,
                                         int threads, std::vector<std::vector<VdbGrid>>& grids);

// As MakePlan. Error(kUsage) if a bound names a grid that no input holds.
Resolved PlanGrids(const Job& job, std::vector<InputHeader> inputs,
                   std::vector<std::string> outputs,
                   const std::vector<std::vector<VdbGrid>>& grids);

// The job that has to run before this one, nullopt if none has to.
std::optional<Job> MeasureJobOf(const Job& job);
// What it publishes for each of its inputs.
std::vector<std::string> RangeFiles(const Job& measure, const std::vector<std::string>& inputs);

// Whether a file that such a job has published can be read to its end.
bool GridOutputIsWhole(const std::string& path, GridTask::Kind task);

}  // namespace tilery
