#include "pipeline/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/error.h"
#include "pipeline/cuda/cuda_lane.h"
#include "pipeline/cuda/cuda_unit.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/profile.h"

namespace tilery::cuda {
namespace {

// Slots of small units may always have so much: a few batches of them are many units.
constexpr int64_t kSmallSlots = int64_t{128} << 20;

class Gpu final : public CudaDevice {
 public:
  Gpu(CudaDeviceOptions options, Profile& profile)
      : options_(std::move(options)),
        profile_(profile),
        memory_(std::make_shared<RegisteredMemory>(options_.device, count_)),
        pinned_(memory_) {
    context_.profile = &profile_;
    context_.clock = &clock_;
    context_.device = options_.device;
    context_.channels_out = options_.engine.channels_out;
    context_.count = count_.get();
    context_.pinned = &pinned_;
    context_.copy_in = copy_in_;
    context_.finish = finish_;
    context_.copy_out = copy_out_;
    context_.blending = &blending_;
    context_.load = [this](std::shared_ptr<UnitState> unit) {
      {
        const std::lock_guard lock(mutex_);
        loading_.push_back(std::move(unit));
      }
      changed_.notify_all();
    };
    context_.hand_over = [this](std::shared_ptr<UnitState> unit,
                                std::function<void(InferResult)> ready) {
      {
        const std::lock_guard lock(mutex_);
        finishing_.push_back({std::move(unit), std::move(ready)});
      }
      changed_.notify_all();
    };
    context_.take_back = [this](const UnitState& unit) {
      const std::lock_guard lock(mutex_);
      return std::erase_if(loading_, [&](const auto& other) { return other.get() == &unit; }) > 0;
    };
    loader_ = std::thread([this] { Load(); });
    finisher_ = std::thread([this] { Finish(); });
  }

  ~Gpu() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    loader_.join();
    finisher_.join();
    for (const cudaStream_t stream : {cudaStream_t(copy_in_), cudaStream_t(gather_),
                                      cudaStream_t(finish_), cudaStream_t(copy_out_)}) {
      static_cast<void>(cudaStreamSynchronize(stream));
    }
  }

  std::unique_ptr<Lane> MakeLane() override {
    LaneContext context;
    context.profile = &profile_;
    context.clock = &clock_;
    context.options = options_.engine;
    context.device = options_.device;
    context.gather = gather_;
    context.finish = finish_;
    context.gathering = &gathering_;
    context.blending = &blending_;
    context.count = count_.get();
    context.pinned = &pinned_;
    context.lost = options_.lost;
    context.progress = progress_;
    context.gathered = [this] {
      { const std::lock_guard lock(mutex_); }  // not between the loader's look and its sleep
      changed_.notify_all();
    };
    return std::make_unique<CudaLane>(std::move(context));
  }

  std::unique_ptr<UnitMemory> Open(const InferWork& work) override {
    try {
      return std::make_unique<CudaUnit>(
          std::make_shared<UnitState>(work, Prepare(*work.transfer), context_), context_);
    } catch (...) {
      Look(std::current_exception());  // it may be the first to notice
      throw;
    }
  }

  void OnProgress(std::function<void()> progress) override { progress_ = std::move(progress); }
  bool opens_early() const override { return true; }
  int depth() const override { return 1; }
  bool times_itself() const override { return true; }
  std::shared_ptr<HostMemory> host_memory() override { return memory_; }
  DeviceUse use() const override {
    const GpuMemory torch = MemoryOf(options_.device);
    return {count_->device_bytes + torch.peak_reserved,
            count_->device + count_->pinned + torch.segments};
  }
  Allocations allocations() const override {
    return {count_->device, count_->pinned, count_->device_bytes};
  }

 private:
  struct Finishing {
    std::shared_ptr<UnitState> unit;
    std::function<void(InferResult)> ready;
  };

