#include "worker/model_source.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <utility>

#include "io/error.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

// For the scheduler to gather the others and to answer; beyond that something is wrong with it.
constexpr auto kSeatLimit = std::chrono::seconds(15);

}  // namespace

void ModelSource::Get(WorkerContext& context) {
  Json how = {{"from", "file"}, {"bytes", context.model_bytes}};
  if (context.pass_model) {
    try {
      const auto broadcaster = Make();
      const BroadcastSeat seat = broadcaster ? Seat(*broadcaster) : BroadcastSeat();
      if (!seat.id.empty()) {
        const Clock::time_point began = Clock::now();
        passed_.emplace(context.runs(), context.runs_hash(), context.model_bytes, *broadcaster,
                        seat);
        context.model_at = passed_->at();
        if (seat.rank != 0) how["from"] = "broadcast";
        how["members"] = seat.size;
        how["broadcast_s"] = std::chrono::duration<double>(Clock::now() - began).count();
      }
    } catch (const std::exception& e) {
      // Whatever it is: what is lasting shows again where the file is read.
      how["not_passed_on"] = e.what();
      std::fprintf(stderr, "tilery-worker %s: the model is read from its file: %s\n",
                   worker_.c_str(), e.what());
    }
  }
  const std::lock_guard lock(mutex_);
  words_ = std::move(how);
}

// The scheduler is told in any case: it waits for it.
std::unique_ptr<Broadcaster> ModelSource::Make() {
  std::unique_ptr<Broadcaster> broadcaster;
  try {
    if (broadcaster_) broadcaster = broadcaster_();
  } catch (...) {
    send_({{"type", "model"}, {"can", false}, {"card", ""}});
    throw;
  }
  send_({{"type", "model"},
         {"can", broadcaster != nullptr},
         {"card", broadcaster ? broadcaster->card() : ""}});
  return broadcaster;
}

BroadcastSeat ModelSource::Seat(Broadcaster& broadcaster) {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kSeatLimit, [this] { return answer_ || hopeless_; });
    if (!answer_) return {};
    const Json answer = *std::exchange(answer_, std::nullopt);
    lock.unlock();
    if (!answer.value("root", false)) {
      return {answer.value("id", std::string()), answer.value("rank", 0), answer.value("size", 1)};
    }
    std::string id;
    try {
      id = broadcaster.NewId();
    } catch (const Error& e) {
      std::fprintf(stderr, "tilery-worker %s: %s\n", worker_.c_str(), e.what());
    }
    send_({{"type", "model_id"}, {"id", id}});
  }
}

void ModelSource::Loaded() {
  if (passed_) passed_->Release();
}

void ModelSource::Answer(const Json& message) {
  {
    const std::lock_guard lock(mutex_);
    answer_ = message;
  }
  changed_.notify_all();
}

void ModelSource::GiveUp() {
  {
    const std::lock_guard lock(mutex_);
    hopeless_ = true;
  }
  changed_.notify_all();
}

Json ModelSource::words() const {
  const std::lock_guard lock(mutex_);
  return words_;
}

}  // namespace tilery
