// The bricks of one item, opened when they are needed.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/brick.h"
#include "worker/unit_env.h"

namespace tilery {

// Thread-safe but for Await. At most kOpenBricks files are open at a time, and one for every thread
// that reads. Whatever is wrong with a brick is LostFile with the key and the number of the unit
// that makes it.
class BrickSet {
 public:
  static constexpr size_t kOpenBricks = 128;

  // Reads the list of bricks from `task`'s work, or from the file that it names.
  BrickSet(const UnitEnv& env, UnitTask& task);

  // Waits until the bricks of these cells' units are there, which must be before they are read.
  // Throws Abandoned if the unit is not wanted any more, the worker drains, or after GiveUp. By one
  // thread at a time, while none reads.
  void Await(const std::vector<SeamCell>& cells);
  void GiveUp() { given_up_ = true; }

  // `region` lies inside the unit's interior; `out` has the output's type and channels.
  void ReadInterior(int64_t block, const Box& region, const View& out);
  // `region` lies inside one seam cell of the unit; `out`: f32, the accumulators.
  void ReadSeam(int64_t block, const Box& region, const View& out);

 private:
  struct Open {
    std::shared_ptr<const BrickReader> reader;
    std::list<int64_t>::iterator place;  // in used_
  };
  std::shared_ptr<const BrickReader> Fetch(int64_t block);
  void ReadArray(int64_t block, bool interior, const Box& region, const View& out);

  void Place(const std::vector<Brick>& bricks);
  bool There(int64_t block) const { return !bricks_[static_cast<size_t>(block)].key.empty(); }

  const UnitEnv& env_;
  UnitTask& task_;
  std::vector<Brick> bricks_;  // [block]; without a key: not there yet
  std::atomic<bool> given_up_{false};
  int64_t first_unit_ = 0;  // of block 0
  std::mutex mutex_;        // guards the next two
  std::map<int64_t, Open> open_;
  std::list<int64_t> used_;  // the latest in front
};

}  // namespace tilery
