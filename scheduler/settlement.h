// The one place where outcomes are judged: what an attempt means for the queue, the ledger, the
// files and the figures of the run.
//
// Everything is collected and becomes true with Commit: one transaction first, then what depends on
// it (bricks deleted, leases dropped). Nothing may be leased between Take and Commit.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "scheduler/coordinator.h"
#include "scheduler/queue.h"
#include "scheduler/sessions.h"
#include "scheduler/work_builder.h"

namespace tilery {

// Not thread-safe. All that is referred to outlives it.
class Settlement {
 public:
  Settlement(const Plan& plan, Ledger& ledger, UnitQueue& queue, WorkBuilder& builder,
             const std::filesystem::path& scratch);

  // Before the first lease.
  void StartFrom(const Resume& resume, int64_t scratch_limit);

  void Take(Session& session, int64_t lease, int64_t unit, const Outcome& outcome);
  void Died(Session& session, const std::string& how);  // its process; its leases come back
  void Left(Session& session);                          // by `bye`; they come back without blame
  // Those above `newest` come back likewise, and what assembles early.
  void Rejoined(Session& session, int64_t newest);
  void Expire(double now);
  void FailItem(int64_t item, const std::string& stage, const std::string& reason);

  // Leases that nobody waits for any more, since the last call. Error of the ledger: nothing of
  // what was collected counts, and the run must end.
  std::vector<UnitQueue::Dropped> Commit();
  // After it: bricks, by item, that came since the last call while their item was being assembled.
  std::map<int64_t, std::vector<Brick>> TakeAwaited() { return std::exchange(awaited_, {}); }

  const RunResult& result() const {
    return result_;
  }  // figures and failures; no workers, no status
  int64_t tiles_total() const { return tiles_total_; }  // of the job: falls with items that fail
  int64_t tiles_done() const { return tiles_done_; }
  int64_t tiles_now() const {
    return tiles_now_;
  }  // accepted from workers of this run: for the ETA

 private:
  void TakeDone(Session& session, int64_t lease, int64_t unit, const Done& done);
  void Accept(Session& session, const UnitRef& ref, int64_t unit, const Done& done);
  // Of a unit whose result another attempt has brought before.
  void TakeSecondFile(const Item& item, const std::string& key, const Done& done);
  void TakeSecondOutput(const Item& item, const Done& done);
  void Compare(const Item& item, const std::string& first, const std::string& second);
  void TakeLost(Session& session, int64_t lease, const LostBrick& lost);
  void Judge(const UnitQueue::CameBack& back, const std::string& stage, const std::string& reason);
  void CloseItem(int64_t item);  // done or failed: what it has on disk beside its output goes
  void RemoveLater(const std::string& file) { remove_.push_back(file); }

  const Plan& plan_;
  Ledger& ledger_;
  UnitQueue& queue_;
  WorkBuilder& builder_;
  const std::filesystem::path scratch_;
  RunResult result_;
  int64_t tiles_total_ = 0, tiles_done_ = 0, tiles_now_ = 0;
  std::unordered_set<int64_t> again_;  // units whose accepted result was lost: not accepted twice
  std::vector<std::string> remove_;    // files in scratch, after the commit
  std::vector<UnitQueue::Dropped> dropped_;
  std::map<int64_t, std::vector<Brick>> awaited_;
  bool bricks_consumed_ = false;
};

}  // namespace tilery
