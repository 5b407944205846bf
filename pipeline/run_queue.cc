#include "pipeline/run_queue.h"

#include <utility>

namespace tilery {

void RunQueue::Push(std::shared_ptr<UnitRun> unit, bool refused) {
  if (refused || unit->runs() == 0) {
    without_model_.push_back(std::move(unit));
  } else {
    runs_ += unit->runs();
    queue_.push_back({std::move(unit)});
  }
}

Batch RunQueue::Take(int64_t most) {
  Batch batch;
  if (!without_model_.empty()) {
    without_model_.front()->Enter();
    batch.push_back({std::move(without_model_.front()), 0});
    without_model_.pop_front();
    return batch;
  }
  while (!queue_.empty() && static_cast<int64_t>(batch.size()) < most) {
    Waiting& front = queue_.front();
    front.unit->Enter();
    while (front.taken < front.unit->runs() && static_cast<int64_t>(batch.size()) < most) {
      batch.push_back({front.unit, front.taken++});
      --runs_;
    }
    if (front.taken == front.unit->runs()) queue_.pop_front();
  }
  return batch;
}

std::vector<std::shared_ptr<UnitRun>> RunQueue::DropFailed() {
  std::vector<std::shared_ptr<UnitRun>> failed;
  std::erase_if(queue_, [&](const Waiting& waiting) {
    if (!waiting.unit->failed()) return false;
    runs_ -= waiting.unit->runs() - waiting.taken;
    failed.push_back(waiting.unit);
    return true;
  });
  return failed;
}

std::vector<std::shared_ptr<UnitRun>> RunQueue::TakeAll() {
  std::vector<std::shared_ptr<UnitRun>> all;
  for (Waiting& waiting : queue_) all.push_back(std::move(waiting.unit));
  for (std::shared_ptr<UnitRun>& unit : without_model_) all.push_back(std::move(unit));
  queue_.clear();
  without_model_.clear();
  runs_ = 0;
  return all;
}

}  // namespace tilery
