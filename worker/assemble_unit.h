// Puts the bricks of an item together into its published output.
#pragma once

#include "worker/unit_env.h"

namespace tilery {

// Streams by bands: while one is encoded, the next is read, in pieces on the threads that encode.
// Interiors are copied; seam cells are summed over their units in plan order, in f32, beginning
// with the first unit's values, and finalized. A band waits for bricks that are not there yet, with
// nothing of the pool's, while the one before it is encoded; this is no stage's time. Memory: two
// bands of kAssembleBand (or of the writer's smallest, where that is more) and two blocks of sums
// for every thread. Throws as worker/outcome.h says; a missing or damaged brick is LostFile.
Done RunAssemble(const UnitEnv& env, UnitTask& task);

}  // namespace tilery
