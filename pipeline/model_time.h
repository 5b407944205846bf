// What the model's time leaves over: how long it ran, why it stood still meanwhile, how much of the
// other stages' time lay under it, and how full the queues before and behind it were.
//
// Times are given as they become known, which for a GPU is after the fact. What lies before the
// horizon, the earliest begin of any model run that is still under way, is settled: nothing can
// change it any more.
//
// Not thread-safe; the caller holds a lock.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <vector>

namespace tilery {

// Infer units of a worker, by where they are.
struct UnitsAt {
  int64_t waiting = 0;    // leased, not begun
  int64_t reading = 0;    // being read and decoded
  int64_t computing = 0;  // in the engine
  int64_t writing = 0;    // being encoded and written
  bool operator==(const UnitsAt&) const = default;
};
inline constexpr int kQueues = 4;
const char* QueueName(int queue);  // "waiting", "reading", "computing", "writing"

// What the model waits for when it stands still.
enum class IdleCause : uint8_t {
  kStart,   // its first run
  kLease,   // work from the scheduler: nothing is held
  kRead,    // inputs that are being read
  kEngine,  // the engine: uploads, filling a batch, launching
  kWrite,   // room: everything that is held is being written
};
inline constexpr int kIdleCauses = 5;
const char* IdleCauseName(IdleCause cause);  // "start", "lease", "read", "engine", "write"

class ModelTime {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit ModelTime(Time start) : settled_until_(start), depth_since_(start), start_(start) {
    causes_.push_back({start, IdleCause::kLease});
  }
  // A model run is about to be asked for; ends with Ended(), after its Ran().
  void Begins(Time now) { under_way_.insert(now); }
  void Ended(Time began);
  void Ran(Time begin, Time end);
  // Time of another stage, of an index of the caller's.
  void Other(size_t stage, Time begin, Time end);
  void Now(const UnitsAt& units, Time now);

  struct Totals {
    double model_s = 0;                        // with at least one model run under way
    std::array<double, kIdleCauses> idle_s{};  // the rest
    std::vector<double> under_model_s;         // by stage
    std::array<double, kQueues> mean{};        // units, over time
    std::array<int64_t, kQueues> most{};
  };
  // Up to the horizon; queues up to now.
  Totals totals(Time now);

 private:
  struct Interval {
    Time begin, end;
  };
  struct OtherInterval {
    Interval time;
    size_t stage;
  };
  struct Change {
    Time since;
    IdleCause cause;
  };
  void Settle(Time now);
  void Idle(Time begin, Time end);
  void CountDepths(Time now);
  double UnderModel(const Interval& time) const;

  std::multiset<Time> under_way_;
  std::deque<Interval> runs_;  // by begin, disjoint once settled
  std::vector<Interval> fresh_;
  std::vector<OtherInterval> others_;
  std::deque<Change> causes_;  // the first holds at settled_until_
  Time settled_until_;
  bool started_ = false;  // a model run has been settled
  Totals totals_;
  UnitsAt units_;
  Time depth_since_;
  const Time start_;
};

}  // namespace tilery
