#include "pipeline/engine.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <future>
#include <iterator>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "io/error.h"
#include "pipeline/batch.h"
#include "pipeline/device.h"
#include "pipeline/work_check.h"

namespace tilery {
namespace {

class LanesEngine final : public Engine {
 public:
  LanesEngine(const EngineOptions& options, std::unique_ptr<Device> device, Profile& profile)
      : options_(options), device_(std::move(device)), profile_(profile) {
    // Each lane is made by its own thread: what a device prepares may belong to that.
    std::vector<std::future<void>> made;
    for (int i = 0; i < options_.lanes; ++i) {
      auto promise = std::make_shared<std::promise<void>>();
      made.push_back(promise->get_future());
      threads_.emplace_back([this, promise] { Live(*promise); });
    }
    try {
      for (std::future<void>& lane : made) lane.get();
    } catch (...) {
      Stop();
      throw;
    }
  }

  ~LanesEngine() override {
    Stop();
    // Lanes finish what they took, so all that is incomplete still stands in a queue.
    for (auto* queue : {&queue_, &without_model_}) {
      for (const Waiting& waiting : *queue) {
        waiting.unit->Enter();
        waiting.unit->Fail(std::make_exception_ptr(
            Error(Fault::kTransient, waiting.unit->work().item_name + ": the engine was stopped")));
        waiting.unit->Leave();
      }
      queue->clear();
    }
    device_.reset();  // calls what still waits for results, before anything else goes
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
    const bool early = !refused && device_->opens_early();
    const bool failed = refused || (early && !unit->Open(*device_));
    const std::lock_guard lock(mutex_);
    if (early && !failed) unit->memory().Begin();  // in the order of submission: under the lock
    if (failed || unit->runs() == 0) {
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
  std::shared_ptr<HostMemory> host_memory() override { return device_->host_memory(); }
  DeviceUse device_use() const override { return device_->use(); }

 private:
  struct Waiting {
    std::shared_ptr<UnitRun> unit;
    int64_t taken = 0;  // runs that lanes have or had
  };

  // A batch whose forward pass has been asked for.
  struct Begun {
    Batch all;   // as taken
    Batch open;  // those of it whose units could be opened
    std::shared_ptr<const BatchOutput> output;
    std::exception_ptr error;  // neither: nothing left to do
    std::unique_ptr<Profile::Busy> busy;
  };

  void Live(std::promise<void>& made) {
    std::unique_ptr<Lane> lane;
    try {
      lane = device_->MakeLane();
    } catch (...) {
      made.set_exception(std::current_exception());
      return;
    }
    made.set_value();
    Work(*lane);
  }

  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }

  void Work(Lane& lane) {
    std::deque<Begun> begun;
    const auto depth = static_cast<size_t>(device_->depth());
    for (;;) {
      Batch batch = Take(begun.empty());
      if (batch.empty() && begun.empty()) return;
      const bool taken = !batch.empty();
      if (taken) {
        Begun next{std::move(batch), {}, nullptr, nullptr, nullptr};
        bool opened = false, ready = true;
        for (size_t i = 0; i < next.all.size(); ++i) {
          const Slot& slot = next.all[i];
          if (i == 0 ||
              slot.unit != next.all[i - 1].unit) {  // batches of small tiles have thousands
            opened = slot.unit->Open(*device_);
            ready &= !opened || slot.unit->memory().Ready();
          }
          if (opened) next.open.push_back(slot);
        }
        // What this batch waits for may be memory that the ones before will give back.
        if (!ready) EndAll(lane, begun, 0);
        Begin(lane, next);
        begun.push_back(std::move(next));
      }
      EndAll(lane, begun, taken ? depth : 0);
    }
  }

  // Takes over what batches gave until `keep` are left, in the order of taking: what runs again
  // gives outputs that wait for nothing of this lane.
  void EndAll(Lane& lane, std::deque<Begun>& begun, size_t keep) {
    while (begun.size() > keep) {
      Begun& first = begun.front();
      if (first.error) {
        Broken(lane, first.open, first.error);
      } else if (first.output) {
        Settle(lane, first.open, std::move(first.output));
      }
      Leave(first.all);
      begun.pop_front();
    }
  }

  void Begin(Lane& lane, Begun& begun) {
    if (begun.open.empty()) return;
    begun.busy = std::make_unique<Profile::Busy>(profile_);
    if (begun.open.front().unit->runs() == 0) {
      begun.open.front().unit->RunWithoutModel(HostProfile());
    } else {
      try {
        begun.output = Forward(lane, begun.open);
      } catch (...) {
        begun.error = std::current_exception();
      }
    }
  }

  void Leave(const Batch& batch) {
    {
      const std::lock_guard lock(mutex_);
      DropFailed();
    }
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i == 0 || batch[i].unit != batch[i - 1].unit) batch[i].unit->Leave();
    }
    changed_.notify_all();
  }

