#include "worker/brick_set.h"

#include <filesystem>

namespace tilery {
namespace {

std::vector<Brick> ListOf(const UnitEnv& env, const UnitWork& work) {
  if (work.bricks_file.empty()) return work.bricks;
  try {
    return BricksFromText(
        ReadSmallFile(std::filesystem::path(env.context->work) / work.bricks_file));
  } catch (const Error& e) {
    throw Error(Fault::kTransient, e.what());
  }
}

}  // namespace

BrickSet::BrickSet(const UnitEnv& env, const UnitTask& task)
    : scratch_(env.context->scratch), bricks_(ListOf(env, task.work())) {
  const int64_t units = task.geometry->units();
  bool complete = static_cast<int64_t>(bricks_.size()) == units;
  for (size_t i = 0; complete && i < bricks_.size(); ++i) {
    complete = bricks_[i].block == static_cast<int64_t>(i);
  }
  if (!complete) {
    throw Error(Fault::kInternal, "unit " + std::to_string(task.lease.unit) + " got " +
                                      std::to_string(bricks_.size()) +
                                      " bricks, or not in order, of " + std::to_string(units));
  }
  // Units are numbered infer 0..n-1, assemble (scheduler/plan.h).
  first_unit_ = task.lease.unit - units;
}

std::shared_ptr<const BrickReader> BrickSet::Fetch(int64_t block) {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(block); found != open_.end()) {
    used_.splice(used_.begin(), used_, found->second.place);
    return found->second.reader;
  }
  if (open_.size() >= kOpenBricks) {
    open_.erase(used_.back());
    used_.pop_back();
  }
  const Brick& brick = bricks_[static_cast<size_t>(block)];
  auto reader =
      std::make_shared<const BrickReader>(std::filesystem::path(scratch_) / brick.file, brick.key);
  used_.push_front(block);
  return open_.emplace(block, Open{std::move(reader), used_.begin()}).first->second.reader;
}

void BrickSet::ReadArray(int64_t block, bool interior, const Box& region, const View& out) {
  const Brick& brick = bricks_[static_cast<size_t>(block)];
  try {
    const std::shared_ptr<const BrickReader> reader = Fetch(block);
    const std::vector<BrickArray>& arrays = reader->arrays();
    for (size_t i = 0; i < arrays.size(); ++i) {
      const BrickArray& array = arrays[i];
      if ((array.name == "interior") == interior && array.dtype == out.dtype &&
          array.channels == out.channels && array.box.contains(region)) {
        reader->Read(i, region, out);
        return;
      }
    }
  } catch (const Error& e) {
    throw LostFile(brick.key, first_unit_ + block, e.what());
  }
  throw LostFile(brick.key, first_unit_ + block,
                 "brick " + Printable(brick.file) + " has no " +
                     (interior ? std::string("interior") : std::string("seam")) + " with " +
                     ToString(region));
}

void BrickSet::ReadInterior(int64_t block, const Box& region, const View& out) {
  ReadArray(block, true, region, out);
}

void BrickSet::ReadSeam(int64_t block, const Box& region, const View& out) {
  ReadArray(block, false, region, out);
}

}  // namespace tilery
