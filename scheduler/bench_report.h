// What `tilery bench` says, keeps and compares. Pure.
#pragma once

#include <string>
#include <vector>

#include "cluster/message.h"

namespace tilery {

// The document is {"model", "model_hash", "card", ..., "ladder": {step: {"tiles_per_s", "tiles",
// "seconds", "rates", "batches", "batch_s": {"p50", "p95", "p99"}, "ratio", "items_per_s"}}}.

// Fills in, for each step, "ratio" (to the step "forward"; null without it) and "items_per_s".
void AddRatios(Json& document, int64_t tiles_per_item);

std::string BenchTable(const Json& document);  // for people, several lines

// Share that a figure may fall by: "5%" or "0.05". Error(kUsage).
double ToleranceFrom(const std::string& text);

// Error(kUsage) naming both values and `file` if `before` was measured on another card, with
// another model, batch and so on: the first of these in which they differ, of those that `now` has.
void CheckComparable(const Json& now, const Json& before, const std::string& file);

// A step that is slower than allowed.
struct Regression {
  std::string step;
  double now = 0, before = 0, limit = 0;  // tiles per second
  std::string words(const std::string& file, double tolerance) const;
};
// Over the steps that both have. Error(kUsage) if there is none, or `before` is no such document.
std::vector<Regression> FindRegressions(const Json& now, const Json& before, double tolerance,
                                        const std::string& file);

// Card of a device kind: without the libraries' versions, which may change between comparisons.
std::string CardOf(const std::string& device_kind);

}  // namespace tilery
