// The nearest valid word to what somebody wrote.
#include <algorithm>
#include <string>
#include <vector>

#include "scheduler/job.h"

namespace tilery {
namespace {

// Edit distance with swaps of neighbours (optimal string alignment), letters compared without case.
size_t Distance(const std::string& a, const std::string& b) {
  const auto low = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = low(a[i - 1]) == low(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && low(a[i - 1]) == low(b[j - 2]) && low(a[i - 2]) == low(b[j - 1])) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::string NearestWord(const std::string& word, const std::vector<std::string>& valid) {
  constexpr size_t kLongest = 200;  // nobody means a known word by more
  if (word.empty() || word.size() > kLongest) return "";
  std::string best;
  size_t best_distance = (word.size() + 1) / 2 + 1;
  for (const std::string& candidate : valid) {
    const size_t distance = Distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace tilery
