#include "worker/unit_env.h"

#include <chrono>
#include <utility>

namespace tilery {
namespace {

constexpr auto kMoment = std::chrono::milliseconds(20);  // after which it is asked who still wants

}  // namespace

void BrickArrivals::Add(std::vector<Brick> bricks) {
  {
    const std::lock_guard lock(mutex_);
    for (Brick& brick : bricks) bricks_.push_back(std::move(brick));
  }
  came_.notify_one();
}

std::vector<Brick> BrickArrivals::Take() {
  std::unique_lock lock(mutex_);
  came_.wait_for(lock, kMoment, [this] { return !bricks_.empty(); });
  return std::exchange(bricks_, {});
}

const ItemParams& UnitEnv::params(const UnitWork& work) const {
  if (work.params < 0 || static_cast<size_t>(work.params) >= context->params.size()) {
    throw Error(Fault::kInternal, "the unit names parameters " + std::to_string(work.params) +
                                      " of " + std::to_string(context->params.size()));
  }
  return context->params[static_cast<size_t>(work.params)];
}

std::shared_ptr<const Transfer> UnitEnv::transfer(const UnitWork& work) const {
  return {context, &params(work).transfer};
}

void CheckWanted(const UnitEnv& env, const UnitTask& task) {
  if (task.dropped || env.stopping) throw Abandoned();
}

}  // namespace tilery
