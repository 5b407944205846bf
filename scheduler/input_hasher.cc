#include "scheduler/input_hasher.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "io/error.h"

namespace tilery {

InputHasher::InputHasher(std::vector<Wanted> inputs) : inputs_(std::move(inputs)) {
  thread_ = std::thread([this] { Work(); });
}

InputHasher::~InputHasher() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

void InputHasher::Work() {
  // Of this thread only: the run itself comes first.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 15);
  for (const Wanted& input : inputs_) {
    if (stop_) return;
    if (input.stamp.size > kLimit) continue;
    if (allowance_ != INT64_MAX && allowance_.fetch_sub(input.stamp.size) < input.stamp.size)
      return;
    try {
      std::string hash = HashFile(*input.path);
      // What changed meanwhile has no hash that belongs to its stamp.
      if (StampOf(*input.path) != input.stamp) continue;
      std::lock_guard lock(mutex_);
      hashed_.push_back({input.index, std::move(hash)});
    } catch (const Error&) {
      // Unreadable inputs are the run's matter.
    }
  }
}

std::vector<InputHasher::Hashed> InputHasher::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(hashed_, {});
}

void InputHasher::Finish(int64_t bytes) {
  allowance_ = bytes;
  if (thread_.joinable()) thread_.join();
}

}  // namespace tilery
