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
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/bench_engine.h"
#include "tests/bench/engine_in_memory.h"

namespace tilery {
namespace {

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
  config.AddTo(app);
  CLI11_PARSE(app, argc, argv);

  Profile profile;
  PlainLoop plain(config);
  InMemory engine(config,
                  [&](const EngineOptions& options) { return BenchEngine(options, profile); });
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
