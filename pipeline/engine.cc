#include "pipeline/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/error.h"
#include "pipeline/device.h"
#include "pipeline/unit_run.h"
#include "pipeline/work_check.h"

namespace tilery {
namespace {

// One slot of a batch: a model run of a unit.
struct Slot {
  std::shared_ptr<UnitRun> unit;
  int64_t run = 0;
};
using Batch = std::vector<Slot>;

class LanesEngine final : public Engine {
 public:
  LanesEngine(const EngineOptions& options, std::unique_ptr<Device> device, Profile& profile)
      : options_(options), device_(std::move(device)), profile_(profile) {
    std::vector<std::unique_ptr<Lane>> lanes;
    for (int i = 0; i < options_.lanes; ++i) lanes.push_back(device_->MakeLane());
    for (auto& lane : lanes) {
      threads_.emplace_back([this, lane = std::shared_ptr<Lane>(std::move(lane))] { Work(*lane); });
    }
  }

  ~LanesEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    // Lanes finish what they took, so all that is incomplete still stands in a queue.
    for (auto* queue : {&queue_, &without_model_}) {
      for (const Waiting& waiting : *queue) {
        waiting.unit->Enter();
        waiting.unit->Fail(std::make_exception_ptr(
            Error(Fault::kTransient, waiting.unit->work().item_name + ": the engine was stopped")));
        waiting.unit->Leave();
      }
    }
  }

  void Submit(InferWork work, std::function<void(InferResult)> done) override {
    std::exception_ptr refused;
    try {
      CheckWork(work, options_);
    } catch (...) {
      refused = std::current_exception();
    }
    auto unit = std::make_shared<UnitRun>(std::move(work), std::move(done), parked_);
    if (refused) unit->Fail(refused);
    const std::lock_guard lock(mutex_);
    if (refused || unit->runs() == 0) {
      without_model_.push_back({std::move(unit)});
    } else {
      queued_ += unit->runs();
      queue_.push_back({std::move(unit)});
    }
    changed_.notify_all();
  }

  void MoreComing(bool more) override {
    const std::lock_guard lock(mutex_);
    more_coming_ = more;
    changed_.notify_all();
  }

  int64_t queued_tiles() const override {
    const std::lock_guard lock(mutex_);
    return queued_;
  }
  int64_t finished_batches() const override { return finished_batches_; }

 private:
  struct Waiting {
    std::shared_ptr<UnitRun> unit;
    int64_t taken = 0;  // runs that lanes have or had
  };

  void Work(Lane& lane) {
    for (;;) {
      const Batch batch = Take();
      if (batch.empty()) return;
      Batch open;
      for (const Slot& slot : batch) {
        if (slot.unit->Open(*device_)) open.push_back(slot);
      }
      if (!open.empty() && open.front().unit->runs() == 0) {
        open.front().unit->RunWithoutModel(profile_);
      } else if (!open.empty()) {
        Run(lane, open);
      }
      {
        const std::lock_guard lock(mutex_);
        DropFailed();
      }
      for (size_t i = 0; i < batch.size(); ++i) {
        if (i == 0 || batch[i].unit != batch[i - 1].unit) batch[i].unit->Leave();
      }
      changed_.notify_all();
    }
  }

  // The next runs in order of submission; empty when the engine stops.
  Batch Take() {
    std::unique_lock lock(mutex_);
    const int64_t size = options_.numerics.batch;
    changed_.wait(lock, [&] {
      if (stopping_) return true;
      if (!without_model_.empty()) return true;
      const bool room = parked_ <= options_.lanes * size;
      return room && (queued_ >= size || (!more_coming_ && queued_ > 0));
    });
    Batch batch;
    if (stopping_) return batch;
    if (!without_model_.empty()) {
      batch.push_back({without_model_.front().unit, 0});
      batch.front().unit->Enter();
      without_model_.pop_front();
      return batch;
    }
    while (!queue_.empty() && static_cast<int64_t>(batch.size()) < size) {
      Waiting& front = queue_.front();
      front.unit->Enter();
      while (front.taken < front.unit->runs() && static_cast<int64_t>(batch.size()) < size) {
        batch.push_back({front.unit, front.taken++});
        --queued_;
      }
      if (front.taken == front.unit->runs()) queue_.pop_front();
    }
    return batch;
  }

  // Runs of failed units that no lane has taken are never run. Called with mutex_ held.
  void DropFailed() {
    std::erase_if(queue_, [&](const Waiting& waiting) {
      if (!waiting.unit->failed()) return false;
      queued_ -= waiting.unit->runs() - waiting.taken;
      return true;
    });
  }

