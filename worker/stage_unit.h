// Decodes an input without random access once into a stage file on scratch.
#pragma once

#include "worker/unit_env.h"

namespace tilery {

// Memory: one band of 16 MiB, or one row where that is more. The end of the stream is checked before the file gets
// its name, UnitWork::stage_file within scratch. Throws as worker/outcome.h says.
Done RunStage(const UnitEnv& env, UnitTask& task);

}  // namespace tilery
