// From the flags of `tilery bench` to synthetic items, planned as a job of such files is.
#pragma once

#include <filesystem>
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
  std::string device;  // "cpu" or "cuda:N"
  DeviceSeat seat;     // the same
  ModelFile model;
  std::string package_hash;
  Resolved resolved;
  std::string extension;  // of inputs and outputs: ".png"
  double range_lo = 0, range_hi = 1;
  BenchRequest request;  // all but steps and times
  std::vector<std::string> warnings;

  int64_t items() const { return static_cast<int64_t>(resolved.plan.items.size()); }
  int64_t tiles_per_item() const { return resolved.plan.items[0].tiles; }
};

// `folder`: where the items would lie, in `in` and `out`; nothing is written. Error(kUsage).
BenchSetup MakeBenchSetup(const BenchOptions& options, const std::filesystem::path& folder);

}  // namespace tilery
