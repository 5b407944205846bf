// Which unit runs next: leases, retries, poisoned units and the scratch budget. A pure state
// machine: no I/O, no clock (time is an argument, in seconds on any scale that never runs
// backwards), not thread-safe.
//
// Order of choice: suspects for an idle worker; assemble units that are ready, then stage units;
// units that came back; fresh units of started items in plan order; the next item in plan order, if
// it may start; an assemble unit early; what a slow worker holds. Only the head of the line is
// tried, so a large item is never starved by small ones behind it.
//
// Early: the oldest item that is not assembled yet, once one in kEarlyShare of its infer units is
// done. Its assemble unit then waits for the others while they are inferred, and is in no one's way
// meanwhile: they have their scratch already, and no unit but theirs is waited for. It is tried
// once, and only if none of the item's units has failed. Waiting is no fault: if its worker dies or
// falls silent before all bricks are there, the unit costs no attempt. It is withdrawn if one of
// the units becomes a suspect, which might never be leased as long as a worker holds what waits for
// it, and if its worker has no room for an assemble unit that is ready.
//
// Items that take scratch start while MayStart() allows it: within the limit, and no further ahead
// of what is inferred and assembled than keeps every worker busy, however many items there are.
//
// Twice: a worker that holds nothing, or only what waits, and can be given nothing else gets a unit
// that a slow worker holds (unit_pace.h). The result that comes first counts, the other lease is
// void then. What goes wrong with one of the two leaves the other as it was.
//
// A unit that was held by a worker that died is a suspect: it is leased alone, to a worker that
// holds nothing else, so that the second death names the culprit and its neighbours clear
// themselves. After two deaths it is spent, as it is after `max_attempts` failed attempts; its item
// then fails.
//
// Memory: one byte per unit and 40 bytes per item, plus what is under way.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "scheduler/plan.h"
#include "scheduler/unit_pace.h"

namespace tilery {

struct QueueOptions {
  double lease_s = 15;
  int max_attempts = 3;               // 1..7
  int64_t scratch_limit = INT64_MAX;  // bytes
};

// Items that take scratch and are under way at a time: kItemsAnyway, so that one is staged and one
// assembled beside the one that is inferred; more, up to kItemsPerWorker, while all of them take at
// most kEasyScratch for every worker.
inline constexpr int64_t kItemsAnyway = 3;
inline constexpr int64_t kItemsPerWorker = 8;
inline constexpr int64_t kEasyScratch = int64_t{8} << 30;  // bytes

// An assemble unit is leased early once one in so many of its item's infer units is done: soon
// enough to catch up with them before the last one, late enough to seldom be in vain.
inline constexpr int64_t kEarlyShare = 2;

// What a worker has room for.
struct Room {
  bool infer = false, stage = false, assemble = false;
  bool Fits(UnitKind kind) const {
    return kind == UnitKind::kInfer ? infer : kind == UnitKind::kStage ? stage : assemble;
  }
};

class UnitQueue {
 public:
  using WorkerIndex = int32_t;
  struct Grant {
    int64_t lease = 0;  // rises with every grant; serves as the attempt number in file names, too
    int64_t unit = 0, item = 0, block = 0;
    UnitKind kind = UnitKind::kInfer;
    bool early = false;  // assemble: before all bricks are there
    bool twice = false;  // another worker holds the unit, too
  };
  struct Dropped {
    WorkerIndex worker = 0;
    int64_t lease = 0;
  };                                                        // nobody waits for it any more
  enum class Back : uint8_t { kNotHeld, kQueued, kSpent };  // kSpent: the caller fails the item
  struct CameBack {
    int64_t unit = 0, item = 0;
    Back back = Back::kQueued;
    bool poisoned = false;
  };
  struct Counts {
    int64_t waiting = 0, leased = 0, done = 0, failed = 0;
  };

  // Items that are refused take no part.
  UnitQueue(const std::vector<Item>& items, const QueueOptions& options);

  // Before the first lease: an item that needs nothing; an infer unit whose brick is there, or a
  // stage unit whose file is.
  void MarkUnchanged(int64_t item);
  void MarkDone(int64_t unit);

  WorkerIndex AddWorker();
  void SetWorkersAlive(int64_t workers) { workers_alive_ = workers; }            // until then 1
  std::optional<Grant> Lease(WorkerIndex worker, const Room& room, double now);  // the next unit
  void Renew(WorkerIndex worker, double now);  // all its leases are good for lease_s from now
  // Half the time of a lease has passed since it renewed them, which it does much more often: what
  // it is given now, it may never hear of.
  bool Silent(WorkerIndex worker, double now) const;
  void Extend(double seconds);  // all leases, since our own clock slept

  // A result, from whichever attempt: the first one counts, also after its lease has ended. False:
  // repeated, or the unit is not wanted any more. Leases of others that became void are added to
  // `dropped`.
  bool Finish(int64_t lease, int64_t unit, std::vector<Dropped>& dropped);
  // The holder gives a lease back. `counts`: as a failed attempt.
  CameBack Return(int64_t lease, WorkerIndex worker, bool counts);
  // The holder of `lease` found the result of `unit`, which it needs, lost or damaged: that unit
  // runs again, then this one. kSpent: `unit` was lost too often.
  CameBack LoseResult(int64_t lease, WorkerIndex worker, int64_t unit);
  std::vector<CameBack> WorkerDied(WorkerIndex worker);  // with suspicion
  void Abandon(WorkerIndex worker);  // all its leases come back, nobody is to blame
  // The same for those above `newest`: they were lost on their way to the worker.
  void AbandonUnheard(WorkerIndex worker, int64_t newest);
  // The same for assemble units that it was leased early: bricks may have been lost on their way.
  void AbandonEarly(WorkerIndex worker);
  std::vector<CameBack> Expire(double now);  // leases that were not renewed
  std::vector<Dropped> Fail(int64_t item);   // cancels all its other units

