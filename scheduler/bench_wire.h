// What `tilery bench` and its one-shot `tilery-worker --bench` child tell each other, and the
// figures of a step of the ladder.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/wire.h"

namespace tilery {

// Seconds. Nearest rank: the smallest value that at least p percent of all do not exceed, so each
// is one that was seen.
struct Percentiles {
  double p50 = 0, p95 = 0, p99 = 0;
};
Percentiles PercentilesOf(std::vector<double> values);  // zeros if there are none

// One step, measured one or several times: by the best of them.
struct StepFigures {
  double tiles_per_s = 0;
  int64_t tiles = 0;  // of that measurement
  double seconds = 0;
  std::vector<double> rates;    // tiles per second of each measurement, in their order
  std::vector<double> batch_s;  // seconds that each batch took, over all measurements
  // Seconds of that measurement in which the model stood still, by IdleCauseName; where known.
  std::map<std::string, double> idle_s;
  void Add(int64_t tiles_now, double seconds_now, const std::vector<double>& batches,
           const std::map<std::string, double>& idle = {});
};
// {"tiles_per_s", "tiles", "seconds", "rates": [...], "batches", "batch_s": {"p50", "p95", "p99"},
// "idle_s": {cause: s}}
Json ToJson(const StepFigures& figures);

// The answer is one line: {"device_kind", "torch", "how", "ladder": {"forward": figures, "engine":
// figures}}, with the steps that were asked for.
struct BenchRequest {
  WorkerContext context;  // params: of the one item
  std::string device = "cpu";
  Header item;  // samples are BenchSamples
  UnitSizing sizing;
  bool forward = true, engine = true;
  double seconds = 8;  // of measuring, for each step
  int repeats = 2;     // measurements that these are spread over; the steps take turns
};
Json ToJson(const BenchRequest& request);
BenchRequest BenchRequestFromJson(const Json& json);  // Error(kInternal), as wire.h

// Samples as a picture or a scan has them, smooth with noise, [z,y,x,c] of `header`: integers
// between a tenth and six tenths of their range, floats likewise between `low` and `high`. The same
// for the same arguments. `out` holds Product(shape) * channels of them.
void FillBenchSamples(const Header& header, double low, double high, std::byte* out);

}  // namespace tilery
