// The stored samples of a unit, looked at before any tile is read.
#pragma once

#include <cstdint>

#include "pipeline/engine.h"
#include "pipeline/ops.h"
#include "pipeline/run_order.h"

namespace tilery {

struct UnitInput {
  GatherSource source;       // refers to `work` and `tables`
  int64_t nonfinite_in = 0;  // stored voxels of the unit's own part that are not finite; each voxel
                             // of an item belongs to one unit
};

// Reads all samples once if they are floats. Error(kInput) if some are not finite and the transfer
// says that this fails the item.
UnitInput LookAtInput(const InferWork& work, const InputTables& tables, const RunOrder& order);

}  // namespace tilery
