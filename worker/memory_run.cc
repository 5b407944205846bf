#include "worker/memory_run.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "pipeline/host_buffers.h"
#include "scheduler/bench_wire.h"
#include "worker/unit_runner.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kIdleHeap = size_t{4} << 30;
constexpr double kLeastWarmUp = 0.1;  // of the time of measuring

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// One run over the item: its output, and partial sums that wait for their neighbours.
struct Round {
  std::shared_ptr<std::byte> output;
  std::mutex mutex;                                       // guards all below
  std::map<Index, std::map<int64_t, SeamPartial>> seams;  // by a cell's begin, by unit
  int64_t left = 0;                                       // units
};

}  // namespace

struct MemoryRun::Impl {
  const MemoryItem item;
  const std::shared_ptr<const ItemGeometry> geometry;
  const std::shared_ptr<const Transfer> transfer;
  const int64_t units, tiles_ahead;
  const int hands;
  Engine& engine;
  Profile& profile;
  const std::vector<std::byte> samples;
  HostBuffers inputs, outputs;

  std::mutex mutex;  // guards all below; never held while the engine is called
  std::condition_variable changed;
  int64_t next = 0;  // unit number over all rounds
  int64_t reading = 0;
  int64_t units_ahead = 0, tiles_before = 0;   // read, or in the engine
  int64_t units_behind = 0, tiles_behind = 0;  // come back from it, and not yet put in place
  std::deque<std::pair<int64_t, InferResult>> results;  // by unit number
  std::map<int64_t, std::shared_ptr<Round>> rounds;
  std::shared_ptr<std::byte> last_output;
  bool stopping = false;
  std::exception_ptr error;
  double wanted = 0;
  Clock::time_point begun, warm_at, ended;
  bool warm = false;
  int64_t warm_units = 0, warm_tiles = 0, tiles = 0;
  ModelTime::Totals warm_time, end_time;

  Impl(const MemoryItem& the_item, int64_t batch, int lanes, int the_hands, Engine& the_engine,
       Profile& the_profile)
      : item(the_item),
        geometry(std::make_shared<const ItemGeometry>(item.header.shape, item.params.tiling,
                                                      item.sizing)),
        transfer(std::make_shared<const Transfer>(item.params.transfer)),
        units(geometry->units()),
        tiles_ahead(UnitRunner::kBatchesAhead * batch * lanes),
        hands(the_hands),
        engine(the_engine),
        profile(the_profile),
        samples(MakeSamples(item)),
        inputs(engine.host_memory() ? HostBuffers(engine.host_memory()) : HostBuffers(kIdleHeap)),
        outputs(kIdleHeap) {}

  static std::vector<std::byte> MakeSamples(const MemoryItem& item) {
    const Header& h = item.header;
    std::vector<std::byte> samples(static_cast<size_t>(Product(h.shape) * h.channels) *
                                   DTypeSize(h.dtype));
    const Transfer& t = item.params.transfer;
    FillBenchSamples(h, t.range_lo, t.range_hi, samples.data());
    return samples;
  }

  int64_t TilesOf(int64_t block) const {
    return geometry->tiles_of(block) * ModelPasses(*transfer);
  }
  View OutputView(std::byte* data) const {
    return DenseView(data, transfer->out_dtype, transfer->out_channels,
                     geometry->grid().output_shape, Layout::kInterleaved);
  }
  bool Room() const {
    return (units_ahead < UnitRunner::kUnitsAhead || tiles_before < tiles_ahead) &&
           (units_behind < std::max<int64_t>(UnitRunner::kUnitsBehind, hands) ||
            tiles_behind < tiles_ahead);
  }

