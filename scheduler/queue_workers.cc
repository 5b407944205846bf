// What the queue knows of its workers: how long their leases last, what comes back when they are
// gone, and who waits for the results of others.
#include <algorithm>
#include <set>

#include "scheduler/queue.h"

namespace tilery {

void UnitQueue::Renew(WorkerIndex worker, double now) {
  now_ = std::max(now_, now);
  std::optional<double>& deadline = workers_[worker].deadline;
  deadline = std::max(deadline.value_or(0), now + options_.lease_s);
}

bool UnitQueue::Silent(WorkerIndex worker, double now) const {
  const std::optional<double>& deadline = workers_[worker].deadline;
  return deadline && now > *deadline - options_.lease_s / 2;
}

void UnitQueue::Extend(double seconds) {
  for (Worker& w : workers_) {
    if (w.deadline) *w.deadline += seconds;
    for (double& since : w.since) since += seconds;
  }
}

std::vector<UnitQueue::CameBack> UnitQueue::Expire(double now) {
  now_ = std::max(now_, now);
  std::vector<CameBack> back;
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (workers_[i].leases.empty() || *workers_[i].deadline >= now) continue;
    const std::set<int64_t> leases = workers_[i].leases;
    for (int64_t lease : leases) {
      const bool waits = Waits(lease);
      if (waits) withdrawn_.push_back({static_cast<WorkerIndex>(i), lease});
      back.push_back(Return(lease, static_cast<WorkerIndex>(i), !waits));
    }
  }
  return back;
}

std::vector<UnitQueue::CameBack> UnitQueue::WorkerDied(WorkerIndex worker) {
  std::vector<CameBack> back;
  // What waited first: it is not to blame, and is withdrawn otherwise.
  for (int64_t lease : std::set<int64_t>(workers_[worker].leases)) {
    if (Waits(lease)) back.push_back(Return(lease, worker, false));
  }
  const std::set<int64_t> leases = workers_[worker].leases;
  for (int64_t lease : leases) {
    AddDeath(leases_.at(lease).unit);
    back.push_back(Return(lease, worker, true));
  }
  return back;
}

void UnitQueue::Abandon(WorkerIndex worker) { AbandonUnheard(worker, 0); }

void UnitQueue::AbandonUnheard(WorkerIndex worker, int64_t newest) {
  const std::set<int64_t> leases = workers_[worker].leases;
  for (auto it = leases.upper_bound(newest); it != leases.end(); ++it) Return(*it, worker, false);
}

// ---- assemble units that are leased early ----

std::optional<int64_t> UnitQueue::Early() const {
  if (unassembled_.empty()) return std::nullopt;
  const Entry& e = entries_[*unassembled_.begin()];
  const bool enough = (e.infer_units - e.infer_left) * kEarlyShare >= e.infer_units;
  if (!e.smooth || !enough || e.infer_left == 0 || (e.staged && !e.stage_done)) return std::nullopt;
  return e.first_unit + e.units() - 1;
}

std::optional<UnitQueue::Dropped> UnitQueue::EarlyLease(int64_t item) const {
  const auto found = early_.find(item);
  if (found == early_.end()) return std::nullopt;
  return Dropped{leases_.at(found->second).worker, found->second};
}

bool UnitQueue::Waits(int64_t lease) const {
  return std::any_of(early_.begin(), early_.end(), [&](const auto& early) {
    return early.second == lease && entries_[early.first].infer_left > 0;
  });
}

// How long it waited says nothing of its worker's pace.
void UnitQueue::WaitIsOver(int64_t item) {
  const auto early = early_.find(item);
  if (early == early_.end()) return;
  const WorkerIndex worker = leases_.at(early->second).worker;
  if (OldestOf(worker, UnitKind::kAssemble) == early->second)
    workers_[worker].since[static_cast<size_t>(UnitKind::kAssemble)] = now_;
}

size_t UnitQueue::ActiveOf(WorkerIndex worker) const {
  const auto waiting = std::count_if(early_.begin(), early_.end(), [&](const auto& early) {
    return Holds(early.second, worker) && Waits(early.second);
  });
  return HeldBy(worker) - static_cast<size_t>(waiting);
}

void UnitQueue::AbandonEarly(WorkerIndex worker) {
  for (const auto& [item, lease] : std::map<int64_t, int64_t>(early_)) {
    Return(lease, worker, false);  // unless another holds it
  }
}

// What waits must not keep others from being assembled.
void UnitQueue::WithdrawWaiting(WorkerIndex worker) {
  for (const auto& [item, lease] : early_) {
    if (leases_.at(lease).worker == worker && Waits(lease)) return WithdrawEarly(item);
  }
}

void UnitQueue::WithdrawEarly(int64_t item) {
  const auto early = EarlyLease(item);
  if (!early || !Waits(early->lease)) return;
  withdrawn_.push_back(*early);
  Return(early->lease, early->worker, false);
}

}  // namespace tilery
