// A queue over a made-up plan, and two workers.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "scheduler/queue.h"
#include "tests/scheduler/coord_support.h"

namespace tilery {

inline constexpr Room kAll{.infer = true, .stage = true, .assemble = true};

class QueueFixture : public testing::Test {
 protected:
  UnitQueue& Make(const std::vector<ItemSpec>& items, QueueOptions options = {}) {
    queue_.emplace(MakeTestPlan(items, "/data").items, options);
    a_ = queue_->AddWorker();
    b_ = queue_->AddWorker();
    return *queue_;
  }

  std::optional<UnitQueue> queue_;
  UnitQueue::WorkerIndex a_ = 0, b_ = 0;
};

}  // namespace tilery
