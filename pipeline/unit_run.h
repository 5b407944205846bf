// One submitted unit on its way through the engine: which model runs it needs, and its outputs put
// into order.
//
// Model runs are numbered as in pipeline/run_order.h. Lanes may deliver them in any order: what
// comes early is parked until its turn. The runs of a unit are taken by lanes in ascending order,
// so the missing one is always in work somewhere, and parking is bounded by what lanes hold.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "pipeline/device.h"
#include "pipeline/engine.h"
#include "pipeline/run_order.h"

namespace tilery {

// Thread-safe. Life: any number of Enter ... Open, Accept or Fail ... Leave, by lanes, and before
// them Open alone, by whoever submits, where devices open early; `done` is called once, by the lane
// that completes the unit, or by the last one to leave after it failed.
class UnitRun : public std::enable_shared_from_this<UnitRun> {
 public:
  // `parked` counts outputs that wait, over all units of an engine.
  UnitRun(InferWork work, std::function<void(InferResult)> done, std::atomic<int64_t>& parked);

  const InferWork& work() const { return work_; }
  int64_t runs() const { return runs_; }
  Box InputBox(int64_t run) const;  // of its tile, for messages

  void Enter();
  // Device::Open(), on the first call. False if it has failed, also in here.
  bool Open(Device& device);
  UnitMemory& memory() const { return *memory_; }
  // Blends these outputs (of consecutive runs, in consecutive slots) and all parked ones whose turn
  // it is; after the last one finishes the unit. `profile`: null if the device times itself.
  void Accept(int64_t run, int64_t count, std::shared_ptr<const BatchOutput> output, int64_t slot,
              Profile* profile);
  void RunWithoutModel(Profile* profile);  // for units of which runs() is 0
  void AddRepeated(int64_t runs);
  void AddCareful(int64_t runs);
  void Fail(std::exception_ptr error);  // the first failure counts
  bool failed() const;
  void Leave();

 private:
  struct Parked {
    std::shared_ptr<const BatchOutput> output;
    int64_t slot, count;
  };
  void Finish(Profile* profile);
  void End(InferResult result);

  const InferWork work_;
  const std::function<void(InferResult)> done_;
  std::atomic<int64_t>& parked_count_;
  std::optional<RunOrder> order_;  // none: refused, has no runs
  int64_t runs_ = 0;

  std::mutex opening_;  // guards opened_ and the making of memory_
  bool opened_ = false;
  std::unique_ptr<UnitMemory> memory_;  // fixed once opened; blended into by who set blending_

  mutable std::mutex mutex_;  // guards all below
  int users_ = 0;             // lanes between Enter and Leave
  int64_t next_ = 0;          // the run whose turn it is
  std::map<int64_t, Parked> parked_;
  bool blending_ = false;
  bool ended_ = false;
  int64_t repeated_ = 0, careful_ = 0;
  std::exception_ptr error_;
};

}  // namespace tilery
