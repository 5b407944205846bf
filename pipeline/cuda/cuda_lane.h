// A lane of a GPU: a model with its stream, and a ring of places that batches use one after the
// other. What a place holds may be read by the device until the place's events say otherwise.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "pipeline/cuda/cuda_unit.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/device_loss.h"
#include "pipeline/host_buffers.h"

namespace tilery::cuda {

struct LaneContext {
  Profile* profile = nullptr;
  DeviceClock* clock = nullptr;
  EngineOptions options;
  int device = 0;
  Stream gather = nullptr, finish = nullptr;
  std::mutex* gathering = nullptr;  // the order on `gather`
  std::mutex* blending = nullptr;   // the order on `finish`
  AllocationCount* count = nullptr;
  HostBuffers* pinned = nullptr;
  std::function<void()> gathered;  // some runs of a unit
  std::function<void()> progress;  // a batch is done; may be empty
  LossHandler lost;                // may be empty
};

// The options of a model that an engine's options ask for.
GpuModelOptions ModelOptionsOf(const EngineOptions& options, int device);

class CudaLane final : public Lane {
 public:
  explicit CudaLane(LaneContext context);
  ~CudaLane() override;

  void Gather(int64_t slot, UnitMemory& unit, int64_t run, int64_t count) override;
  void Repeat(int64_t from, int64_t to) override;
  std::shared_ptr<const BatchOutput> Forward() override;
  void FreeMemory() override;
  std::shared_ptr<const BatchOutput> Careful(UnitMemory& unit, int64_t run) override;

 private:
  struct Place;
  struct Ring;
  class Output;
  class Watch;
  void WaitForPlace();
  Place& Next();  // the place that is gathered into
  std::shared_ptr<const BatchOutput> RunInF32(UnitState& state, int64_t run);
  void LoadCarefulModel();
  // Asks for the forward pass of a gathered place and for the look at what it gives.
  void Run(GpuModel& model, Place& place, int64_t slots, int index);

  const LaneContext context_;
  // Outputs are looked at here: on `finish` the look at a batch that still runs would keep the
  // blending of the one before waiting, and with it the batch after that.
  OwnStream check_;
  std::unique_ptr<GpuModel> model_, careful_model_;
  std::shared_ptr<Ring> ring_, careful_ring_;
  std::unique_ptr<Watch> watch_;
  int next_ = 0;
  bool gathering_ = false;  // the place at next_ is being filled
  bool freed_ = false;      // memory ran out, and this is the second try
  int64_t unit_ = -1;       // the first of the batch, for the profile
};

// The UnitMemory that lanes get back from the engine.
class CudaUnit final : public UnitMemory {
 public:
  CudaUnit(std::shared_ptr<UnitState> state, const UnitContext& context)
      : state_(std::move(state)), context_(context) {}
  ~CudaUnit() override {
    if (begun_ && !handed_over_) context_.hand_over(state_, nullptr);
  }
  void Begin() override {
    context_.load(state_);
    begun_ = true;
  }
  UnitState& state() { return *state_; }
  bool Ready() const override { return state_->Ready(); }
  void StopReading() override { state_->StopReading(); }

  int64_t nonfinite_in() const override { return state_->nonfinite_in(); }
  void Blend(int64_t run, int64_t count, std::shared_ptr<const BatchOutput> output,
             int64_t slot) override {
    state_->Blend(run, count, static_cast<const CudaOutput*>(output.get()), slot);
  }
  void BlendWithoutModel() override { state_->BlendWithoutModel(); }
  void Finalize(std::function<void(InferResult)> ready) override {
    state_->Finish();
    handed_over_ = true;
    context_.hand_over(state_, std::move(ready));
  }

 private:
  const std::shared_ptr<UnitState> state_;
  const UnitContext& context_;
  bool begun_ = false, handed_over_ = false;
};

}  // namespace tilery::cuda
