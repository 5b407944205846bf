// Whether what is handed to an engine fits together, checked once per engine and per unit: the
// loops behind trust it.
#pragma once

#include "pipeline/engine.h"

namespace tilery {

void CheckOptions(const EngineOptions& options);                      // Error(kUsage)
void CheckWork(const InferWork& work, const EngineOptions& options);  // Error(kInternal)

}  // namespace tilery
