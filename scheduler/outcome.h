// What became of one attempt at a unit: a value, made in one place (worker/outcome.h) from results
// and exceptions, and judged in one place (scheduler/coordinator).
#pragma once

#include <cstdint>
#include <string>
#include <variant>

#include "io/error.h"
#include "io/file.h"

namespace tilery {

// A finished unit's file: stage file or brick (name within the work folder) or published output.
struct Done {
  std::string file;  // stage and brick: name relative to WORK's scratch; output: final path
  Published published;
  int64_t tiles = 0;     // accepted model runs
  int64_t repeated = 0;  // model runs thrown away
  int64_t nonfinite_in = 0;
  int64_t careful = 0;  // of `tiles`, run in fp32 since they were not finite otherwise
};
struct Retry {
  std::string stage, reason;
};  // worth another attempt
struct Failed {
  std::string stage, reason;
  Fault fault = Fault::kInput;
};  // its item fails
struct LostBrick {
  std::string brick_key, reason;
  int64_t unit = -1;
};  // run that unit again, then this

using Outcome = std::variant<Done, Retry, Failed, LostBrick>;

}  // namespace tilery
