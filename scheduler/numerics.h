// The numerics record: what decides bytes beside the plan. Frozen in WORK/numerics.json before the
// first lease and reused by every later run with the same model and kind of device.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/numerics.h"
#include "scheduler/job.h"
#include "scheduler/planner.h"

namespace tilery {

struct NumericsRecord {
  Numerics numerics;
  std::string model_hash;
  Index tile{1, 1, 1};                  // that the batch was chosen for
  std::string Key() const;              // 32 hex digits, over all of it
  std::vector<std::string> deviations;  // of machine or program from an earlier record of this work
                                        // folder; another batch is the job's own doing and is none
  bool known = false;                   // the work folder holds this very record
};

// On CPUs nothing is measured: the batch is the largest power of two, at most 8, whose working set,
// estimated as 32 f32 channels at input and output resolution, fits a quarter of `unit_memory`; at
// least 1.
int64_t CpuBatch(const Index& tile, const Scale& scale, int64_t unit_memory);

// What `auto` means for this job on its device, or the job's own word: on CPUs fp32; on GPUs fp16
// if all outputs have 8 bits, are labels or halves, else tf32, since fp16's 11 bits are too few for
// what u16, i16 and f32 hold. Error(kUsage) if the device can't work in it.
std::string PrecisionOf(const Job& job, const std::vector<ItemParams>& params, bool gpu);

// The record that the work folder holds; nullopt if none, or one that is damaged.
std::optional<NumericsRecord> KnownNumerics(const std::filesystem::path& work);

// The record of this run on `device`, which has all but a batch if that is not measured (0). One in
// `work` or in the file of --numerics is reused where model and device kind agree; with
// `reproducible: strict` any other is Error(kUsage) naming both. Writes nothing: the job may still
// be refused.
NumericsRecord DecideNumerics(const Job& job, const Resolved& resolved,
                              const std::string& model_hash, const Numerics& device,
                              const std::filesystem::path& work);
// Makes it the record of the work folder. Before the first lease. Error(kOutput).
void KeepNumerics(const NumericsRecord& record, const std::filesystem::path& work);

}  // namespace tilery
