// The last step of the ladder: `tilery run` on files that were made for it.
#pragma once

#include <filesystem>

#include "scheduler/bench_setup.h"
#include "scheduler/numerics.h"

namespace tilery {

// Writes the synthetic items below `folder`/in. Error(kOutput), Error(kUsage).
void WriteBenchInputs(const BenchSetup& setup, const std::filesystem::path& folder);

// Runs the job once, as a child, into an empty `folder`/out, with `folder`/run as its work folder.
// Where setup.named, the record and package of the other steps on `device` lie in the work folder,
// as if an earlier run had left them there. Adds tiles and the time from the first lease to the
// last publish to `figures`; returns what the run says of itself: {"bound_by", "batch",
// "precision", "layout", "stages"}. Error(kInternal) with its last words if it fails.
Json RunBenchFiles(const BenchSetup& setup, const Numerics& device,
                   const std::filesystem::path& folder, StepFigures& figures);

}  // namespace tilery
