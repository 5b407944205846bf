// Turns a granted unit into the work that a worker is sent, and knows where the files of items
// under way are.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scheduler/ledger.h"
#include "scheduler/plan.h"
#include "scheduler/queue.h"
#include "scheduler/wire.h"

namespace tilery {

// Not thread-safe. All that is referred to outlives it.
class WorkBuilder {
 public:
  WorkBuilder(const Plan& plan, const WorkerContext& context, const Ledger& ledger, int64_t epoch);

  UnitWork Build(const UnitQueue::Grant& grant);
  int64_t TilesOf(const UnitRef& ref);  // model runs; 0 for stage and assemble
  std::string BrickKey(int64_t item, int64_t block) const;
  std::string OutputKeyOf(int64_t item) const;

  void Staged(int64_t item, const std::string& file) { items_[item].stage_file = file; }
  void CountTiles(int64_t item, int64_t tiles) { items_[item].tiles_done += tiles; }
  int64_t tiles_done(int64_t item) const;
  // Files of a finished or failed item other than bricks: removed by the caller, names relative to
  // scratch.
  std::vector<std::string> Forget(int64_t item);

 private:
  struct UnderWay {  // of items of several units only
    std::shared_ptr<const ItemGeometry> geometry;
    std::string stage_file, bricks_file;
    int64_t tiles_done = 0;
  };
  void AddBricks(const UnitQueue::Grant& grant, UnitWork& work);
  const ItemGeometry& Geometry(int64_t item);

  const Plan& plan_;
  const WorkerContext& context_;
  const Ledger& ledger_;
  const int64_t epoch_;
  std::vector<int64_t> passes_;  // model runs per tile, per entry of plan.params
  std::map<int64_t, UnderWay> items_;
};

}  // namespace tilery
