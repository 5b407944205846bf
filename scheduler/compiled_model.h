// Models that run only compiled: exported programs, which are compiled first, and packages that
// are given as the model. From either to the package that a run uses.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "pipeline/numerics.h"
#include "scheduler/compile_client.h"
#include "scheduler/prepare.h"
#include "scheduler/probe_client.h"

namespace tilery {

using SayLine = std::function<void(const std::string&)>;  // what happens, for people

// Tiles in a batch where nobody says: of some two million voxels, a power of two; on CPUs at
// most 8.
int64_t UsualBatch(const std::vector<int64_t>& tile, int dims, bool cpu);

// Error(kUsage) naming file and way out if the job forbids what the model needs: model.compile is
// off, or --numerics names a record, which holds no package.
void CheckMayCompile(const Job& job, const ModelFile& model);

// What `model` runs as in one of these batches and precisions: the packages that CompilePackages
// makes or finds, or the package itself. `wanted` says device, tile, batches, precisions and
// layouts; model and libraries are filled in. At least one. Error(kUsage) if the compiler can't be
// had or refuses the model, with both ways out (TILERY_PYTHON, TorchScript), or if a package was
// compiled for something else, with both names; Error(kModel) if compiling it failed.
std::vector<CompiledPackage> PackagesOf(const ModelFile& model, CompileRequest wanted,
                                        const SayLine& say);

// How a job's model runs on the CPU: fp32, as it is (batch 0: to be decided; one tile at a time
// where what it makes of a tile depends on the rest of a batch), or in the package
// that is then in the work folder. One that an earlier run of this work folder went by is gone on
// with. Errors as PackagesOf, all Error(kUsage); PrecisionOf; Error(kOutput).
Numerics ChooseForCpu(const Job& job, const Prepared& prepared, const ProbeAnswer& device,
                      const std::filesystem::path& work, const SayLine& say);

}  // namespace tilery
