// The two ends of an infer unit; the engine lies between them.
//
//   ReadInput (reader thread) -> Engine -> WriteResult (writer thread)
#pragma once

#include "io/format.h"
#include "pipeline/engine.h"
#include "worker/unit_env.h"

namespace tilery {

struct InferInput {
  InferWork work;     // its `keep` owns the samples
  Metadata metadata;  // of the input, where the unit writes the output itself
};

// Reads what the unit's tiles see, in native type, [z,y,x,c], into a pooled buffer. An input without random
// access is read from its first row to its end, which is checked. Throws as worker/outcome.h says.
InferInput ReadInput(const UnitEnv& env, UnitTask& task);

// Encodes and publishes the output of an item's only unit, or writes the unit's brick into scratch as
// "<brick key>.<epoch>.<attempt>.brick".
Done WriteResult(const UnitEnv& env, UnitTask& task, const Metadata& metadata,
                 const InferOutput& result);

}  // namespace tilery
