// Random stored samples of any type.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/dtype.h"

namespace tilery::testing {

// Integers of any bits; floats between -2 and 2, with `holes` some of them not a number. The same
// for the same seed.
std::vector<std::byte> RandomSamples(DType dtype, int64_t count, bool holes, uint32_t seed);

}  // namespace tilery::testing
