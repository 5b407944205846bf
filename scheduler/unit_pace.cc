#include "scheduler/unit_pace.h"

#include <algorithm>

namespace tilery {

void UnitPace::Took(UnitKind kind, double seconds) {
  Latest& latest = kinds_[static_cast<size_t>(kind)];
  if (latest.seconds.size() < kKept) {
    latest.seconds.push_back(seconds);
  } else {
    latest.seconds[latest.next] = seconds;
    latest.next = (latest.next + 1) % kKept;
  }
  latest.limit.reset();
}

std::optional<double> UnitPace::Limit(UnitKind kind) const {
  const Latest& latest = kinds_[static_cast<size_t>(kind)];
  if (latest.seconds.size() < kSlowSample) return std::nullopt;
  if (!latest.limit) {
    std::vector<double> sorted = latest.seconds;
    const auto middle = sorted.begin() + static_cast<ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    latest.limit = std::max(kSlowShare * *middle, kSlowAnyway_s);
  }
  return latest.limit;
}

}  // namespace tilery
