#include "scheduler/grants.h"

#include <algorithm>
#include <utility>

#include "io/error.h"

namespace tilery {
namespace {

Room RoomOf(const Session& s) {
  return {.infer = s.tiles_wanted > 0,
          .stage = s.stages_wanted > 0,
          .assemble = s.assembles_wanted > 0};
}

bool Wants(const Session& s) {
  const Room room = RoomOf(s);
  return room.infer || room.stage || room.assemble;
}

// Takes from what the worker may still be sent.
void Charge(Session& s, const UnitQueue::Grant& grant, WorkBuilder& builder) {
  if (grant.kind == UnitKind::kInfer) {
    s.tiles_wanted -= std::max<int64_t>(1, builder.TilesOf({grant.item, grant.kind, grant.block}));
  } else {
    --(grant.kind == UnitKind::kStage ? s.stages_wanted : s.assembles_wanted);
  }
}

}  // namespace

std::vector<LeaseAnswer> GrantLeases(
    SessionTable& sessions, UnitQueue& queue, WorkBuilder& builder, double now,
    const std::function<void(int64_t item, std::string why)>& fail) {
  queue.SetWorkersAlive(sessions.alive());
  std::vector<LeaseAnswer> answers;
  for (auto& s : sessions.all()) {
    const bool linked =
        s->alive && s->peer != 0 && s->killed_at < 0 && !queue.Silent(s->index, now);
    if (linked && (Wants(*s) || s->asked)) answers.push_back({s.get()});
  }
  std::vector<bool> over(answers.size()),
      dry(answers.size());  // dry: wanted more model runs than there are
  for (bool any = true; any;) {
    any = false;
    for (size_t i = 0; i < answers.size(); ++i) {
      Session& s = *answers[i].session;
      if (over[i] || !Wants(s)) continue;
      const auto grant = queue.Lease(s.index, RoomOf(s), now);
      if (!grant) {
        over[i] = true;
        dry[i] = s.tiles_wanted > 0;
        continue;
      }
      any = true;
      // An idle worker shows no progress, nor does one that waits.
      if (queue.ActiveOf(s.index) == (queue.Waits(grant->lease) ? 0 : 1)) s.changed_at = now;
      Charge(s, *grant, builder);
      try {
        Json lease = Json::object();
        lease["work"] = ToJson(builder.Build(*grant));
        lease["lease"] = lease["attempt"] = grant->lease;
        lease["unit"] = grant->unit;
        answers[i].leases.push_back(std::move(lease));
      } catch (const Error& error) {
        fail(grant->item, error.what());  // a list of bricks that can't be written, for one
      }
    }
  }
  const bool none_left = queue.counts().waiting == 0;
  for (size_t i = 0; i < answers.size(); ++i) answers[i].more = !dry[i] && !none_left;
  std::erase_if(answers, [](const LeaseAnswer& answer) {
    return answer.leases.empty() && !answer.session->asked;
  });
  for (LeaseAnswer& answer : answers) answer.session->asked = false;
  return answers;
}

std::vector<BrickAnswer> ForwardBricks(SessionTable& sessions, const UnitQueue& queue,
                                       const std::map<int64_t, std::vector<Brick>>& awaited,
                                       double now) {
  std::vector<BrickAnswer> answers;
  for (const auto& [item, bricks] : awaited) {
    const auto early = queue.EarlyLease(item);
    if (!early) continue;
    Session& s = *sessions.ByIndex(early->worker);
    if (!s.alive || s.peer == 0) continue;
    answers.push_back({&s, early->lease, ToJson(bricks)});
    // If it was only waiting, it showed no progress until now.
    const size_t only_this = queue.Waits(early->lease) ? 0 : 1;
    if (queue.ActiveOf(s.index) == only_this) s.changed_at = now;
  }
  return answers;
}

}  // namespace tilery
