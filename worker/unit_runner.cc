#include "worker/unit_runner.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <deque>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "scheduler/attempt_name.h"
#include "worker/assemble_unit.h"
#include "worker/fault_points.h"
#include "worker/geometry_cache.h"
#include "worker/grid_unit.h"
#include "worker/infer_unit.h"
#include "worker/stage_unit.h"

namespace tilery {
namespace {

using TaskPtr = std::shared_ptr<UnitTask>;

// Of buffers that are not registered with a GPU. Beside a GPU, blocks of sums of two outputs that
// are assembled stay (kAssembleBytes of scheduler/planner.cc).
constexpr size_t kIdleHeap = 64 << 20, kIdleHeapBesideGpu = 256 << 20;
constexpr int kPoliteness = 5;  // of readers, writers and encoders towards the model's
constexpr int kManyThreads = 8;
constexpr int kFilesOfGrids = 2;     // at a time: while one is read to its end, another is coded
constexpr int64_t kWarmUpUnits = 8;  // after so many, buffers should come from the pool

// Readers, writers and encoders share the cores with the lanes: where all are busy, the model goes
// first.
void BePolite() {
  thread_local const bool done = [] {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kPoliteness);
    return true;
  }();
  static_cast<void>(done);
}

// What a device copies from; null for the CPU, and where no unit needs a device.
auto MemoryOf(const std::unique_ptr<Engine>& engine) {
  return engine ? engine->host_memory() : nullptr;
}

class Pool {
 public:
  explicit Pool(int threads) : pool_(static_cast<size_t>(threads)) {}
  template <typename Work>
  void Post(Work work) {
    boost::asio::post(pool_, [work = std::move(work)]() mutable {
      BePolite();
      work();
    });
  }
  void Join() { pool_.join(); }

 private:
  boost::asio::thread_pool pool_;
};

}  // namespace

struct UnitRunner::Impl {
  UnitEnv env;
  Profile& profile;
  HostBuffers buffers;
  std::optional<HostBuffers> registered;  // with the device
  std::function<void(const Lease&, const Outcome&)> finished;
  const std::function<void()> abandoned;
  std::unique_ptr<Engine> engine;  // null: no unit needs it
  ThreadPool encoders;             // outlives the writers and assemblers
  Pool readers, writers, stagers, assemblers, coders;
  const int64_t most_units, most_stages, most_assembles;
  int64_t tiles_ahead = 0;

  mutable std::mutex
      mutex;  // guards all below; never held while the engine or `finished` is called
  std::unordered_map<int64_t, TaskPtr> tasks;  // by lease
  std::deque<TaskPtr> waiting_infer, waiting_stage, waiting_assemble, waiting_grids;
  int64_t begun_units = 0, begun_tiles = 0;         // infer units on their way
  int64_t reading = 0;                              // of these: not yet in the engine
  int64_t writing = 0, writing_tiles = 0;           // of these: come back from it
  int64_t staging = 0, assembling = 0, coding = 0;  // units
  bool expecting = false, draining = false, stopped = false;
  int64_t largest = 0, finished_units = 0;
  GeometryCache geometries;

  std::mutex more_mutex;  // keeps what the engine is told in the order in which it became true
  DeviceUse last_use;     // guarded by more_mutex, like the two below
  bool warm = false;
  int64_t warm_allocations = 0;  // the device's when it became warm

  Impl(RunnerOptions options, std::unique_ptr<Engine> the_engine, Profile& the_profile,
       std::function<void(const Lease&, const Outcome&)> on_finished)
      : profile(the_profile),
        buffers(MemoryOf(the_engine) ? kIdleHeapBesideGpu : kIdleHeap),
        finished(std::move(on_finished)),
        abandoned(std::move(options.abandoned)),
        engine(std::move(the_engine)),
        encoders(options.encode_threads, &BePolite),
        readers(options.readers),
        writers(options.writers),
        stagers(options.stagers),
        assemblers(options.assemblers),
        coders(kFilesOfGrids),
        most_units(!engine            ? kFilesOfGrids + 1
                   : MemoryOf(engine) ? kUnitsInFlight
                                      : kUnitsInFlightOnCpu),
        most_stages(options.stagers),
        most_assembles(options.assemblers) {
    env.context = std::move(options.context);
    env.profile = &profile;
    if (MemoryOf(engine)) registered.emplace(MemoryOf(engine));
    env.inputs = registered ? &*registered : &buffers;
    env.buffers = &buffers;
    env.epoch = options.epoch;
    env.encoders = &encoders;
    if (options.codec != nullptr) env.codec = options.codec->devices();
    env.lease_is_young = std::move(options.lease_is_young);
    tiles_ahead = kBatchesAhead * env.context->batch * env.context->lanes;
  }

