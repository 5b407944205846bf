// What every kind of unit works with.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/thread_pool.h"
#include "pipeline/codec/region.h"
#include "pipeline/host_buffers.h"
#include "pipeline/profile.h"
#include "scheduler/wire.h"
#include "worker/outcome.h"
#include "worker/sparse_items.h"

namespace tilery {

// A unit this worker holds.
struct Lease {
  int64_t lease = 0, unit = 0, attempt = 0;
  UnitWork work;
};

// Shared by all units of a worker. Outlives them.
struct UnitEnv {
  std::shared_ptr<const WorkerContext> context;
  Profile* profile = nullptr;
  HostBuffers* inputs = nullptr;   // the device copies from these
  HostBuffers* buffers = nullptr;  // all else
  int64_t epoch = 0;
  mutable SparseItems sparse_items;
  RegionDevices codec;                    // what codes grids, beside `encoders`
  ThreadPool* encoders = nullptr;         // of all outputs; null: the writing thread encodes
  std::function<bool()> lease_is_young;   // thread-safe: the right to rename
  std::atomic<bool> stopping{false};      // the worker ends: abandon everything
  std::atomic<bool> draining{false};      // no more leases: abandon what waits for other units
  mutable std::atomic<int64_t> bands{0};  // stage and assemble units have finished: signs of life

  const ItemParams& params(const UnitWork& work) const;  // Error(kInternal) if out of range
  std::shared_ptr<const Transfer> transfer(const UnitWork& work) const;
};

// Bricks that come while their assemble unit is held. Thread-safe.
class BrickArrivals {
 public:
  void Add(std::vector<Brick> bricks);
  // Those since the last call; waits for some, a moment at most.
  std::vector<Brick> Take();

 private:
  std::mutex mutex_;  // guards all below
  std::condition_variable came_;
  std::vector<Brick> bricks_;
};

// One attempt. `stage` follows what is being done, for messages.
struct UnitTask {
  Lease lease;
  std::string attempt;  // scheduler/attempt_name.h: part of all temporary names
  std::shared_ptr<const ItemGeometry> geometry;  // of a grid: once its file was looked through
  std::shared_ptr<const SparseItem> sparse;      // of a grid, likewise
  int64_t tiles = 0;                             // model runs
  std::atomic<bool> dropped{false};
  std::atomic<Stage> stage{Stage::kRead};
  BrickArrivals arrivals;  // assemble

  const UnitWork& work() const { return lease.work; }
};

// Throws Abandoned if nobody waits for the unit any more. Called often, between pieces of work.
void CheckWanted(const UnitEnv& env, const UnitTask& task);

// Times a piece of work and notes it as the task's stage.
class StageScope {
 public:
  StageScope(const UnitEnv& env, UnitTask& task, Stage stage, int64_t bytes = 0)
      : scope_(*env.profile, stage, task.lease.unit, bytes) {
    task.stage = stage;
  }
  void AddBytes(int64_t bytes) { scope_.AddBytes(bytes); }

 private:
  Profile::Scope scope_;
};

}  // namespace tilery
