// From the flags of `tilery bench` to synthetic items, planned as a job of such files is.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "scheduler/bench.h"
#include "scheduler/bench_wire.h"
#include "scheduler/devices.h"
#include "scheduler/model_file.h"
#include "scheduler/planner.h"

namespace tilery {

struct BenchSetup {
  JobFlags run_flags;  // for `tilery run` on the same items: without input, output and work
  DeviceSeat seat;
  ModelFile model;
  std::string package_hash;
  bool named = false;  // layout or package were said, not chosen as a run would choose them
  Resolved resolved;
  std::string extension;  // of inputs and outputs: ".png"
  double range_lo = 0, range_hi = 1;
  BenchRequest request;  // all but steps and times
  std::vector<std::string> warnings;

  int64_t items() const { return static_cast<int64_t>(resolved.plan.items.size()); }
  int64_t tiles_per_item() const { return resolved.plan.items[0].tiles; }
};

// `folder`: where the items would lie, in `in` and `out`; a package that is chosen is copied there.
// What is not said of a GPU's batch, precision and so on is chosen as for a run of these items.
// `say`: what happens meanwhile, in lines for people. Error(kUsage); errors of ChooseForGpu.
BenchSetup MakeBenchSetup(const BenchOptions& options, const std::filesystem::path& folder,
                          const std::function<void(const std::string&)>& say);

}  // namespace tilery
