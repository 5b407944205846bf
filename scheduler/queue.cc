#include "scheduler/queue.h"

#include <algorithm>

#include "io/error.h"

namespace tilery {

UnitQueue::UnitQueue(const std::vector<Item>& items, const QueueOptions& options)
    : options_(options) {
  entries_.reserve(items.size());
  int64_t next = 0;
  for (const Item& item : items) {
    Entry entry;
    entry.first_unit = next;
    if (item.refused.empty()) {
      entry.scratch = item.scratch_bytes;
      entry.infer_units = entry.infer_left = item.infer_units;
      entry.staged = item.staged;
    } else {
      entry.state = EntryState::kFailed;
    }
    next += entry.units();
    entries_.push_back(entry);
  }
  bytes_.assign(static_cast<size_t>(next), 0);
  counts_.waiting = next;
}

std::string UnitQueue::BeyondScratch(const Item& item, int64_t limit) {
  if (item.scratch_bytes <= limit) return "";
  return Printable(item.input) + " needs " + std::to_string(item.scratch_bytes) +
         " bytes of scratch at its peak, more than the limit of " + std::to_string(limit) +
         " bytes: raise execution.scratch_limit, or name a larger disk with execution.scratch";
}

// ---- before the first lease ----

void UnitQueue::MarkUnchanged(int64_t item) {
  std::vector<Dropped> none;
  if (ItemOpen(item)) CloseItem(item, EntryState::kDone, none);
}

void UnitQueue::MarkDone(int64_t unit) {
  if (state(unit) != UnitState::kOpen) return;
  SetState(unit, UnitState::kDone);
  Entry& e = entries_[ItemOf(unit)];
  if (e.staged && unit == e.first_unit) {
    e.stage_done = true;
  } else {
    --e.infer_left;
  }
}

// Items with bricks already take up scratch, so they are admitted whatever their place and the
// limit.
void UnitQueue::Begin() {
  begun_ = true;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    if (e.state == EntryState::kNew && (e.stage_done || e.infer_left < e.infer_units))
      Admit(static_cast<int64_t>(i));
  }
}

// ---- choice ----

UnitQueue::WorkerIndex UnitQueue::AddWorker() {
  workers_.emplace_back();
  return static_cast<WorkerIndex>(workers_.size()) - 1;
}

std::optional<UnitQueue::Grant> UnitQueue::Lease(WorkerIndex worker, const Room& room, double now) {
  if (!begun_) Begin();
  now_ = std::max(now_, now);
  const Worker& w = workers_[worker];
  if (w.suspect) return std::nullopt;
  const auto fits = [&](int64_t unit) { return room.Fits(Find(unit).kind); };
  if (w.leases.empty()) {
    const auto found = std::find_if(suspects_.begin(), suspects_.end(), fits);
    if (found != suspects_.end()) return GrantTo(worker, *found, now);
  }
  if (!ready_assemble_.empty()) {
    if (room.assemble) return GrantTo(worker, *ready_assemble_.begin(), now);
    WithdrawWaiting(worker);
  }
  if (room.stage && !ready_stage_.empty()) return GrantTo(worker, *ready_stage_.begin(), now);
  if (room.infer && !returned_infer_.empty()) return GrantTo(worker, *returned_infer_.begin(), now);
  if (const auto unit = Fresh(room)) return GrantTo(worker, *unit, now);
  if (const auto unit = Early(); unit && room.assemble) return GrantTo(worker, *unit, now);
  if (const auto unit = Slow(worker, room)) return GrantTo(worker, *unit, now);
  return std::nullopt;
}

std::optional<int64_t> UnitQueue::Fresh(const Room& room) {
  while (room.infer && !open_items_.empty()) {
    const int64_t item = *open_items_.begin();
    Entry& e = entries_[item];
    const int64_t first = e.first_unit + (e.staged ? 1 : 0);
    while (e.next_block < e.infer_units && state(first + e.next_block) != UnitState::kOpen)
      ++e.next_block;
    if (e.next_block < e.infer_units) return first + e.next_block++;
    open_items_.erase(item);
  }
  for (; next_item_ < static_cast<int64_t>(entries_.size()); ++next_item_) {
    Entry& e = entries_[next_item_];
    if (e.state != EntryState::kNew) continue;
    if (e.staged ? !room.stage : !room.infer) return std::nullopt;
    if (!MayStart(e)) return std::nullopt;
    Admit(next_item_);
    if (e.staged) return e.first_unit;
    e.next_block = 1;
    if (e.infer_units == 1) open_items_.erase(next_item_);
    return e.first_unit;
  }
  return std::nullopt;
}

