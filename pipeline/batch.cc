#include "pipeline/batch.h"

#include <algorithm>

#include "io/error.h"

namespace tilery {

bool Neighbours(const Batch& batch, const BatchSlots& slots, size_t i) {
  const Slot &a = batch[i], &b = batch[i + 1];
  return a.unit == b.unit && a.run + 1 == b.run && slots.Follows(static_cast<int64_t>(i));
}

bool Mixed(const Batch& batch) {
  return std::any_of(batch.begin(), batch.end(), [&](const Slot& slot) {
    return slot.unit->work().item != batch.front().unit->work().item;
  });
}

std::exception_ptr Named(const Slot& slot, const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return std::make_exception_ptr(Error(e.fault(), slot.unit->work().item_name + ", tile " +
                                                        ToString(slot.unit->InputBox(slot.run)) +
                                                        ": " + e.what()));
  } catch (...) {
    return error;
  }
}

void FailAll(const Batch& batch, const std::exception_ptr& error) {
  for (const Slot& slot : batch) slot.unit->Fail(Named(slot, error));
}

}  // namespace tilery
