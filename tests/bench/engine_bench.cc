// How near the engine in memory comes to a plain loop of forward passes, with the same cores,
// batches and model in the same process:
//
//   engine_bench MODEL.pt --dims 2 --tile 256 --overlap 32 --scale 2 --in 3 --out 3 [--batch 8]
//   [--lanes 2]
//                [--batches 4] [--rounds 5] [--dtype u8]
//
// The plain loop knows neither tiles nor samples: it calls the model on one fixed tensor per
// thread. Its best form is the ceiling: LANES threads with one intra-op thread each, or one thread
// with LANES intra-op threads. Rounds of all three alternate, since other work on the machine comes
// and goes; the table has medians, and the ratio is the median of the rounds' own ratios. CPU time
// per tile is printed beside, as it suffers less from other work.
#include <ATen/Parallel.h>
#include <ATen/ops/rand.h>
#include <c10/core/InferenceMode.h>
#include <sys/resource.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <future>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/engine.h"

namespace tilery {
namespace {

struct Config {
  std::string model, dtype = "u8", scale = "1";
  int dims = 2, lanes = 2, rounds = 5;
  int64_t tile = 256, overlap = 32, batch = 8, batches = 4;
  int32_t in = 3, out = 3;

  int64_t tiles() const { return batch * batches * lanes; }
};

struct Cost {
  double wall = 0, cpu = 0;  // seconds per tile
};

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <typename Body>
Cost Measure(int64_t tiles, const Body& body) {
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return {wall.count() / static_cast<double>(tiles),
          (CpuSeconds() - cpu) / static_cast<double>(tiles)};
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class PlainLoop {
 public:
  explicit PlainLoop(const Config& config) : config_(config) {
    module_ = torch::jit::load(config.model, c10::Device(c10::kCPU));
    module_.eval();
    module_ = torch::jit::freeze(module_);
  }

  Cost Run(int threads, int intra_op) {
    return Measure(config_.tiles(), [&] {
      std::vector<std::thread> workers;
      for (int i = 0; i < threads; ++i) {
        workers.emplace_back([&] {
          at::set_num_threads(intra_op);
          const c10::InferenceMode inference;
          std::vector<int64_t> shape{config_.batch, config_.in};
          shape.insert(shape.end(), config_.dims, config_.tile);
          const at::Tensor input = at::rand(shape);  // constants run faster than pictures
          const int64_t batches = config_.batches * config_.lanes / threads;
          for (int64_t b = 0; b < batches; ++b) module_.forward({input});
        });
      }
      for (std::thread& worker : workers) worker.join();
    });
  }

 private:
  const Config& config_;
  torch::jit::Module module_;
};

class InMemory {
 public:
  InMemory(const Config& config, Profile& profile) : config_(config) {
    Tiling tiling;
    for (int a = 3 - config.dims; a < 3; ++a) {
      tiling.tile[a] = config.tile;
      tiling.overlap[a] = config.overlap;
      tiling.scale[a] = Rational::Parse(config.scale);
      shape_[a] = config.tile;
    }
    // A row of tiles: all of them full, each with neighbours.
    shape_[2] += (config.tiles() - 1) * (config.tile - config.overlap);
    transfer_.in_dtype = transfer_.out_dtype = DTypeFromName(config.dtype);
    transfer_.raw_hi = IsInteger(transfer_.in_dtype) ? HighestOf(transfer_.in_dtype) : 1;
    transfer_.model_in = config.in;
    transfer_.model_out = transfer_.accumulators = transfer_.out_channels = config.out;
    Pass pass;
    for (int32_t c = 0; c < config.in; ++c) pass.in.push_back(c);
    for (int32_t c = 0; c < config.out; ++c) pass.out.push_back(c);
    pass.out_count = config.out;
    transfer_.passes = {pass};
    UnitSizing sizing;
    sizing.tiles = config.tiles();
    sizing.accumulator_bytes = int64_t{4} << 30;
    sizing.channels = config.out;
    geometry_ = std::make_shared<const ItemGeometry>(shape_, tiling, sizing);
    samples_.resize(Product(shape_) * config.in * DTypeSize(transfer_.in_dtype));
    std::minstd_rand random(1);
    for (size_t i = 0; i < samples_.size(); ++i) {
      samples_[i] = static_cast<std::byte>(IsInteger(transfer_.in_dtype) ? random() : 0);
    }

    EngineOptions options;
    options.model = config.model;
    options.lanes = config.lanes;
    options.dims = config.dims;
    options.channels_in = config.in;
    options.channels_out = config.out;
    options.tile = tiling.tile;
    options.scale = tiling.scale;
    options.numerics.batch = config.batch;
    engine_ = Engine::Create(options, profile);
  }

  Cost Run() {
    return Measure(geometry_->grid().tiles(), [&] {
      std::vector<std::future<void>> ends;
      for (int64_t block = 0; block < geometry_->units(); ++block) {
        InferWork work;
        work.unit = block;
        work.item_name = "bench";
        work.geometry = geometry_;
        work.block = block;
        work.transfer = std::make_shared<const Transfer>(transfer_);
        work.input_box = Box::Whole(shape_);
        work.input = DenseView(static_cast<const std::byte*>(samples_.data()), transfer_.in_dtype,
                               config_.in, shape_, Layout::kInterleaved);
        auto end = std::make_shared<std::promise<void>>();
        ends.push_back(end->get_future());
        engine_->Submit(std::move(work), [end](InferResult result) {
          if (auto* error = std::get_if<std::exception_ptr>(&result)) {
            end->set_exception(*error);
          } else {
            end->set_value();
          }
        });
      }
      for (auto& end : ends) end.get();
    });
  }

 private:
  const Config& config_;
  Index shape_{1, 1, 1};
  Transfer transfer_;
  std::shared_ptr<const ItemGeometry> geometry_;
  std::vector<std::byte> samples_;
  std::unique_ptr<Engine> engine_;
};

void Print(const char* name, const std::vector<Cost>& costs) {
  std::vector<double> wall, cpu;
  for (const Cost& cost : costs) {
    wall.push_back(1 / cost.wall);
    cpu.push_back(cost.cpu);
  }
  std::printf("%-36s %10.3f %14.4f\n", name, Median(wall), Median(cpu));
}

int Main(int argc, char** argv) {
  Config config;
  CLI::App app("Engine in memory against a plain loop of forward passes");
  app.add_option("model", config.model, "TorchScript file")->required();
  app.add_option("--dims", config.dims);
  app.add_option("--tile", config.tile);
  app.add_option("--overlap", config.overlap);
  app.add_option("--scale", config.scale);
  app.add_option("--in", config.in);
  app.add_option("--out", config.out);
  app.add_option("--batch", config.batch);
  app.add_option("--batches", config.batches, "per lane and round");
  app.add_option("--lanes", config.lanes);
  app.add_option("--rounds", config.rounds);
  app.add_option("--dtype", config.dtype, "of stored samples, in and out");
  CLI11_PARSE(app, argc, argv);

  Profile profile;
  PlainLoop plain(config);
  InMemory engine(config, profile);
  plain.Run(config.lanes, 1);  // warm: the executor specialises in the first runs
  plain.Run(1, config.lanes);
  engine.Run();
  const auto before = profile.totals();

  std::vector<Cost> lanes, intra, ours;
  std::vector<double> wall_ratio, cpu_ratio;
  for (int round = 0; round < config.rounds; ++round) {
    lanes.push_back(plain.Run(config.lanes, 1));
    ours.push_back(engine.Run());
    intra.push_back(plain.Run(1, config.lanes));
    wall_ratio.push_back(std::min(lanes.back().wall, intra.back().wall) / ours.back().wall);
    cpu_ratio.push_back(lanes.back().cpu / ours.back().cpu);
  }
  std::printf("%-36s %10s %14s\n", "", "tiles/s", "CPU s per tile");
  Print("plain loop, a thread per lane", lanes);
  Print("plain loop, one thread with intra-op", intra);
  Print("engine in memory", ours);
  std::printf("engine / best plain loop: %.1f %% (CPU time: %.1f %% of a thread per lane)\n",
              100 * Median(wall_ratio), 100 * Median(cpu_ratio));
  const auto after = profile.totals();
  for (int s = 0; s < kStages; ++s) {
    if (after[s].calls == before[s].calls) continue;
    std::printf("  %-8s %9.3f s\n", StageName(static_cast<Stage>(s)), after[s].s - before[s].s);
  }
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::Main(argc, argv); }