  int64_t ItemOf(int64_t unit) const;
  UnitRef Find(int64_t unit) const;
  bool Holds(int64_t lease, WorkerIndex worker) const;
  int64_t UnitOf(int64_t lease) const { return leases_.at(lease).unit; }  // of a lease that is held
  size_t HeldBy(WorkerIndex worker) const { return workers_[worker].leases.size(); }
  // Of these, leases that can go on: all but assemble units whose bricks are not all there.
  size_t ActiveOf(WorkerIndex worker) const;
  bool Waits(int64_t lease) const;  // is such an assemble unit's
  // The lease of the item's assemble unit, if it was leased early and is still held.
  std::optional<Dropped> EarlyLease(int64_t item) const;
  // Early leases that ended since the last call although their workers have not said so.
  std::vector<Dropped> TakeWithdrawn() { return std::exchange(withdrawn_, {}); }
  bool ItemOpen(int64_t item) const;  // neither done nor failed nor unchanged
  bool UnitDone(int64_t unit) const;
  int attempts(int64_t unit) const { return bytes_[unit] >> 2 & 7; }  // failed ones
  bool AllDone() const { return counts_.waiting + counts_.leased == 0; }
  Counts counts() const { return counts_; }
  int64_t units() const { return static_cast<int64_t>(bytes_.size()); }
  int64_t scratch_used() const { return scratch_used_; }
  int64_t leased_twice() const { return leased_twice_; }  // units, so far
  // Why an item can never be admitted, with both numbers; "" if it can.
  static std::string BeyondScratch(const Item& item, int64_t limit);

 private:
  enum class UnitState : uint8_t { kOpen, kLeased, kReturned, kDone };
  enum class EntryState : uint8_t { kNew, kStarted, kDone, kFailed };
  struct Entry {
    int64_t first_unit = 0, scratch = 0;
    int32_t infer_units = 0, infer_left = 0, next_block = 0;
    EntryState state = EntryState::kNew;
    bool staged = false, stage_done = false, stage_skipped = false;
    bool smooth = true;  // until one of its units fails or is lost, or its assemble unit is leased
    int64_t units() const { return (staged ? 1 : 0) + infer_units + (infer_units > 1 ? 1 : 0); }
  };
  struct Held {
    int64_t unit = 0;
    WorkerIndex worker = 0;
    UnitKind kind = UnitKind::kInfer;
  };
  struct Worker {
    std::optional<double> deadline;  // of all its leases; none: nothing was heard of it yet
    std::set<int64_t> leases;
    bool suspect = false;                    // what it holds is one suspect, alone
    std::array<double, kUnitKinds> since{};  // when it began the oldest that it holds of a kind
  };

  // One byte per unit: state in bits 0..1, failed attempts in 2..4, deaths in 5..6.
  UnitState state(int64_t unit) const { return static_cast<UnitState>(bytes_[unit] & 3); }
  int deaths(int64_t unit) const { return bytes_[unit] >> 5 & 3; }
  void SetState(int64_t unit, UnitState state);
  void AddAttempt(int64_t unit);
  void AddDeath(int64_t unit);

  void Begin();
  bool MayStart(const Entry& entry) const;
  void Admit(int64_t item);
  bool Ready(const Entry& entry, int64_t unit) const;
  void Offer(int64_t unit);  // puts a ready unit into its set
  void Withdraw(int64_t unit);
  std::set<int64_t>& ReadySet(int64_t unit);
  void Requeue(int64_t unit);  // a leased or done unit waits again
  void OfferReturned(int64_t item);
  Grant GrantTo(WorkerIndex worker, int64_t unit, double now);
  std::optional<int64_t> Fresh(const Room& room);
  std::optional<int64_t> Early() const;
  std::optional<int64_t> OldestOf(WorkerIndex worker, UnitKind kind) const;  // a lease
  std::optional<int64_t> Slow(WorkerIndex worker, const Room& room);         // a unit
  void FindSlow();
  void WaitIsOver(int64_t item);  // of an assemble unit that was given out early
  void WithdrawWaiting(WorkerIndex worker);
  void WithdrawEarly(int64_t item);
  void DropLeases(int64_t unit, std::vector<Dropped>& dropped);  // all of them
  void Release(int64_t lease);
  CameBack Judge(int64_t unit);
  void CloseItem(int64_t item, EntryState state, std::vector<Dropped>& dropped);

  QueueOptions options_;
  std::vector<Entry> entries_;
  std::vector<uint8_t> bytes_;
  std::vector<Worker> workers_;
  std::unordered_map<int64_t, Held> leases_;
  // Units.
  std::set<int64_t> ready_stage_, ready_assemble_, returned_infer_, suspects_;
  std::set<int64_t> open_items_;      // started, with fresh infer units
  std::set<int64_t> unassembled_;     // started, with an assemble unit
  std::map<int64_t, int64_t> early_;  // item -> lease of its assemble unit, held since it was early
  std::vector<Dropped> withdrawn_;
  std::set<int64_t> twice_;  // units with two leases
  UnitPace pace_;
  std::vector<int64_t> slow_;      // leases, the oldest first, as of slow_at_
  double now_ = 0, slow_at_ = -1;  // now_: as last told
  int64_t leased_twice_ = 0;
  int64_t next_item_ = 0, next_lease_ = 1, scratch_used_ = 0;
  int64_t workers_alive_ = 1, started_ = 0;  // items under way that take scratch
  Counts counts_;
  bool begun_ = false;
};

}  // namespace tilery
