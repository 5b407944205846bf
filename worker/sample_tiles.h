// Real tiles to try a model with, before any unit is leased.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/wire.h"

namespace tilery {

// The model's input for the first runs of an infer unit, at most `most`, as the CPU gathers it: f32
// [n, model_in, z, y, x]. `work.params` and its stage file are left alone: the input is read from
// its own file, as far as these tiles need it. Empty if the unit needs no model. Errors as
// ReadInput; Error(kInput) too if samples are not finite and the transfer says that this fails.
std::vector<float> SampleTiles(const UnitWork& work, const ItemParams& params, int64_t most);

}  // namespace tilery