bool UnitQueue::MayStart(const Entry& entry) const {
  // With nothing else under way, waiting would be for ever.
  if (entry.scratch == 0 || scratch_used_ == 0) return true;
  if (scratch_used_ > options_.scratch_limit - entry.scratch) return false;
  if (started_ < kItemsAnyway) return true;
  const int64_t workers = std::max<int64_t>(workers_alive_, 1);
  return started_ < kItemsPerWorker * workers &&
         scratch_used_ <= kEasyScratch * workers - entry.scratch;
}

void UnitQueue::Admit(int64_t item) {
  Entry& e = entries_[item];
  e.state = EntryState::kStarted;
  scratch_used_ += e.scratch;
  if (e.scratch > 0) ++started_;
  if (e.infer_units > 1) unassembled_.insert(item);
  if (e.staged && e.infer_left == 0) {
    // All that it would feed is there.
    e.stage_done = e.stage_skipped = true;
    SetState(e.first_unit, UnitState::kDone);
  }
  if (e.staged && !e.stage_done) {
    Offer(e.first_unit);
  } else {
    open_items_.insert(item);
  }
  if (e.infer_left == 0) Offer(e.first_unit + e.units() - 1);
}

UnitQueue::Grant UnitQueue::GrantTo(WorkerIndex worker, int64_t unit, double now) {
  Withdraw(unit);
  Worker& w = workers_[worker];
  if (!w.deadline) w.deadline = now + options_.lease_s;
  const UnitRef ref = Find(unit);
  if (!OldestOf(worker, ref.kind)) w.since[static_cast<size_t>(ref.kind)] = now;
  const int64_t lease = next_lease_++;
  w.leases.insert(lease);
  w.suspect = deaths(unit) > 0;
  leases_.emplace(lease, Held{unit, worker, ref.kind});
  const bool twice = state(unit) == UnitState::kLeased;
  if (twice) {
    twice_.insert(unit);
    ++leased_twice_;
  }
  SetState(unit, UnitState::kLeased);
  const bool assemble = ref.kind == UnitKind::kAssemble;
  const bool early = assemble && entries_[ref.item].infer_left > 0;
  if (assemble) entries_[ref.item].smooth = false;
  if (early) early_[ref.item] = lease;
  return {lease, unit, ref.item, ref.block, ref.kind, early, twice};
}

bool UnitQueue::Ready(const Entry& entry, int64_t unit) const {
  if (entry.state != EntryState::kStarted) return false;
  if (entry.staged && unit == entry.first_unit) return true;
  if (entry.infer_units > 1 && unit == entry.first_unit + entry.units() - 1)
    return entry.infer_left == 0;
  return !entry.staged || entry.stage_done;
}

void UnitQueue::Offer(int64_t unit) {
  (deaths(unit) > 0 ? suspects_ : ReadySet(unit)).insert(unit);
}

std::set<int64_t>& UnitQueue::ReadySet(int64_t unit) {
  const UnitKind kind = Find(unit).kind;
  if (kind == UnitKind::kInfer) return returned_infer_;
  return kind == UnitKind::kStage ? ready_stage_ : ready_assemble_;
}

void UnitQueue::Withdraw(int64_t unit) {
  suspects_.erase(unit);
  ReadySet(unit).erase(unit);
}

void UnitQueue::Requeue(int64_t unit) {
  SetState(unit, UnitState::kReturned);
  if (Ready(entries_[ItemOf(unit)], unit)) Offer(unit);
}

