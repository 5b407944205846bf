// Contract keys in a flat job: those below "model." that describe the model.
#pragma once

#include <string>

#include "scheduler/job.h"
#include "scheduler/job_value.h"

namespace tilery {

bool IsContractKey(const JobKey& key);
// Reads all contract keys in `flat`; each one's source becomes `source`. Error(kUsage).
Contract ContractFromFlat(const FlatJob& flat, const std::string& source);

}  // namespace tilery