  // Where the units are, for the profile. `mutex` is held.
  void Count() {
    profile.Units({static_cast<int64_t>(waiting_infer.size()), reading,
                   // A unit may come back before its reader has said that it is through.
                   std::max<int64_t>(begun_units - reading - writing, 0), writing});
  }

  // ---- Beginning units ----

  void Submit(Lease lease) {
    auto task = std::make_shared<UnitTask>();
    task->lease = std::move(lease);
    task->attempt =
        AttemptName(env.context->work, task->lease.unit, env.epoch, task->lease.attempt);
    try {
      Prepare(*task);
    } catch (...) {
      {
        const std::lock_guard lock(mutex);
        tasks[task->lease.lease] = task;
      }
      Finish(task, OutcomeOf(std::current_exception(), StageName(task->stage)));
      return;
    }
    {
      const std::lock_guard lock(mutex);
      if (draining || stopped) return;
      tasks[task->lease.lease] = task;
      largest = std::max(largest, task->tiles);
      switch (task->work().kind) {
        case UnitKind::kInfer:
          if (env.params(task->work()).grids) {
            waiting_grids.push_back(std::move(task));
            break;
          }
          waiting_infer.push_back(std::move(task));
          break;
        case UnitKind::kStage:
          waiting_stage.push_back(std::move(task));
          break;
        default:
          waiting_assemble.push_back(std::move(task));
          break;
      }
    }
    Begin();
  }

  void Prepare(UnitTask& task) {
    const UnitWork& work = task.work();
    if (work.kind == UnitKind::kMeasure || work.kind == UnitKind::kFinish) {
      throw Error(Fault::kUsage, std::string("units of kind '") + UnitKindName(work.kind) +
                                     "' are not supported yet");
    }
    const ItemParams& params = env.params(work);
    if (params.grids) {
      task.tiles = 1;
      return;
    }
    if (!engine) throw Error(Fault::kInternal, "a unit with tiles in a job without a model");
    if (!work.grid.empty()) {  // looking through its file takes a while: OpenSparse() does it
      task.tiles = work.tiles;
      return;
    }
    {
      const std::lock_guard lock(mutex);
      task.geometry = geometries.Get(work.header.shape, params.tiling, work.sizing);
    }
    if (work.kind != UnitKind::kInfer) return;
    if (work.block < 0 || work.block >= task.geometry->units()) {
      throw Error(Fault::kInternal, Printable(work.input) + " has no block " +
                                        std::to_string(work.block) + " of " +
                                        std::to_string(task.geometry->units()));
    }
    task.tiles = task.geometry->tiles_of(work.block) * ModelPasses(params.transfer);
  }

  // Whether one more infer unit may be begun. `mutex` is held.
  bool Room() const {
    const int64_t ahead = begun_units - writing, ahead_tiles = begun_tiles - writing_tiles;
    return (ahead < kUnitsAhead || ahead_tiles < tiles_ahead) &&
           (writing < kUnitsBehind || writing_tiles < tiles_ahead) &&
           (begun_units < most_units || begun_tiles < 2 * tiles_ahead);
  }

  // Begins what tickets allow.
  void Begin() {
    std::vector<TaskPtr> infer, stage, assemble, grids;
    bool tell = false;
    {
      const std::lock_guard lock(mutex);
      if (draining || stopped) return;
      while (!waiting_infer.empty() && Room()) {
        ++begun_units;
        ++reading;
        begun_tiles += waiting_infer.front()->tiles;
        infer.push_back(std::move(waiting_infer.front()));
        waiting_infer.pop_front();
      }
      while (staging < most_stages && !waiting_stage.empty()) {
        ++staging;
        stage.push_back(std::move(waiting_stage.front()));
        waiting_stage.pop_front();
      }
      while (assembling < most_assembles && !waiting_assemble.empty()) {
        ++assembling;
        assemble.push_back(std::move(waiting_assemble.front()));
        waiting_assemble.pop_front();
      }
      while (coding < kFilesOfGrids && !waiting_grids.empty()) {
        ++coding;
        grids.push_back(std::move(waiting_grids.front()));
        waiting_grids.pop_front();
      }
      tell = !infer.empty() || !waiting_infer.empty();
      Count();
    }
    if (tell) TellEngine();
    for (const TaskPtr& task : stage) {
      stagers.Post([this, task] { RunAlone(task, &RunStage, staging); });
    }
    for (const TaskPtr& task : infer) {
      readers.Post([this, task] { Read(task); });
    }
    for (const TaskPtr& task : assemble) {
      assemblers.Post([this, task] { RunAlone(task, &RunAssemble, assembling); });
    }
    for (const TaskPtr& task : grids) {
      coders.Post([this, task] { RunAlone(task, &RunGrids, coding); });
    }
  }

