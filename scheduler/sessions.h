// The workers of a run: one session per worker process that ever joined.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "cluster/server.h"
#include "scheduler/coordinator.h"
#include "scheduler/queue.h"

namespace tilery {

// A worker's clock against the run's, from the times at which it says it sent something. What is
// under way only makes the difference larger, so the least of the latest kKept is nearest to the
// truth: off by the least time that a message took, and by what the clocks drift apart meanwhile.
class ClockOffset {
 public:
  static constexpr size_t kKept = 64;       // renewals, of about a minute
  void Heard(int64_t sent_us, double now);  // `now`: the run's seconds
  int64_t us() const;                       // to be added to the worker's microseconds

 private:
  std::array<int64_t, kKept> offsets_{};
  size_t heard_ = 0;
};

struct Session {
  WorkerReport report;
  UnitQueue::WorkerIndex index = 0;
  PeerId peer = 0;           // 0: no link now
  bool alive = true;         // its process may still report
  int64_t last_outcome = 0;  // highest "seq" taken
  int64_t tiles_wanted = 0, stages_wanted = 0, assembles_wanted = 0;  // may be sent so many more
  bool asked = false;  // its last `want` has not been answered

  // Signs of life; see HungLimit.
  std::string phase;
  int64_t batches = -1;
  double changed_at = 0, slowest_batch_s = 0;
  double killed_at = -1;    // asked to be killed since it hung; -1: not
  double replaced_at = -1;  // another process of the same name joined; -1: not
  std::string hung;         // words, if killed for it

  ClockOffset clock;
  std::deque<TraceRow> trace;
};

// Not thread-safe. Sessions stay where they are as long as the table lives.
class SessionTable {
 public:
  // A process that greets: a new session, or the one that it had before its link broke. `now` in
  // seconds of the run. A living older process of the same name counts as replaced.
  Session& Join(PeerId peer, const Json& hello, UnitQueue& queue, double now);
  Session* Of(PeerId peer);                     // nullptr if unknown
  Session* OldestAlive(const std::string& id);  // nullptr if none
  Session* ByIndex(UnitQueue::WorkerIndex index);
  void Unlink(Session& session);  // its link is gone
  std::vector<std::unique_ptr<Session>>& all() { return all_; }
  int alive() const;

  // Takes over what `profile` says. Times of its trace become the run's.
  static void TakeProfile(Session& session, const Json& profile, double now);
  static void TakeRenewal(Session& session, const Json& renewal, double now);
  // For so long its signs of life may stay the same. Loading, compiling and warming up have limits
  // of their own.
  static double HungLimit(const Session& session, double usual);
  // With the trace if `whole`.
  static WorkerReport Report(const Session& session, bool busy, bool whole);

 private:
  std::vector<std::unique_ptr<Session>> all_;
  std::unordered_map<PeerId, Session*> by_peer_;  // linked ones
};

}  // namespace tilery