void UnitQueue::OfferReturned(int64_t item) {
  const Entry& e = entries_[item];
  for (int64_t unit = e.first_unit; unit < e.first_unit + e.units(); ++unit) {
    if (state(unit) != UnitState::kReturned) continue;
    Ready(e, unit) ? Offer(unit) : Withdraw(unit);
  }
}

// ---- what became of it ----

bool UnitQueue::Finish(int64_t lease, int64_t unit, std::vector<Dropped>& dropped) {
  if (unit < 0 || unit >= units()) return false;
  const int64_t item = ItemOf(unit);
  Entry& e = entries_[item];
  // A lease number that was never given for this unit can't come from a worker of ours.
  if (lease <= 0 || lease >= next_lease_ || state(unit) == UnitState::kOpen) return false;
  if (state(unit) == UnitState::kDone || e.state != EntryState::kStarted) {
    if (const auto held = leases_.find(lease); held != leases_.end() && held->second.unit == unit) {
      Release(lease);
    }
    return false;
  }
  const UnitKind kind = Find(unit).kind;
  bool others = state(unit) == UnitState::kLeased;
  if (const auto held = leases_.find(lease); held != leases_.end() && held->second.unit == unit) {
    const WorkerIndex worker = held->second.worker;
    if (OldestOf(worker, kind) == lease)
      pace_.Took(kind, now_ - workers_[worker].since[static_cast<size_t>(kind)]);
    others = twice_.contains(unit);
    Release(lease);
  }
  if (others) DropLeases(unit, dropped);
  Withdraw(unit);
  SetState(unit, UnitState::kDone);
  switch (kind) {
    case UnitKind::kStage:
      e.stage_done = true;
      open_items_.insert(item);
      OfferReturned(item);
      break;
    case UnitKind::kInfer:
      if (--e.infer_left == 0) WaitIsOver(item);
      if (e.infer_units == 1) {
        CloseItem(item, EntryState::kDone, dropped);
      } else if (const int64_t assemble = e.first_unit + e.units() - 1;
                 e.infer_left == 0 && state(assemble) != UnitState::kLeased) {
        Offer(assemble);
      }
      break;
    default:
      CloseItem(item, EntryState::kDone, dropped);
  }
  return true;
}

UnitQueue::CameBack UnitQueue::Return(int64_t lease, WorkerIndex worker, bool counts) {
  if (!Holds(lease, worker)) return {-1, -1, Back::kNotHeld, false};
  const int64_t unit = leases_.at(lease).unit;
  const bool another = twice_.contains(unit);
  Release(lease);
  if (counts) AddAttempt(unit);
  if (!another) Requeue(unit);
  return Judge(unit);
}

UnitQueue::CameBack UnitQueue::LoseResult(int64_t lease, WorkerIndex worker, int64_t unit) {
  if (!Holds(lease, worker)) return {-1, -1, Back::kNotHeld, false};
  const int64_t needing = leases_.at(lease).unit;
  const int64_t item = ItemOf(needing);
  if (unit < 0 || unit >= units() || ItemOf(unit) != item || unit >= needing) {
    return Return(lease, worker, true);
  }
  const bool another = twice_.contains(needing);
  Release(lease);
  if (!another) SetState(needing, UnitState::kReturned);
  Entry& e = entries_[item];
  const bool stage = Find(unit).kind == UnitKind::kStage;
  if (state(unit) == UnitState::kDone) {
    AddAttempt(unit);
    SetState(unit, UnitState::kReturned);
    stage ? void(e.stage_done = false) : void(++e.infer_left);
    if (stage) open_items_.erase(item);
    if (!stage && e.stage_skipped) {
      SetState(e.first_unit, UnitState::kReturned);
      e.stage_done = e.stage_skipped = false;
    }
  }
  OfferReturned(item);
  return Judge(unit);
}

std::vector<UnitQueue::Dropped> UnitQueue::Fail(int64_t item) {
  std::vector<Dropped> dropped;
  if (ItemOpen(item)) CloseItem(item, EntryState::kFailed, dropped);
  return dropped;
}