  // ---- The three ways ----

  // Without the engine. `running`: counts such units.
  void RunAlone(const TaskPtr& task, Done (*run)(const UnitEnv&, UnitTask&), int64_t& running) {
    std::optional<Outcome> outcome;
    try {
      outcome = run(env, *task);
    } catch (...) {
      outcome = OutcomeOf(std::current_exception(), StageName(task->stage));
    }
    {
      const std::lock_guard lock(mutex);
      --running;
    }
    Finish(task, outcome);
  }

  void Read(const TaskPtr& task) {
    try {
      InferInput input = ReadInput(env, *task);
      FaultPoint(FaultPlace::kSubmit);
      task->stage = Stage::kCompute;
      auto metadata = std::make_shared<const Metadata>(std::move(input.metadata));
      // Called on a thread of the engine, which must not wait for a disk.
      engine->Submit(std::move(input.work), [this, task, metadata](InferResult result) {
        auto shared = std::make_shared<InferResult>(std::move(result));
        {
          const std::lock_guard lock(mutex);
          ++writing;
          writing_tiles += task->tiles;
          Count();
        }
        writers.Post([this, task, metadata, shared] { Write(task, *metadata, *shared); });
        readers.Post([this] { Begin(); });  // there is room for one more before the engine
      });
    } catch (...) {
      FinishInfer(task, OutcomeOf(std::current_exception(), StageName(task->stage)), true);
      return;
    }
    {
      const std::lock_guard lock(mutex);
      --reading;
      Count();
    }
    TellEngine();
  }

  void Write(const TaskPtr& task, const Metadata& metadata, InferResult& result) {
    std::optional<Outcome> outcome;
    try {
      if (const auto* error = std::get_if<std::exception_ptr>(&result)) {
        CheckWanted(env, *task);
        std::rethrow_exception(*error);
      }
      outcome = WriteResult(env, *task, metadata, std::get<InferOutput>(result));
    } catch (...) {
      outcome = OutcomeOf(std::current_exception(), StageName(task->stage));
    }
    result = std::exception_ptr();  // its memory goes before the ticket does
    FinishInfer(task, outcome, false);
  }

  // ---- The end of a unit ----

  void FinishInfer(const TaskPtr& task, const std::optional<Outcome>& outcome, bool was_reading) {
    {
      const std::lock_guard lock(mutex);
      --begun_units;
      begun_tiles -= task->tiles;
      if (was_reading) {
        --reading;
      } else {
        --writing;
        writing_tiles -= task->tiles;
      }
      Count();
    }
    Finish(task, outcome);
  }

  void Finish(const TaskPtr& task, const std::optional<Outcome>& outcome) {
    bool report = false, now_warm = false;
    {
      const std::lock_guard lock(mutex);
      tasks.erase(task->lease.lease);
      report = outcome.has_value() && !task->dropped && !stopped;
      now_warm = ++finished_units == kWarmUpUnits;
      if (now_warm) buffers.MarkWarm();
    }
    if (now_warm) {
      const std::lock_guard order(more_mutex);
      warm_allocations = Use().allocations;
      warm = true;
    }
    Begin();  // the next unit first: reports may take a moment
    TellEngine();
    if (report) {
      finished(task->lease, *outcome);
    } else if (abandoned) {
      abandoned();
    }
  }

  void TellEngine() {
    const std::lock_guard order(more_mutex);
    More more = More::kNothing;
    {
      const std::lock_guard lock(mutex);
      if (stopped) return;
      if (reading > 0 || (expecting && !draining)) {
        more = More::kSoon;
      } else if (!waiting_infer.empty()) {
        more = More::kInTurn;
      }
    }
    if (engine) engine->MoreComing(more);
  }

  // ---- Ending ----

  void Drop(const std::vector<int64_t>& leases) {
    {
      const std::lock_guard lock(mutex);
      for (const int64_t lease : leases) {
        const auto found = tasks.find(lease);
        if (found == tasks.end()) continue;
        found->second->dropped = true;
        for (auto* queue : {&waiting_infer, &waiting_stage, &waiting_assemble, &waiting_grids}) {
          if (std::erase(*queue, found->second) > 0) {
            tasks.erase(found);
            break;
          }
        }
      }
    }
    TellEngine();
  }

