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
#include "pipeline/run_queue.h"
#include "pipeline/work_check.h"

namespace tilery {
namespace {

class LanesEngine final : public Engine {
 public:
  LanesEngine(const EngineOptions& options, std::unique_ptr<Device> device, Profile& profile)
      : options_(options), device_(std::move(device)), profile_(profile) {
    device_->OnProgress([this] {
      { const std::lock_guard lock(mutex_); }  // not between a lane's look and its sleep
      changed_.notify_all();
    });
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
    // Lanes finish what they took, so all that is incomplete is still queued.
    for (const std::shared_ptr<UnitRun>& unit : queue_.TakeAll()) {
      unit->Enter();
      unit->Fail(std::make_exception_ptr(
          Error(Fault::kTransient, unit->work().item_name + ": the engine was stopped")));
      unit->Leave();
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
    queue_.Push(std::move(unit), failed);
    changed_.notify_all();
  }

  void MoreComing(More more) override {
    const std::lock_guard lock(mutex_);
    more_ = more;
    changed_.notify_all();
  }

  int64_t queued_tiles() const override {
    const std::lock_guard lock(mutex_);
    return queue_.runs();
  }
  int64_t finished_batches() const override { return finished_batches_; }
  std::shared_ptr<HostMemory> host_memory() override { return device_->host_memory(); }
  DeviceUse device_use() const override { return device_->use(); }

 private:
  // A batch whose forward pass has been asked for.
  struct Begun {
    Batch all;   // as taken
    Batch open;  // those of it whose units could be opened
    std::shared_ptr<const BatchOutput> output;
    std::exception_ptr error;  // neither: nothing left to do
    std::unique_ptr<Profile::Busy> busy;
    bool Done() const { return !output || output->Done(); }
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

  // Batches are begun as soon as there is one to be had, also while others are under way, up to the
  // device's depth, and are taken over in the order of taking as they end: what runs again gives
  // outputs that wait for nothing of this lane.
  void Work(Lane& lane) {
    std::deque<Begun> begun;
    const auto depth = static_cast<size_t>(device_->depth());
    for (;;) {
      Begun next;
      if (begun.size() <= depth) next.all = Take(begun);
      if (!next.all.empty()) {
        Open(next);
        // What it waits for may be memory that the ones before will give back.
        while (!begun.empty() && !WaitReady(next, begun.front())) EndFirst(lane, begun);
        Begin(lane, next);
        begun.push_back(std::move(next));
      } else if (!begun.empty()) {
        EndFirst(lane, begun);
      } else {
        return;
      }
    }
  }

  void Open(Begun& next) {
    bool opened = false;
    for (size_t i = 0; i < next.all.size(); ++i) {
      const Slot& slot = next.all[i];
      if (i == 0 || slot.unit != next.all[i - 1].unit)  // batches of small tiles have thousands
        opened = slot.unit->Open(*device_);
      if (opened) next.open.push_back(slot);
    }
  }

  // Until the inputs of the batch are there, or `first` is done: true if they are.
  bool WaitReady(const Begun& next, const Begun& first) {
    const auto ready = [&] {
      for (size_t i = 0; i < next.open.size(); ++i) {
        const UnitRun& unit = *next.open[i].unit;
        if ((i == 0 || next.open[i].unit != next.open[i - 1].unit) && !unit.memory().Ready())
          return false;
      }
      return true;
    };
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ready() || first.Done(); });
    return ready();
  }

  void EndFirst(Lane& lane, std::deque<Begun>& begun) {
    Begun& first = begun.front();
    if (first.error) {
      Broken(lane, first.open, first.error);
    } else if (first.output) {
      Settle(lane, first.open, std::move(first.output));
    }
    Leave(first.all);
    begun.pop_front();
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
    DropFailed();
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i == 0 || batch[i].unit != batch[i - 1].unit) batch[i].unit->Leave();
    }
    changed_.notify_all();
  }

  // The next runs in order of submission; empty when the engine stops, or once the first of the
  // batches that this lane has `begun` is done and there is no other to be had.
  Batch Take(const std::deque<Begun>& begun) {
    std::unique_lock lock(mutex_);
    const int64_t size = slots_.size();
    const Begun* const first = begun.empty() ? nullptr : &begun.front();
    const auto ready = [&] {
      if (stopping_) return true;
      if (queue_.any_without_model()) return true;
      const bool room = parked_ <= options_.lanes * size;
      const bool waits = more_ == More::kSoon || (more_ == More::kInTurn && first);
      return room && (queue_.runs() >= size || (queue_.runs() > 0 && !waits));
    };
    changed_.wait(lock, [&] { return ready() || (first && first->Done()); });
    return stopping_ || !ready() ? Batch{} : queue_.Take(size);
  }

  // Runs of failed units that no lane has taken are never run.
  void DropFailed() {
    std::vector<std::shared_ptr<UnitRun>> failed;  // go without the lock
    const std::lock_guard lock(mutex_);
    failed = queue_.DropFailed();
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
  RunQueue queue_;
  More more_ = More::kNothing;
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
