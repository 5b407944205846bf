#include "scheduler/input_hasher.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "io/error.h"
#include "io/hash.h"

namespace tilery {

InputHasher::InputHasher(std::vector<Wanted> inputs) : inputs_(std::move(inputs)) {
  thread_ = std::thread([this] { Work(); });
}

InputHasher::~InputHasher() {
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

// nullopt if it is no longer the file that was meant, or if there is no time left.
std::optional<std::string> InputHasher::Hash(const Wanted& input) {
  constexpr int64_t kPiece = 1 << 20;
  const InputFile file(*input.path);
  if (file.stamp() != input.stamp) return std::nullopt;
  ContentHash hash;
  std::vector<std::byte> piece(static_cast<size_t>(std::min(kPiece, input.stamp.size)));
  for (int64_t offset = 0; offset < input.stamp.size; offset += kPiece) {
    if (stop_) return std::nullopt;
    const auto size = static_cast<size_t>(std::min(kPiece, input.stamp.size - offset));
    file.ReadAt(offset, {piece.data(), size});
    hash.Update({piece.data(), size});
  }
  // What changed meanwhile has no hash that belongs to its stamp.
  if (StampOf(*input.path) != input.stamp) return std::nullopt;
  return hash.Hex();
}

void InputHasher::Work() {
  // Of this thread only: the run itself comes first.
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 15);
  for (const Wanted& input : inputs_) {
    if (stop_) break;
    if (input.stamp.size > kLimit) continue;
    if (allowance_ != INT64_MAX && allowance_.fetch_sub(input.stamp.size) < input.stamp.size) break;
    try {
      std::optional<std::string> hash = Hash(input);
      if (!hash) continue;
      std::lock_guard lock(mutex_);
      hashed_.push_back({input.index, std::move(*hash)});
    } catch (const Error&) {
      // Unreadable inputs are the run's matter.
    }
  }
  std::lock_guard lock(mutex_);
  ended_ = true;
  end_.notify_all();
}

std::vector<InputHasher::Hashed> InputHasher::Take() {
  std::lock_guard lock(mutex_);
  return std::exchange(hashed_, {});
}

void InputHasher::Finish(int64_t bytes, std::chrono::milliseconds limit) {
  allowance_ = bytes;
  {
    std::unique_lock lock(mutex_);
    end_.wait_for(lock, limit, [this] { return ended_; });
  }
  stop_ = true;
  if (thread_.joinable()) thread_.join();
}

}  // namespace tilery
