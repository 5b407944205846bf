// The tables of the method vq.
#pragma once

#include <cstdint>

#include "pipeline/codec/vq_formulas.h"

namespace tilery {

// Thread-safe.
const VqTables& VqModel();
// XXH3-64 of the tables' bytes.
uint64_t VqModelHash();

}  // namespace tilery
