// Measures, compresses or decompresses a file of grids as a whole.
#pragma once

#include "worker/unit_env.h"

namespace tilery {

// Regions of grids are coded on the threads that encode and on the worker's GPU, if it has one;
// reading and writing are this thread's. Memory: as pipeline/codec/grid_file.h says. Throws as
// worker/outcome.h says.
Done RunGrids(const UnitEnv& env, UnitTask& task);

}  // namespace tilery
