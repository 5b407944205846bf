#include "worker/brick_set.h"

#include <algorithm>
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

BrickSet::BrickSet(const UnitEnv& env, UnitTask& task)
    : env_(env), task_(task), bricks_(static_cast<size_t>(task.geometry->units())) {
  const int64_t units = task.geometry->units();
  Place(ListOf(env, task.work()));
  const auto there = units - std::count_if(bricks_.begin(), bricks_.end(),
                                           [](const Brick& brick) { return brick.key.empty(); });
  if (there + task.work().bricks_missing != units) {
    throw Error(Fault::kInternal, "unit " + std::to_string(task.lease.unit) + " got " +
                                      std::to_string(there) + " bricks of " +
                                      std::to_string(units) + ", and " +
                                      std::to_string(task.work().bricks_missing) + " are to come");
  }
  // Units are numbered infer 0..n-1, assemble (scheduler/plan.h).
  first_unit_ = task.lease.unit - units;
}

void BrickSet::Place(const std::vector<Brick>& bricks) {
  for (const Brick& brick : bricks) {
    if (brick.block < 0 || static_cast<size_t>(brick.block) >= bricks_.size()) {
      throw Error(Fault::kInternal, "unit " + std::to_string(task_.lease.unit) +
                                        " got a brick of block " + std::to_string(brick.block) +
                                        " of " + std::to_string(bricks_.size()));
    }
    if (!There(brick.block)) bricks_[static_cast<size_t>(brick.block)] = brick;
  }
}

void BrickSet::Await(const std::vector<SeamCell>& cells) {
  for (const SeamCell& cell : cells) {
    for (const int64_t block : cell.units) {
      while (!There(block)) {
        CheckWanted(env_, task_);
        if (env_.draining || given_up_) throw Abandoned();
        Place(task_.arrivals.Take());
      }
    }
  }
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
  auto reader = std::make_shared<const BrickReader>(
      std::filesystem::path(env_.context->scratch) / brick.file, brick.key);
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
