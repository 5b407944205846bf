// Units whose model runs wait for lanes, in the order in which they were submitted.
//
// Not thread-safe; the engine holds a lock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "pipeline/batch.h"

namespace tilery {

class RunQueue {
 public:
  // `refused`: its runs are not wanted, only its end.
  void Push(std::shared_ptr<UnitRun> unit, bool refused);
  int64_t runs() const { return runs_; }  // not taken yet
  // Whether there are units of which no run is wanted: they make batches of their own, before all
  // others.
  bool any_without_model() const { return !without_model_.empty(); }
  // At most `most` runs; their units have been entered.
  Batch Take(int64_t most);
  // Units that have failed are forgotten; returned, so that their end may come without the lock.
  std::vector<std::shared_ptr<UnitRun>> DropFailed();
  std::vector<std::shared_ptr<UnitRun>> TakeAll();

 private:
  struct Waiting {
    std::shared_ptr<UnitRun> unit;
    int64_t taken = 0;  // runs that lanes have or had
  };
  std::deque<Waiting> queue_;
  std::deque<std::shared_ptr<UnitRun>> without_model_;
  int64_t runs_ = 0;
};

}  // namespace tilery
