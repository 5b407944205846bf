#include "pipeline/batch_slots.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "io/error.h"

namespace tilery {
namespace {

// Reads a number from the front of `rest`; -1 if there is none.
int64_t Number(std::string_view& rest) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (error != std::errc{}) return -1;
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  return value;
}

bool Skip(std::string_view& rest, char c) {
  if (rest.empty() || rest.front() != c) return false;
  rest.remove_prefix(1);
  return true;
}

}  // namespace

BatchSlots::BatchSlots(const std::string& text, int64_t batch) {
  std::vector<bool> used(static_cast<size_t>(batch), text == "all");
  std::string_view rest = text;
  for (int64_t next = 0; text != "all";) {
    const int64_t first = Number(rest);
    const int64_t last = Skip(rest, '-') ? Number(rest) : first;
    const bool more = Skip(rest, ',');
    if (first < next || last < first || last >= batch || (!more && !rest.empty())) {
      throw Error(Fault::kUsage, "slots '" + Printable(text, 200) + "' of a batch of " +
                                     std::to_string(batch) +
                                     ": wanted is all, or ascending ranges from 0 to " +
                                     std::to_string(batch - 1) + " like 0-6,8-15");
    }
    std::fill(used.begin() + first, used.begin() + last + 1, true);
    if (!more) break;
    next = last + 1;
  }
  for (int64_t slot = 0; slot < batch; ++slot) {
    (used[static_cast<size_t>(slot)] ? used_ : unused_).push_back(slot);
  }
}

std::string BatchSlots::Text(const std::vector<bool>& used) {
  if (std::find(used.begin(), used.end(), false) == used.end()) return "all";
  std::string text;
  for (auto first = std::find(used.begin(), used.end(), true); first != used.end();) {
    const auto end = std::find(first, used.end(), false);
    text += (text.empty() ? "" : ",") + std::to_string(first - used.begin());
    if (end - first > 1) text += "-" + std::to_string(end - used.begin() - 1);
    first = std::find(end, used.end(), true);
  }
  return text;
}

std::vector<bool> SlotsThatAgree(const std::vector<std::vector<uint64_t>>& batches) {
  std::map<std::vector<uint64_t>, std::vector<size_t>> alike;
  const size_t slots = batches.at(0).size();
  for (size_t slot = 0; slot < slots; ++slot) {
    std::vector<uint64_t> all;
    for (const std::vector<uint64_t>& batch : batches) all.push_back(batch.at(slot));
    alike[std::move(all)].push_back(slot);
  }
  const auto most = std::max_element(alike.begin(), alike.end(), [](const auto& a, const auto& b) {
    if (a.second.size() != b.second.size()) return a.second.size() < b.second.size();
    return a.second.front() > b.second.front();
  });
  std::vector<bool> used(slots, false);
  for (const size_t slot : most->second) used[slot] = true;
  return used;
}

}  // namespace tilery
