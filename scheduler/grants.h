// Who gets which unit in one turn of the run.
#pragma once

#include <functional>
#include <map>
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

// Leases units to all linked workers that want some and are heard of, one per worker and round, so
// that a short queue is shared evenly. A worker that asked gets an answer in any case; one that did
// not, only if there is work. `fail` is called for an item whose work can't be put together.
std::vector<LeaseAnswer> GrantLeases(
    SessionTable& sessions, UnitQueue& queue, WorkBuilder& builder, double now,
    const std::function<void(int64_t item, std::string why)>& fail);

// Bricks for a worker that assembles their item already.
struct BrickAnswer {
  Session* session = nullptr;
  int64_t lease = 0;
  Json bricks;
};
// `awaited`: by item. A worker without a link gets none: what it assembles early is leased again
// when it is back.
std::vector<BrickAnswer> ForwardBricks(SessionTable& sessions, const UnitQueue& queue,
                                       const std::map<int64_t, std::vector<Brick>>& awaited,
                                       double now);

}  // namespace tilery
