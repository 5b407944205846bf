// Who gets which unit in one turn of the run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scheduler/queue.h"
#include "scheduler/sessions.h"
#include "scheduler/work_builder.h"

namespace tilery {

// What one worker is sent.
struct LeaseAnswer {
  Session* session = nullptr;
  Json leases = Json::array();  // [{lease, unit, attempt, work}]
  bool more = false;            // there is more that it could have asked for
};

// Leases units to all linked workers that want some, one per worker and round, so that a short
// queue is shared evenly. A worker that asked gets an answer in any case; one that did not, only if
// there is work. `fail` is called for an item whose work can't be put together.
std::vector<LeaseAnswer> GrantLeases(
    SessionTable& sessions, UnitQueue& queue, WorkBuilder& builder, double now,
    const std::function<void(int64_t item, std::string why)>& fail);

}  // namespace tilery
