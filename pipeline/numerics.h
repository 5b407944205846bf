// What decides the bytes of a result beside the plan. A header of its own, since the scheduler
// freezes these values and must not know the engine.
#pragma once

#include <cstdint>
#include <string>

namespace tilery {

// Chosen before the first lease and never changed by a worker.
struct Numerics {
  int64_t batch = 1;               // tiles of every model run, the last ones filled up
  std::string slots = "all";       // of these, that are used (pipeline/batch_slots.h)
  std::string precision = "fp32";  // fp32 on CPUs
  std::string layout = "nchw";
  std::string device_kind;  // e.g. "cpu/avx512/<model name>"
  std::string torch;        // version
  std::string package;      // hash of the compiled model that runs; empty: the model as it is
};

}  // namespace tilery
