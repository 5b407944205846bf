// An engine without Torch: the model is nearest-neighbour upscaling (or the identity at scale 1),
// computed in f32 by the plainest code there is, with the batching rules of the real one: a batch
// of the context's size is taken when so many tiles are there, or when no more are coming.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "pipeline/engine.h"

namespace tilery {

// What the unit's tiles give, blended in tile order. Transfer: one kModel pass over all channels.
InferOutput RunNearest(const InferWork& work);

class FakeEngine : public Engine {
 public:
  struct Options {
    int64_t batch = 1;
    // Called before a unit's result is made, on the engine's thread; may throw or wait.
    std::function<void(const InferWork&)> before;
    std::shared_ptr<HostMemory> host_memory = nullptr;  // as of a device that has its own
  };
  explicit FakeEngine(Options options);
  ~FakeEngine() override;

  void Submit(InferWork work, std::function<void(InferResult)> done) override;
  void MoreComing(More more) override;
  int64_t queued_tiles() const override;
  std::shared_ptr<HostMemory> host_memory() override { return options_.host_memory; }
  int64_t finished_batches() const override { return batches_; }
  int64_t partial_batches() const { return partial_batches_; }
  More more() const;  // as it was told last

 private:
  struct Pending {
    InferWork work;
    std::function<void(InferResult)> done;
    int64_t left = 0;  // tiles not yet taken into a batch
  };
  void Loop();

  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Pending> pending_;
  More more_ = More::kNothing;
  bool ending_ = false;
  std::atomic<int64_t> batches_{0}, partial_batches_{0};
  std::thread thread_;
};

}  // namespace tilery