UnitQueue::CameBack UnitQueue::Judge(int64_t unit) {
  const bool poisoned = deaths(unit) >= 2;
  const bool spent = poisoned || attempts(unit) >= options_.max_attempts;
  return {unit, ItemOf(unit), spent ? Back::kSpent : Back::kQueued, poisoned};
}

void UnitQueue::DropLeases(int64_t unit, std::vector<Dropped>& dropped) {
  for (auto it = leases_.begin(); it != leases_.end();) {
    const auto [lease, held] = *it++;
    if (held.unit != unit) continue;
    dropped.push_back({held.worker, lease});
    Release(lease);
  }
}

void UnitQueue::Release(int64_t lease) {
  const Held held = leases_.at(lease);
  Worker& w = workers_[held.worker];
  if (OldestOf(held.worker, held.kind) == lease) w.since[static_cast<size_t>(held.kind)] = now_;
  leases_.erase(lease);
  std::erase_if(early_, [lease](const auto& early) { return early.second == lease; });
  w.leases.erase(lease);
  w.suspect = false;
  twice_.erase(held.unit);
}

void UnitQueue::CloseItem(int64_t item, EntryState state_now, std::vector<Dropped>& dropped) {
  Entry& e = entries_[item];
  if (e.state == EntryState::kStarted) {
    scratch_used_ -= e.scratch;
    if (e.scratch > 0) --started_;
  }
  e.state = state_now;
  open_items_.erase(item);
  unassembled_.erase(item);
  for (int64_t unit = e.first_unit; unit < e.first_unit + e.units(); ++unit) {
    if (state(unit) == UnitState::kDone) continue;
    Withdraw(unit);
    if (state(unit) == UnitState::kLeased) DropLeases(unit, dropped);
    SetState(unit, UnitState::kDone);
    if (state_now == EntryState::kFailed) {
      --counts_.done;
      ++counts_.failed;
    }
  }
}

// ---- small things ----

int64_t UnitQueue::ItemOf(int64_t unit) const {
  const auto after = std::upper_bound(entries_.begin(), entries_.end(), unit,
                                      [](int64_t u, const Entry& e) { return u < e.first_unit; });
  return after - entries_.begin() - 1;
}

UnitRef UnitQueue::Find(int64_t unit) const {
  const int64_t item = ItemOf(unit);
  const Entry& e = entries_[item];
  const int64_t block = unit - e.first_unit - (e.staged ? 1 : 0);
  if (block < 0) return {item, UnitKind::kStage, 0};
  if (block == e.infer_units) return {item, UnitKind::kAssemble, 0};
  return {item, UnitKind::kInfer, block};
}

bool UnitQueue::Holds(int64_t lease, WorkerIndex worker) const {
  const auto found = leases_.find(lease);
  return found != leases_.end() && found->second.worker == worker;
}

bool UnitQueue::ItemOpen(int64_t item) const {
  return entries_[item].state == EntryState::kNew || entries_[item].state == EntryState::kStarted;
}

bool UnitQueue::UnitDone(int64_t unit) const {
  return state(unit) == UnitState::kDone && entries_[ItemOf(unit)].state != EntryState::kFailed;
}

void UnitQueue::SetState(int64_t unit, UnitState to) {
  const auto counter = [this](UnitState s) -> int64_t& {
    return s == UnitState::kDone     ? counts_.done
           : s == UnitState::kLeased ? counts_.leased
                                     : counts_.waiting;
  };
  --counter(state(unit));
  ++counter(to);
  bytes_[unit] = static_cast<uint8_t>((bytes_[unit] & ~3) | static_cast<int>(to));
}

void UnitQueue::AddAttempt(int64_t unit) {
  const int n = std::min(attempts(unit) + 1, 7);
  bytes_[unit] = static_cast<uint8_t>((bytes_[unit] & ~(7 << 2)) | n << 2);
  entries_[ItemOf(unit)].smooth = false;
}

void UnitQueue::AddDeath(int64_t unit) {
  const int n = std::min(deaths(unit) + 1, 3);
  bytes_[unit] = static_cast<uint8_t>((bytes_[unit] & ~(3 << 5)) | n << 5);
  WithdrawEarly(ItemOf(unit));
}

}  // namespace tilery