  // The next runs in order of submission; empty when the engine stops, or if there is no batch to
  // be had now and the caller has better to do than to `wait`.
  Batch Take(bool wait) {
    std::unique_lock lock(mutex_);
    const int64_t size = slots_.size();
    const auto ready = [&] {
      if (stopping_) return true;
      if (!without_model_.empty()) return true;
      const bool room = parked_ <= options_.lanes * size;
      return room && (queued_ >= size || (!more_coming_ && queued_ > 0));
    };
    if (wait) changed_.wait(lock, ready);
    Batch batch;
    if (stopping_ || !ready()) return batch;
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

  // The batch threw: item by item if there are several, else it is the item's fault.
  void Broken(Lane& lane, const Batch& batch, const std::exception_ptr& error) {
    if (Mixed(batch)) return RunByItem(lane, batch);
    FailAll(batch, error);
  }

  // Takes over what a batch gave. If something in a batch of several items is not finite, all of it
  // runs again item by item.
  void Settle(Lane& lane, const Batch& batch, std::shared_ptr<const BatchOutput> output) {
    const bool mixed = Mixed(batch);
    const auto finite = [&](size_t i) {
      const auto scope = HostScope(Stage::kBlend, batch[i], 0);
      return output->Finite(slots_[static_cast<int64_t>(i)]);
    };
    // What is looked at is blended at once, while it lies in the cache; a device that runs behind
    // prefers to be asked for much at a time.
    const size_t together = device_->depth() > 0 ? batch.size() : 1;
    try {
      for (size_t i = 0; mixed && i < batch.size(); ++i) {
        if (finite(i)) continue;
        output.reset();
        return RunByItem(lane, batch);
      }
      for (size_t i = 0; i < batch.size();) {
        if (!mixed && !finite(i)) {
          RunCarefully(lane, batch[i]);
          ++i;
          continue;
        }
        size_t end = i + 1;
        while (end < batch.size() && end - i < together && Neighbours(batch, slots_, end - 1) &&
               (mixed || finite(end))) {
          ++end;
        }
        batch[i].unit->Accept(batch[i].run, static_cast<int64_t>(end - i), output,
                              slots_[static_cast<int64_t>(i)], HostProfile());
        i = end;
      }
    } catch (...) {  // the device has failed under the batch; nothing of it can be tried again here
      FailAll(batch, std::current_exception());
    }
  }

  // What is not finite in the model's type may be so in fp32; else its unit fails.
  void RunCarefully(Lane& lane, const Slot& slot) {
    UnitRun& unit = *slot.unit;
    if (unit.failed()) return;  // of an earlier tile
    try {
      if (auto output = lane.Careful(unit.memory(), slot.run)) {
        unit.AddRepeated(1);
        if (output->Finite(0)) {
          unit.AddCareful(1);
          unit.Accept(slot.run, 1, std::move(output), 0, HostProfile());
          return;
        }
      }
    } catch (...) {
      return unit.Fail(Named(slot, std::current_exception()));
    }
    unit.Fail(std::make_exception_ptr(
        Error(Fault::kModel, unit.work().item_name + ": what model " +
                                 Printable(options_.model.native()) + " makes of the tile " +
                                 ToString(unit.InputBox(slot.run)) + " is not finite")));
  }

  void RunByItem(Lane& lane, const Batch& batch) {
    for (const Slot& slot : batch) slot.unit->AddRepeated(1);
    for (size_t i = 0; i < batch.size(); ++i) {
      const int64_t item = batch[i].unit->work().item;
      const auto of_item = [&](const Slot& slot) { return slot.unit->work().item == item; };
      if (std::any_of(batch.begin(), batch.begin() + i, of_item)) continue;
      Batch alone;
      std::copy_if(batch.begin(), batch.end(), std::back_inserter(alone), of_item);
      std::shared_ptr<const BatchOutput> output;
      try {
        output = Forward(lane, alone);
      } catch (...) {
        Broken(lane, alone, std::current_exception());
        continue;
      }
      Settle(lane, alone, std::move(output));
    }
  }

  // Where memory ran out, once more with all that could be spared given back.
  std::shared_ptr<const BatchOutput> Forward(Lane& lane, const Batch& batch) {
    try {
      return ForwardOnce(lane, batch);
    } catch (const Error& e) {
      if (e.fault() != Fault::kTransient) throw;
    }
    for (const Slot& slot : batch) slot.unit->AddRepeated(1);
    lane.FreeMemory();
    return ForwardOnce(lane, batch);
  }

  std::shared_ptr<const BatchOutput> ForwardOnce(Lane& lane, const Batch& batch) {
    const auto used = static_cast<int64_t>(batch.size());
    {
      const auto scope = HostScope(Stage::kH2d, batch.front(),
                                   used * options_.channels_in * Product(options_.tile) * 4);
      for (int64_t i = 0, end; i < used; i = end) {
        end = i + 1;
        while (end < used && Neighbours(batch, slots_, static_cast<size_t>(end - 1))) ++end;
        lane.Gather(slots_[i], batch[i].unit->memory(), batch[i].run, end - i);
      }
      // A copy of a real tile: filling that the model has never a reason to refuse.
      for (int64_t i = used; i < slots_.size(); ++i) lane.Repeat(slots_[used - 1], slots_[i]);
      for (const int64_t slot : slots_.unused()) lane.Repeat(slots_[used - 1], slot);
    }
    const auto scope = HostScope(Stage::kCompute, batch.front(), 0);
    auto output = lane.Forward();
    ++finished_batches_;
    return output;
  }

  // What the host does counts as the stage's time, unless the device works by itself.
  Profile* HostProfile() { return device_->times_itself() ? nullptr : &profile_; }
  std::unique_ptr<Profile::Scope> HostScope(Stage stage, const Slot& slot, int64_t bytes) {
    if (device_->times_itself()) return nullptr;
    return std::make_unique<Profile::Scope>(profile_, stage, slot.unit->work().unit, bytes);
  }

  const EngineOptions options_;
  const BatchSlots slots_{options_.numerics.slots, options_.numerics.batch};
  std::unique_ptr<Device> device_;
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

std::unique_ptr<Engine> MakeEngine(const EngineOptions& options, std::unique_ptr<Device> device,
                                   Profile& profile) {
  return std::make_unique<LanesEngine>(options, std::move(device), profile);
}

std::unique_ptr<Engine> Engine::Create(const EngineOptions& options, Profile& profile) {
  CheckOptions(options);
  if (options.device != "cpu") {
    throw Error(Fault::kUsage, "device \"" + options.device +
                                   "\" is not supported by this worker; it runs models on: cpu");
  }
  return MakeEngine(options, MakeCpuDevice(options), profile);
}

}  // namespace tilery
