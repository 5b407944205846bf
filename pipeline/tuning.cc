#include "pipeline/tuning.h"

#include <algorithm>
#include <cmath>

namespace tilery {

const char* TrialEndName(Trial::End end) {
  switch (end) {
    case Trial::End::kRan:
      return "ran";
    case Trial::End::kNoMemory:
      return "no memory";
    default:
      return "failed";
  }
}

void ErrorSum::Add(const float* reference, const float* values, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const double wanted = reference[i], got = values[i];
    if (!std::isfinite(wanted)) continue;
    error_.lowest = any_ ? std::min(error_.lowest, wanted) : wanted;
    error_.highest = any_ ? std::max(error_.highest, wanted) : wanted;
    any_ = true;
    if (!std::isfinite(got)) {
      ++error_.nonfinite;
      continue;
    }
    const double off = std::abs(got - wanted);
    error_.max = std::max(error_.max, off);
    sum_ += off;
    ++compared_;
  }
}

OutputError ErrorSum::error() const {
  OutputError error = error_;
  error.mean = compared_ == 0 ? 0 : sum_ / static_cast<double>(compared_);
  return error;
}

}  // namespace tilery
