// A batch as the engine sees it: model runs of units, a slot each.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

#include "pipeline/batch_slots.h"
#include "pipeline/unit_run.h"

namespace tilery {

struct Slot {
  std::shared_ptr<UnitRun> unit;
  int64_t run = 0;
};
using Batch = std::vector<Slot>;

// Whether the run after the `i`th of a batch follows it in its unit and by its slot.
bool Neighbours(const Batch& batch, const BatchSlots& slots, size_t i);
// Whether it holds runs of several items.
bool Mixed(const Batch& batch);
// The same fault, with the item and the tile in front.
std::exception_ptr Named(const Slot& slot, const std::exception_ptr& error);
// All of its units fail of `error`.
void FailAll(const Batch& batch, const std::exception_ptr& error);

}  // namespace tilery