  // Units get slots in the order of beginning, so the one that everybody waits for is never kept
  // from it by later ones.
  void Load() {
    static_cast<void>(cudaSetDevice(options_.device));
    for (;;) {
      std::shared_ptr<UnitState> unit;
      std::unique_ptr<UnitSlot> slot;
      int64_t capacity = 0;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] {
          return stopping_ || (!loading_.empty() && SlotFor(loading_.front()->bytes()));
        });
        if (stopping_) {
          for (const auto& left : loading_) {
            left->FailLoading(
                std::make_exception_ptr(Error(Fault::kTransient, "the engine was stopped")));
          }
          return;
        }
        unit = std::move(loading_.front());
        loading_.pop_front();
        in_use_.push_back(unit);
        slot = TakeSlot(unit->bytes());
        capacity = GrownTo(unit->bytes(), slot->memory.capacity());
        slot_bytes_ += capacity - slot->memory.capacity();
      }
      try {
        unit->Load(std::move(slot), capacity);
      } catch (...) {
        const std::exception_ptr error = std::current_exception();
        static_cast<void>(cudaStreamSynchronize(copy_in_));  // what was asked for is done with
        std::unique_ptr<UnitSlot> back = unit->GiveUp();
        {
          const std::lock_guard lock(mutex_);
          slot_bytes_ -= capacity - back->memory.capacity();  // it may not have come to grow
        }
        Return(unit, std::move(back));
        unit->FailLoading(error);
        Look(error);
      }
      unit.reset();
      if (progress_) progress_();
    }
  }

  void Finish() {
    static_cast<void>(cudaSetDevice(options_.device));
    for (;;) {
      Finishing next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopping_ || !finishing_.empty(); });
        if (finishing_.empty()) return;
        next = std::move(finishing_.front());
        finishing_.pop_front();
        collecting_ = true;
      }
      if (next.ready) {
        InferResult result;
        try {
          result = next.unit->Collect();
        } catch (...) {
          result = std::current_exception();
          Look(std::current_exception());
        }
        Return(next.unit, next.unit->GiveUp());
        next.ready(std::move(result));
      } else {
        Abandon(next.unit);
      }
      next = {};  // what it holds goes without the lock
      {
        const std::lock_guard lock(mutex_);
        collecting_ = false;
      }
      changed_.notify_all();
    }
  }

  // A unit that has failed, maybe before it was loaded.
  void Abandon(const std::shared_ptr<UnitState>& unit) {
    {
      const std::lock_guard lock(mutex_);
      if (std::erase(loading_, unit) > 0) return;
    }
    try {
      unit->WaitLoaded();
    } catch (...) {
      return;  // the loader has given its slot back
    }
    for (const cudaStream_t stream :
         {cudaStream_t(copy_in_), cudaStream_t(gather_), cudaStream_t(finish_)}) {
      static_cast<void>(cudaStreamSynchronize(stream));
    }
    Return(unit, unit->GiveUp());
  }

  // Whether a unit may be loaded: into a free slot that is large enough, or into one that grows, or
  // a new one, as long as all together have no more than `slots` of the largest unit seen so far
  // would. Beyond that only if what is loaded does not fill the lanes' next batches and nothing is
  // about to give a slot back. mutex_ is held.
  bool SlotFor(int64_t bytes) {
    largest_ = std::max(largest_, RoundedUp(bytes));
    const auto slot = BestSlot(bytes);
    const int64_t has = slot == free_slots_.end() ? 0 : (*slot)->memory.capacity();
    if (has >= bytes && slot != free_slots_.end()) return true;
    if (slot_bytes_ + RoundedUp(bytes) - has <= Most()) return true;
    if (!finishing_.empty() || collecting_) return false;
    int64_t runs = 0;
    for (const auto& unit : in_use_) runs += unit->ungathered();
    return runs < options_.engine.numerics.batch * options_.engine.lanes;
  }

  static int64_t RoundedUp(int64_t bytes) {  // as DeviceBuffer does
    return static_cast<int64_t>(HostBuffers::Rounded(static_cast<size_t>(bytes)));
  }
  int64_t Most() const { return std::max(options_.slots * largest_, kSmallSlots); }

  // Capacity of a slot of `has` bytes once it holds a unit of `bytes`. One that grows does so at
  // once to what the largest unit needs, unless this one is far smaller: units of an item differ by
  // less than that, and then no slot grows twice. mutex_ is held.
  int64_t GrownTo(int64_t bytes, int64_t has) const {
    if (has >= bytes) return has;
    const bool alike = RoundedUp(bytes) >= largest_ / 2 && slot_bytes_ + largest_ - has <= Most();
    return alike ? largest_ : RoundedUp(bytes);
  }

  // The smallest free slot that is large enough, else the largest; end() if none is free.
  std::vector<std::unique_ptr<UnitSlot>>::iterator BestSlot(int64_t bytes) {
    auto best = free_slots_.end();
    for (auto it = free_slots_.begin(); it != free_slots_.end(); ++it) {
      if (best == free_slots_.end()) {
        best = it;
        continue;
      }
      const int64_t a = (*it)->memory.capacity(), b = (*best)->memory.capacity();
      const bool fits_a = a >= bytes, fits_b = b >= bytes;
      if (fits_a != fits_b ? fits_a : (fits_a ? a < b : a > b)) best = it;
    }
    return best;
  }

  // The best free slot, or a new one. mutex_ is held.
  std::unique_ptr<UnitSlot> TakeSlot(int64_t bytes) {
    const auto best = BestSlot(bytes);
    if (best == free_slots_.end()) return std::make_unique<UnitSlot>(*count_);
    std::unique_ptr<UnitSlot> slot = std::move(*best);
    free_slots_.erase(best);
    return slot;
  }

  void Return(const std::shared_ptr<UnitState>& unit, std::unique_ptr<UnitSlot> slot) {
    {
      const std::lock_guard lock(mutex_);
      std::erase(in_use_, unit);
      if (slot) free_slots_.push_back(std::move(slot));
    }
    changed_.notify_all();
  }

  void Look(const std::exception_ptr& error) {
    if (!options_.lost) return;
    try {
      std::rethrow_exception(error);
    } catch (const OutOfDeviceMemory& e) {
      options_.lost(Loss::kMemory, e.what());
    } catch (const std::exception& e) {
      if (IsLost(e.what())) options_.lost(Loss::kDevice, e.what());
    }
  }

  std::shared_ptr<const TransferTables> Prepare(const Transfer& transfer) {
    constexpr size_t kRemembered = 8;
    const std::lock_guard lock(tables_mutex_);
    for (const auto& tables : tables_) {
      if (tables->transfer == transfer) return tables;
    }
    Check(cudaSetDevice(options_.device), "cudaSetDevice");
    if (tables_.size() == kRemembered) tables_.erase(tables_.begin());
    tables_.push_back(std::make_shared<const TransferTables>(transfer, *count_, tables_stream_));
    return tables_.back();
  }

  const CudaDeviceOptions options_;
  Profile& profile_;
  std::function<void()> progress_;  // fixed before anything is loaded
  DeviceClock clock_;
  const std::shared_ptr<AllocationCount> count_ = std::make_shared<AllocationCount>();
  const std::shared_ptr<RegisteredMemory> memory_;
  HostBuffers pinned_;
  OwnStream copy_in_, gather_, finish_, copy_out_, tables_stream_;
  std::mutex gathering_, blending_;
  UnitContext context_;

  std::mutex tables_mutex_;
  std::vector<std::shared_ptr<const TransferTables>> tables_;  // guarded by tables_mutex_

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::vector<std::unique_ptr<UnitSlot>> free_slots_;
  int64_t slot_bytes_ = 0;  // of all slots
  int64_t largest_ = 0;     // bytes of a slot for the largest unit so far
  std::deque<std::shared_ptr<UnitState>> loading_;
  std::vector<std::shared_ptr<UnitState>> in_use_;  // units that have a slot
  bool collecting_ = false;                         // the finisher is at one
  std::deque<Finishing> finishing_;
  bool stopping_ = false;
  std::thread loader_, finisher_;
};

}  // namespace

std::unique_ptr<CudaDevice> MakeCudaDevice(CudaDeviceOptions options, Profile& profile) {
  Check(cudaSetDevice(options.device), "cudaSetDevice");  // streams and memory are of this device
  return std::make_unique<Gpu>(std::move(options), profile);
}

}  // namespace tilery::cuda