  // Runs a batch that holds one item's runs, or first all and then, if that went wrong, item by
  // item.
  void Run(Lane& lane, const Batch& batch) {
    const bool mixed = std::any_of(batch.begin(), batch.end(), [&](const Slot& slot) {
      return slot.unit->work().item != batch.front().unit->work().item;
    });
    std::shared_ptr<const BatchOutput> output;
    try {
      output = Forward(lane, batch);
    } catch (...) {
      if (mixed) return RunByItem(lane, batch);
      for (const Slot& slot : batch)
        slot.unit->Fail(Named(*slot.unit, slot.run, std::current_exception()));
      return;
    }
    const auto finite = [&](size_t i) {
      const Profile::Scope scope(profile_, Stage::kBlend, batch[i].unit->work().unit);
      return output->Finite(static_cast<int64_t>(i));
    };
    if (mixed) {
      for (size_t i = 0; i < batch.size(); ++i) {
        if (finite(i)) continue;
        output.reset();
        return RunByItem(lane, batch);
      }
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      UnitRun& unit = *batch[i].unit;
      // One item: what is looked at is blended at once, while it lies in the cache.
      if (!mixed && !finite(i)) {
        unit.Fail(std::make_exception_ptr(
            Error(Fault::kModel, unit.work().item_name + ": what model " +
                                     Printable(options_.model.native()) + " makes of the tile " +
                                     ToString(unit.InputBox(batch[i].run)) + " is not finite")));
      } else {
        unit.Accept(batch[i].run, output, static_cast<int64_t>(i), profile_);
      }
    }
  }

  void RunByItem(Lane& lane, const Batch& batch) {
    for (const Slot& slot : batch) slot.unit->AddRepeated(1);
    for (size_t i = 0; i < batch.size(); ++i) {
      const int64_t item = batch[i].unit->work().item;
      const auto of_item = [&](const Slot& slot) { return slot.unit->work().item == item; };
      if (std::any_of(batch.begin(), batch.begin() + i, of_item)) continue;
      Batch alone;
      std::copy_if(batch.begin(), batch.end(), std::back_inserter(alone), of_item);
      Run(lane, alone);
    }
  }

  std::shared_ptr<const BatchOutput> Forward(Lane& lane, const Batch& batch) {
    const auto used = static_cast<int64_t>(batch.size());
    {
      const Profile::Scope scope(profile_, Stage::kH2d, batch.front().unit->work().unit,
                                 used * options_.channels_in * Product(options_.tile) * 4);
      for (int64_t i = 0; i < used; ++i) {
        const UnitRun::Position at = batch[i].unit->At(batch[i].run);
        lane.Gather(i, batch[i].unit->memory(), at.tile, at.pass);
      }
      // A copy of a real tile: filling that the model has never a reason to refuse.
      for (int64_t i = used; i < options_.numerics.batch; ++i) lane.Repeat(used - 1, i);
    }
    const Profile::Scope scope(profile_, Stage::kCompute, batch.front().unit->work().unit);
    auto output = lane.Forward();
    ++finished_batches_;
    return output;
  }

  // The same fault, with the item and the tile in front.
  static std::exception_ptr Named(const UnitRun& unit, int64_t run,
                                  const std::exception_ptr& error) {
    try {
      std::rethrow_exception(error);
    } catch (const Error& e) {
      return std::make_exception_ptr(Error(
          e.fault(),
          unit.work().item_name + ", tile " + ToString(unit.InputBox(run)) + ": " + e.what()));
    } catch (...) {
      return error;
    }
  }

  const EngineOptions options_;
  const std::unique_ptr<Device> device_;
  Profile& profile_;
  std::atomic<int64_t> finished_batches_{0};
  std::atomic<int64_t> parked_{0};  // outputs that wait for their turn

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<Waiting> queue_;  // units with runs that no lane has taken, in order of submission
  std::deque<Waiting> without_model_;  // units that need no model, or were refused
  int64_t queued_ = 0;                 // runs in queue_
  bool more_coming_ = false;
  bool stopping_ = false;

  std::vector<std::thread> threads_;  // last: they use all of the above
};

}  // namespace

std::unique_ptr<Engine> Engine::Create(const EngineOptions& options, Profile& profile) {
  CheckOptions(options);
  if (options.device != "cpu") {
    throw Error(Fault::kUsage, "device \"" + options.device +
                                   "\" is not supported yet; execution.devices may be: cpu");
  }
  return std::make_unique<LanesEngine>(options, MakeCpuDevice(options), profile);
}

}  // namespace tilery
