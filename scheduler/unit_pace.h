// How long units take, and which of them take too long. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "scheduler/plan.h"

namespace tilery {

// A unit is slow if it takes longer than the first times the median of the latest units of its
// kind, of which there must be kSlowSample, and than the second: what is quicker would be done
// before another worker has begun it.
inline constexpr double kSlowShare = 2, kSlowAnyway_s = 2;
inline constexpr size_t kSlowSample = 5;

class UnitPace {
 public:
  void Took(UnitKind kind, double seconds);
  // Beyond which a unit is slow; nullopt while too few have been seen.
  std::optional<double> Limit(UnitKind kind) const;

 private:
  static constexpr size_t kKept = 255;
  struct Latest {
    std::vector<double> seconds;  // a ring, once it is full
    size_t next = 0;
    mutable std::optional<double> limit;  // nullopt: to be worked out
  };
  std::array<Latest, kUnitKinds> kinds_;
};

}  // namespace tilery
