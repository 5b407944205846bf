// Compute keys: what decides the bytes of an item beside the numerics record.
#pragma once

#include <string>

#include "scheduler/plan.h"

namespace tilery {

// 32 hex digits over the program's numerics number, the model's hash, the effective parameters, the
// way the item is cut into units, and the input (path and `identity`: its stamp when its content
// was first seen). Not over the output's path, devices, workers or unit sizes that change nothing
// about this item.
std::string ItemKey(const Item& item, const ItemParams& params, const std::string& model_hash,
                    const FileStamp& identity);

}  // namespace tilery
