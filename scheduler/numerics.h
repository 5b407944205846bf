// The numerics record: what decides bytes beside the plan. Frozen in WORK/numerics.json before the
// first lease and reused by every later run with the same model and kind of device.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "pipeline/numerics.h"
#include "scheduler/job.h"
#include "scheduler/planner.h"

namespace tilery {

struct NumericsRecord {
  Numerics numerics;
  std::string model_hash;
  std::string Key() const;              // 32 hex digits, over all of it
  std::vector<std::string> deviations;  // of machine or program from an earlier record of this work
                                        // folder; another batch is the job's own doing and is none
  bool known = false;                   // the work folder holds this very record
};

// On CPUs nothing is measured: the batch is the largest power of two, at most 8, whose working set,
// estimated as 32 f32 channels at input and output resolution, fits a quarter of `unit_memory`; at
// least 1.
int64_t CpuBatch(const Index& tile, const Scale& scale, int64_t unit_memory);

// The record of this run. One in `work` or in the file of --numerics is reused where model and
// device kind agree; with `reproducible: strict` any other is Error(kUsage) naming both. Writes
// nothing: the job may still be refused.
NumericsRecord DecideNumerics(const Job& job, const Resolved& resolved,
                              const std::string& model_hash, const std::string& device_kind,
                              const std::string& torch, const std::filesystem::path& work);
// Makes it the record of the work folder. Before the first lease. Error(kOutput).
void KeepNumerics(const NumericsRecord& record, const std::filesystem::path& work);

}  // namespace tilery
