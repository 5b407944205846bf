// What a run leaves for people and tools: WORK/profile.json, report.html, trace.json.
#pragma once

#include <filesystem>
#include <string>

#include "scheduler/coordinator.h"

namespace tilery {

// What the report says beside the measurements.
struct ReportContext {
  std::string job, model, model_hash, device_kind, torch, precision;
  int64_t batch = 1;
  int64_t tiles = 0, items = 0, units = 0;  // of the plan
  double redundancy = 1;
  std::string layout;
  bool compiled = false;
  Json tuning;         // GpuChoice::report
  std::string tiling;  // "tile 256x256, overlap 32x32, cosine"
  bool reproducible = true;
  std::vector<std::string> deviations, warnings;
};

// {"wall_s", "first_lease_s", "last_publish_s", "tiles", "tiles_repeated", "tiles_careful",
// "careful_items": [{"item", "tiles"}], "bound_by", "together": {...}, "workers": [...],
// "failures": [...], "tiles_per_s", "job": {...}}; the two moments count from when workers were
// first served, and are null if they never came
Json ProfileJson(const RunResult& result, const ReportContext& context);

// That tiles were not finite in `precision` and ran again in fp32, how many and of which items; ""
// if there were none.
std::string CarefulWords(const RunResult& result, const std::string& precision);

// That two attempts at a unit have made different bytes, and of which items; "" if none have.
std::string DifferenceWords(const RunResult& result);

// The stage whose threads were busiest, "start-up" if no stage was busy a tenth of the time, or
// "none".
std::string BoundBy(const RunResult& result);

// Chrome trace format: one process per worker, one row per thread; times in microseconds.
// Errors: Error(kOutput).
void WriteTrace(const std::filesystem::path& path, const RunResult& result);

// One self-contained page; everything from the data is escaped.
// `result` gives the timeline.
std::string ReportHtml(const Json& profile, const RunResult& result, const Json& summary);

// `run --json`'s document.
Json SummaryJson(const RunResult& result, const ReportContext& context, const std::string& work);

// Writes all three into `work`. Errors: Error(kOutput).
void WriteReports(const std::filesystem::path& work, const RunResult& result,
                  const ReportContext& context);

}  // namespace tilery