  void Hand() {
    std::unique_lock lock(mutex);
    for (;;) {
      changed.wait(lock, [&] {
        return !results.empty() || (stopping ? units_ahead + units_behind == 0 : Room());
      });
      if (!results.empty()) {
        auto [number, result] = std::move(results.front());
        results.pop_front();
        lock.unlock();
        const bool last = Guarded([&] { Collect(number, result); }, number);
        if (last) engine.MoreComing(More::kNothing);
        lock.lock();
      } else if (stopping) {
        return;
      } else {
        const int64_t number = next++;
        const int64_t block = number % units;
        ++units_ahead;
        ++reading;
        tiles_before += TilesOf(block);
        if (block == 0) BeginRound(number / units);
        Count();
        lock.unlock();
        try {
          Feed(number);
        } catch (...) {
          lock.lock();
          ComesBack(number);
          lock.unlock();
          Guarded([] { throw; }, number);
          engine.MoreComing(More::kNothing);
        }
        lock.lock();
        --reading;
        Count();
      }
    }
  }

  // Runs the end of a unit and accounts for it. True if nothing is to be begun any more.
  template <typename Body>
  bool Guarded(const Body& body, int64_t number) {
    std::exception_ptr failed;
    try {
      body();
    } catch (...) {
      failed = std::current_exception();
    }
    const auto now = Clock::now();
    const int64_t unit_tiles = TilesOf(number % units);
    const std::lock_guard lock(mutex);
    --units_behind;
    tiles_behind -= unit_tiles;
    Count();
    if (failed && !error) error = failed;
    if (error) stopping = true;
    if (!stopping) Account(now, unit_tiles);
    if (stopping) {
      changed.notify_all();
    } else {
      changed.notify_one();
    }
    return stopping;
  }

  // mutex is held.
  void Account(Clock::time_point now, int64_t unit_tiles) {
    if (!warm) {
      ++warm_units;
      warm_tiles += unit_tiles;
      warm = warm_units >= UnitRunner::kUnitsInFlight && warm_tiles >= 2 * tiles_ahead &&
             std::chrono::duration<double>(now - begun).count() >= kLeastWarmUp * wanted;
      if (!warm) return;
      warm_at = now;
      warm_time = profile.model_time();
      profile.TakeTrace();
      return;
    }
    tiles += unit_tiles;
    ended = now;
    stopping = std::chrono::duration<double>(now - warm_at).count() >= wanted;
    if (stopping) end_time = profile.model_time();
  }

  // Where the units are, for the profile. mutex is held.
  void Count() {
    profile.Units({0, reading, std::max<int64_t>(units_ahead - reading, 0), units_behind});
  }

  // mutex is held.
  void ComesBack(int64_t number) {
    const int64_t unit_tiles = TilesOf(number % units);
    --units_ahead;
    tiles_before -= unit_tiles;
    ++units_behind;
    tiles_behind += unit_tiles;
    Count();
  }

  // mutex is held.
  void BeginRound(int64_t number) {
    auto round = std::make_shared<Round>();
    round->left = units;
    rounds[number] = std::move(round);
  }

  void Feed(int64_t number) {
    const int64_t block = number % units;
    if (units > 1) {
      const std::lock_guard lock(mutex);
      Round& round = *rounds.at(number / units);
      if (!round.output) {
        round.output = outputs.Take(static_cast<size_t>(OutputView(nullptr).bytes()));
      }
    }
    const Header& h = item.header;
    InferWork work;
    work.unit = number;
    work.item = number / units;
    work.item_name = "the synthetic item";
    work.geometry = geometry;
    work.block = block;
    work.transfer = transfer;
    work.input_box = geometry->unit_input(block);
    const auto bytes =
        static_cast<size_t>(work.input_box.voxels() * h.channels) * DTypeSize(h.dtype);
    const std::shared_ptr<std::byte> buffer = inputs.Take(bytes);
    const View into =
        DenseView(buffer.get(), h.dtype, h.channels, work.input_box.shape(), Layout::kInterleaved);
    CopyView(DenseView(samples.data(), h.dtype, h.channels, h.shape, Layout::kInterleaved)
                 .Crop(work.input_box),
             into);
    work.input = into;
    work.keep = buffer;
    engine.Submit(std::move(work), [this, number](InferResult result) {
      const std::lock_guard lock(mutex);
      results.emplace_back(number, std::move(result));
      ComesBack(number);
      changed.notify_one();  // for the result
      changed.notify_one();  // for the room that there is for another unit
    });
  }

