#include "scheduler/worker_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/error.h"

namespace tilery {

WorkerWatch::WorkerWatch(const std::vector<WorkerLaunch>& launches, Needs needs)
    : launches_(launches), needs_(std::move(needs)) {}

void WorkerWatch::Add(const std::string& worker, const std::string& device) {
  launches_.push_back({worker, device, 1, {}, {}});
}

WorkerWatch::Verdict WorkerWatch::Judge(const LocalLauncher::Event& event) {
  Verdict verdict;
  if (event.gone_for_good) ++gone_;
  if (event.no_memory) {
    verdict.death = Coordinator::Death::kNoMemory;
    verdict.say = fmt::format("worker {}: {}", event.worker, event.how);
    if (event.gone_for_good) {
      no_memory_ = event.worker + ": " + event.how;
      verdict.say +=
          fmt::format("; {} is retired for this run, {} of {} workers are left",
                      DeviceOf(event.worker), launches_.size() - gone_, launches_.size());
      retired_.push_back(verdict.say);
    } else {
      verdict.say += "; a fresh process tries once more";
    }
  } else if (!event.refused || (event.how != refusal_ && !all_gone())) {
    // All workers refuse the same job in the same words, and the end says them once more.
    verdict.say = fmt::format("worker {}: {}", event.worker, event.how);
  }
  if (event.refused && refusal_.empty()) refusal_ = event.how;
  if (all_gone()) verdict.exhausted = no_memory_.empty() ? event.how : WantOfMemory();
  return verdict;
}

std::string WorkerWatch::refusal() const {
  return all_gone() && no_memory_.empty() ? refusal_ : "";
}

const std::string& WorkerWatch::DeviceOf(const std::string& worker) const {
  const auto found = std::find_if(launches_.begin(), launches_.end(),
                                  [&](const WorkerLaunch& launch) { return launch.id == worker; });
  return found == launches_.end() ? worker : found->device;
}

std::string WorkerWatch::WantOfMemory() const {
  std::string words =
      fmt::format("no device is left that has the memory for model {} in batches of {}; {}; ",
                  Printable(needs_.model), needs_.batch, no_memory_);
  if (needs_.gpu_memory) {
    words += fmt::format("raise execution.gpu_memory ({} bytes) or ", *needs_.gpu_memory);
  } else {
    words += "have others give memory back, or ";
  }
  // The batch decides the last bits.
  if (needs_.batch > 1)
    return words +
           fmt::format("use --execution.batch {}, with which all items run anew", needs_.batch / 2);
  return words + "use a smaller tile, with which all items run anew";
}

}  // namespace tilery