  void DropEarly() {
    std::vector<int64_t> early;
    {
      const std::lock_guard lock(mutex);
      for (const auto& [lease, task] : tasks) {
        if (task->work().bricks_missing > 0) early.push_back(lease);
      }
    }
    Drop(early);
  }

  void AddBricks(int64_t lease, std::vector<Brick> bricks) {
    const std::lock_guard lock(mutex);
    const auto found = tasks.find(lease);
    if (found != tasks.end()) found->second->arrivals.Add(std::move(bricks));
  }

  void Drain() {
    env.draining = true;
    {
      const std::lock_guard lock(mutex);
      draining = true;
      for (auto* queue : {&waiting_infer, &waiting_stage, &waiting_assemble, &waiting_grids}) {
        for (const TaskPtr& task : *queue) tasks.erase(task->lease.lease);
        queue->clear();
      }
    }
    TellEngine();
  }

  // more_mutex is held.
  const DeviceUse& Use() {
    if (!stopped && engine) last_use = engine->device_use();
    return last_use;
  }

  void Stop() {
    Drain();
    {
      const std::lock_guard order(more_mutex);
      Use();
      const std::lock_guard lock(mutex);
      if (stopped) return;
      stopped = true;
    }
    env.stopping = true;
    readers.Join();
    engine.reset();  // hands what is left to the writers, which abandon it
    writers.Join();
    stagers.Join();
    assemblers.Join();
    coders.Join();
    // A unit that was begun at the very moment may have come too late for its pool.
    const std::lock_guard lock(mutex);
    tasks.clear();
  }
};

RunnerOptions RunnerOptionsFor(int threads) {
  RunnerOptions options;
  // Writing a brick is copying and hashing: three threads do some 5 GB/s.
  options.writers = threads >= kManyThreads ? 3 : 2;
  options.stagers = std::clamp(threads / 4, 1, 4);
  options.assemblers = threads >= kManyThreads ? 2 : 1;
  options.encode_threads = std::max(1, threads);
  return options;
}

UnitRunner::UnitRunner(RunnerOptions options, std::unique_ptr<Engine> engine, Profile& profile,
                       std::function<void(const Lease&, const Outcome&)> finished)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(engine), profile,
                                   std::move(finished))) {}

UnitRunner::~UnitRunner() { Stop(); }

void UnitRunner::Submit(Lease lease) { impl_->Submit(std::move(lease)); }
void UnitRunner::Drop(const std::vector<int64_t>& leases) { impl_->Drop(leases); }
void UnitRunner::DropEarly() { impl_->DropEarly(); }
void UnitRunner::AddBricks(int64_t lease, std::vector<Brick> bricks) {
  impl_->AddBricks(lease, std::move(bricks));
}

int64_t UnitRunner::most_units() const { return impl_->most_units; }

void UnitRunner::ExpectMore(bool more) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->expecting == more) return;
    impl_->expecting = more;
  }
  impl_->TellEngine();
}

UnitRunner::Held UnitRunner::held() const {
  const std::lock_guard lock(impl_->mutex);
  Held held;
  held.largest = impl_->largest;
  for (const auto& [lease, task] : impl_->tasks) {
    held.tiles += task->tiles;
    const UnitKind kind = task->work().kind;
    ++(kind == UnitKind::kInfer   ? held.infer_units
       : kind == UnitKind::kStage ? held.stage_units
                                  : held.assemble_units);
  }
  return held;
}

int64_t UnitRunner::progress() const {
  const std::lock_guard order(impl_->more_mutex);  // Stop() ends the engine after taking it
  return impl_->env.bands +
         (impl_->stopped || !impl_->engine ? 0 : impl_->engine->finished_batches());
}

int64_t UnitRunner::steady_allocations() const {
  const int64_t on_host = impl_->buffers.steady_allocations();
  const std::lock_guard order(impl_->more_mutex);
  return on_host + (impl_->warm ? impl_->Use().allocations - impl_->warm_allocations : 0);
}

DeviceUse UnitRunner::device_use() const {
  const std::lock_guard order(impl_->more_mutex);
  return impl_->Use();
}

void UnitRunner::Drain() { impl_->Drain(); }
void UnitRunner::Stop() { impl_->Stop(); }

}  // namespace tilery
