// The tail of a run: units that one worker holds too long are given to another, too.
#include <algorithm>

#include "scheduler/queue.h"

namespace tilery {
namespace {

constexpr double kLookEvery_s = 0.2;

}  // namespace

std::optional<int64_t> UnitQueue::OldestOf(WorkerIndex worker, UnitKind kind) const {
  for (const int64_t lease : workers_[worker].leases) {
    if (leases_.at(lease).kind == kind) return lease;
  }
  return std::nullopt;
}

// What a worker holds of a kind it does in order, so the oldest is what it is at. If that is slow,
// those behind it wait for a slow worker.
void UnitQueue::FindSlow() {
  slow_at_ = now_;
  slow_.clear();
  for (size_t i = 0; i < workers_.size(); ++i) {
    const Worker& w = workers_[i];
    if (w.leases.empty() || w.suspect) continue;
    for (const UnitKind kind : {UnitKind::kInfer, UnitKind::kStage, UnitKind::kAssemble}) {
      const auto limit = pace_.Limit(kind);
      const auto oldest = OldestOf(static_cast<WorkerIndex>(i), kind);
      if (!limit || !oldest || now_ - w.since[static_cast<size_t>(kind)] <= *limit) continue;
      for (const int64_t lease : w.leases) {
        const auto& [unit, worker, its_kind] = leases_.at(lease);
        if (its_kind == kind && !twice_.contains(unit) && deaths(unit) == 0 && !Waits(lease))
          slow_.push_back(lease);
      }
    }
  }
  std::sort(slow_.begin(), slow_.end());
}

std::optional<int64_t> UnitQueue::Slow(WorkerIndex worker, const Room& room) {
  // What waits keeps nobody busy, and it may wait for what is slow.
  if (ActiveOf(worker) > 0) return std::nullopt;
  if (now_ - slow_at_ >= kLookEvery_s) FindSlow();
  for (const int64_t lease : slow_) {
    const auto held = leases_.find(lease);
    if (held == leases_.end() || held->second.worker == worker) continue;
    const int64_t unit = held->second.unit;
    if (!twice_.contains(unit) && room.Fits(held->second.kind)) return unit;
  }
  return std::nullopt;
}

}  // namespace tilery