  void Collect(int64_t number, InferResult& result) {
    if (const auto* failed = std::get_if<std::exception_ptr>(&result)) {
      std::rethrow_exception(*failed);
    }
    auto& output = std::get<InferOutput>(result);
    std::shared_ptr<Round> round;
    {
      const std::lock_guard lock(mutex);
      round = rounds.at(number / units);
    }
    if (units == 1) {  // the result is the array
      auto whole = std::make_shared<SharedBytes>(output.interior_samples);
      round->output = std::shared_ptr<std::byte>(whole, whole->data());
    } else {
      PutInPlace(number % units, output, *round);
    }
    bool complete = false;
    {
      const std::lock_guard lock(round->mutex);
      complete = --round->left == 0;
    }
    if (!complete) return;
    const std::lock_guard lock(mutex);
    last_output = round->output;
    rounds.erase(number / units);
  }

  void PutInPlace(int64_t block, InferOutput& output, Round& round) {
    const View array = OutputView(round.output.get());
    if (!output.interior.empty()) {
      const std::byte* const from = output.interior_samples.data();
      CopyView(DenseView(from, transfer->out_dtype, transfer->out_channels, output.interior.shape(),
                         Layout::kInterleaved),
               array.Crop(output.interior));
    }
    const std::vector<SeamCell> cells = geometry->seams(block);
    for (size_t i = 0; i < cells.size(); ++i) {
      std::map<int64_t, SeamPartial> parts;
      {
        const std::lock_guard lock(round.mutex);
        auto& waiting = round.seams[cells[i].box.begin];
        waiting[block] = std::move(output.seams[i]);
        if (waiting.size() < cells[i].units.size()) continue;
        parts = std::move(waiting);
        round.seams.erase(cells[i].box.begin);
      }
      // In plan order, as where outputs are assembled from bricks.
      const SeamPartial& first = parts.begin()->second;
      float* const sums = first.sums.get();
      for (auto part = std::next(parts.begin()); part != parts.end(); ++part) {
        const float* const more = part->second.sums.get();
        for (size_t k = 0; k < first.count; ++k) sums[k] += more[k];
      }
      FinalizeSums(sums, cells[i].box.shape(), *transfer, array.Crop(cells[i].box));
    }
  }

  Measured Run(double seconds) {
    {
      const std::lock_guard lock(mutex);
      rounds.clear();
      next = 0;
      stopping = warm = false;
      warm_units = warm_tiles = tiles = 0;
      wanted = seconds;
      begun = Clock::now();
    }
    engine.MoreComing(More::kSoon);
    std::vector<std::thread> threads;
    for (int i = 0; i < hands; ++i) threads.emplace_back([this] { Hand(); });
    for (std::thread& thread : threads) thread.join();
    if (error) std::rethrow_exception(error);
    Measured measured;
    measured.tiles = tiles;
    measured.seconds = std::chrono::duration<double>(ended - warm_at).count();
    for (size_t cause = 0; cause < kIdleCauses; ++cause)
      measured.idle_s[cause] = end_time.idle_s[cause] - warm_time.idle_s[cause];
    const double end_us = (profile.alive_s() - SecondsSince(ended)) * 1e6;
    for (const TraceEvent& event : profile.TakeTrace()) {
      if (std::strcmp(event.name, StageName(Stage::kCompute)) != 0) continue;
      if (static_cast<double>(event.begin_us + event.duration_us) > end_us) continue;
      measured.batch_s.push_back(static_cast<double>(event.duration_us) * 1e-6);
    }
    return measured;
  }
};

MemoryRun::MemoryRun(const MemoryItem& item, int64_t batch, int lanes, int hands, Engine& engine,
                     Profile& profile)
    : impl_(std::make_unique<Impl>(item, batch, lanes, hands, engine, profile)) {}

MemoryRun::~MemoryRun() = default;

MemoryRun::Measured MemoryRun::Run(double seconds) { return impl_->Run(seconds); }

ConstView MemoryRun::output() const { return impl_->OutputView(impl_->last_output.get()); }

}  // namespace tilery
