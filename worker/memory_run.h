// An engine fed from a host array and emptied into one, as fast as it goes: the same synthetic item
// again and again, cut into units as a plan cuts it.
//
//   item -> [hands: copy a unit's input] -> engine -> [hands: put interiors in place, sum seams] ->
//   array
//
// As much is under way before the engine as a worker has (worker/unit_runner.h), and behind it as
// there are hands: seams, which workers leave to units of their own, are summed there too.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "pipeline/engine.h"
#include "pipeline/model_time.h"
#include "scheduler/plan.h"

namespace tilery {

struct MemoryItem {
  Header header;
  UnitSizing sizing;
  ItemParams params;
};

class MemoryRun {
 public:
  // `hands`: threads that copy. `batch`, `lanes`: the engine's. Engine and profile outlive it.
  MemoryRun(const MemoryItem& item, int64_t batch, int lanes, int hands, Engine& engine,
            Profile& profile);
  ~MemoryRun();

  struct Measured {
    int64_t tiles = 0;
    double seconds = 0;  // in which the results of these were complete, one after the other
    std::vector<double> batch_s;               // from the profile's trace, of the same time
    std::array<double, kIdleCauses> idle_s{};  // likewise: that the model stood still, by IdleCause
  };
  // Warms up until as much is done as is under way at a time, then measures for `seconds` or until
  // one more unit is done. Nothing is under way afterwards. The first error of a unit is thrown.
  Measured Run(double seconds);

  // Of the last item that was completed: the output's type and channels, [z,y,x,c]; valid until the
  // next Run().
  ConstView output() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
