#include "worker/bench.h"

#include <algorithm>
#include <chrono>
#include <future>
#include <map>
#include <mutex>
#include <utility>

#include "cluster/numa.h"
#include "io/error.h"
#include "pipeline/batch_slots.h"
#include "scheduler/bench_wire.h"
#include "worker/engine_factory.h"
#include "worker/memory_run.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWarmUp = 0.1;  // of the time of measuring
constexpr int kWarmUpBatches = 3;
constexpr int kMostHands = 8;

int UsableCores() { return std::max(1, static_cast<int>(UsableCpuList().size())); }

struct LaneRun {
  int64_t batches = 0;
  double seconds = 0;
  std::vector<double> batch_s;
};

// Until the time is over, and at least once.
LaneRun RunFor(ForwardLoop& loop, double seconds, int least) {
  LaneRun run;
  const auto begin = Clock::now();
  const auto passed = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  while (run.batches < least || passed() < seconds) {
    loop.Run();
    ++run.batches;
  }
  run.batch_s = loop.Sync();
  run.seconds = passed();
  return run;
}

// All lanes at once. Each is measured by its own time, since they end one after the other.
void MeasureForward(const Backend& backend, const EngineOptions& options, double seconds,
                    StepFigures& figures, std::string& how) {
  const std::unique_ptr<ForwardModel> model = backend.MakeForward(options);
  std::promise<bool> all_made;
  const std::shared_future<bool> go = all_made.get_future().share();
  std::vector<std::promise<void>> made(static_cast<size_t>(options.lanes));
  std::mutex mutex;  // guards `how`
  std::vector<std::future<LaneRun>> lanes;
  // Where a thread can't be started, those that wait are told.
  struct Guard {
    std::promise<bool>& go;
    bool said = false;
    ~Guard() {
      if (!said) go.set_value(false);
    }
  } guard{all_made};
  for (std::promise<void>& ready : made) {
    lanes.push_back(std::async(std::launch::async, [&] {
      std::unique_ptr<ForwardLoop> loop;
      try {
        loop = model->MakeLoop();
        const std::lock_guard lock(mutex);
        how = loop->how();
      } catch (...) {
        ready.set_exception(std::current_exception());
        return LaneRun{};
      }
      ready.set_value();
      if (!go.get()) return LaneRun{};
      RunFor(*loop, kWarmUp * seconds, kWarmUpBatches);
      return RunFor(*loop, seconds, 1);
    }));
  }
  std::exception_ptr failed;
  for (std::promise<void>& ready : made) {
    try {
      ready.get_future().get();
    } catch (...) {
      failed = std::current_exception();
    }
  }
  guard.said = true;
  all_made.set_value(failed == nullptr);
  // Tiles that are used: with these the engine is compared.
  const int64_t size = BatchSlots(options.numerics.slots, options.numerics.batch).size();
  double rate = 0, longest = 0;
  std::vector<double> batch_s;
  for (std::future<LaneRun>& lane : lanes) {
    const LaneRun run = lane.get();
    if (failed) continue;
    rate += static_cast<double>(run.batches * size) / run.seconds;
    longest = std::max(longest, run.seconds);
    batch_s.insert(batch_s.end(), run.batch_s.begin(), run.batch_s.end());
  }
  if (failed) std::rethrow_exception(failed);
  const auto batches = static_cast<int64_t>(batch_s.size());
  const int64_t tiles = batches * size;
  // As one lane would have taken for all of them at that rate.
  figures.Add(tiles, lanes.size() == 1 ? longest : static_cast<double>(tiles) / rate, batch_s);
}

void MeasureEngine(const Backend& backend, const EngineOptions& options, int64_t device_memory,
                   const MemoryItem& item, double seconds, StepFigures& figures) {
  Profile profile;
  BackendOptions made;
  made.engine = options;
  made.device_memory = device_memory;
  std::mutex mutex;  // guards `lost`
  std::string lost;
  made.lost = [&](Loss, const std::string& why) {
    const std::lock_guard lock(mutex);
    lost = why;
  };
  const std::unique_ptr<Engine> engine = backend.Create(made, profile);
  const int hands = std::clamp(UsableCores() / 2, 1, kMostHands);
  MemoryRun run(item, options.numerics.batch, options.lanes, hands, *engine, profile);
  const MemoryRun::Measured measured = run.Run(seconds);
  const std::lock_guard lock(mutex);
  if (!lost.empty()) throw Error(Fault::kInternal, lost);
  std::map<std::string, double> idle;
  for (int cause = 0; cause < kIdleCauses; ++cause)
    idle[IdleCauseName(static_cast<IdleCause>(cause))] =
        measured.idle_s[static_cast<size_t>(cause)];
  figures.Add(measured.tiles, measured.seconds, measured.batch_s, idle);
}

}  // namespace

std::string AnswerBench(const std::string& text, const Backend& backend) {
  BenchRequest request;
  try {
    request = BenchRequestFromJson(Json::parse(text));
    if (request.context.params.size() != 1) {
      throw Error(Fault::kInternal, "a request to measure describes no item");
    }
  } catch (const std::exception& e) {
    throw Error(Fault::kUsage, std::string("--bench: ") + e.what());
  }
  const Numerics here = backend.Describe(request.device);
  const EngineOptions options = EngineOptionsOf(request.context, request.device, here);
  LoadLibraries(request.context.libraries, 2);
  const MemoryItem item{request.item, request.sizing, request.context.params[0]};
  const double seconds = request.seconds / request.repeats;
  StepFigures forward, engine;
  std::string how;
  // In turns: clocks of devices fall as they grow warm, and other work comes and goes. Never both
  // at once in memory.
  for (int repeat = 0; repeat < request.repeats; ++repeat) {
    if (request.forward) MeasureForward(backend, options, seconds, forward, how);
    if (request.engine)
      MeasureEngine(backend, options, request.context.device_memory, item, seconds, engine);
  }
  Json ladder = Json::object();
  if (request.forward) ladder["forward"] = ToJson(forward);
  if (request.engine) ladder["engine"] = ToJson(engine);
  return Json{{"device_kind", here.device_kind},
              {"torch", here.torch},
              {"how", how},
              {"ladder", std::move(ladder)}}
      .dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tilery
