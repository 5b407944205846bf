// What it costs that an engine records a profile, measured in two ways:
//
//   profile_bench MODEL.pt [options of engine_bench]         profile_bench_cuda: on the first GPU
//
// Pairs: the same job in memory with and without recording, by turns, each first in every other
// pair, since other work on the machine comes and goes; the ratio is the median of the pairs' own,
// with the quartiles, which say how far it can be trusted. Calls: what one recorded piece of work
// costs, with as many threads at it as there are lanes, times how many there are in a batch,
// against the time of a batch. The second has hardly any noise, and leaves out what recording does
// to others: caches, and on GPUs the events that are recorded for it.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>

#include "pipeline/profile.h"
#include "pipeline/profile_switch.h"
#include "tests/bench/bench_engine.h"
#include "tests/bench/engine_in_memory.h"

namespace tilery {
namespace {

int64_t Calls(const Profile& profile) {
  int64_t calls = 0;
  for (const StageTotals& totals : profile.totals()) calls += totals.calls;
  return calls;
}

// Seconds for one piece of work with nothing in it.
double CallCost() {
  constexpr int64_t kCalls = 200'000;
  Profile profile;
  const auto begin = std::chrono::steady_clock::now();
  for (int64_t k = 0; k < kCalls; ++k) {
    const Profile::Scope scope(profile, k % 2 == 0 ? Stage::kCompute : Stage::kBlend, k);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(kCalls);
}

int Main(int argc, char** argv) {
  Config config;
  config.rounds = 15;
  CLI::App app("The cost of recording a profile");
  config.AddTo(app);
  CLI11_PARSE(app, argc, argv);

  Profile profile;
  InMemory engine(config,
                  [&](const EngineOptions& options) { return BenchEngine(options, profile); });
  engine.Run();
  engine.Run();

  std::vector<double> with, without, ratio;
  const int64_t before = Calls(profile);
  for (int round = 0; round < config.rounds; ++round) {
    for (int turn = 0; turn < 2; ++turn) {
      const bool record = (round + turn) % 2 == 0;
      RecordProfiles(record);
      (record ? with : without).push_back(engine.Run().wall);
    }
    ratio.push_back(with.back() / without.back());
  }
  RecordProfiles(true);
  const auto batches = static_cast<double>(config.rounds * engine.batches());
  const double calls = static_cast<double>(Calls(profile) - before) / batches;
  const double call_s = CallCost();
  const double batch_s =
      Median(with) * static_cast<double>(config.batch) * static_cast<double>(config.lanes);

  std::sort(ratio.begin(), ratio.end());
  const size_t last = ratio.size() - 1;
  std::printf("recording: %.3f tiles/s, without: %.3f tiles/s (medians of %d)\n", 1 / Median(with),
              1 / Median(without), config.rounds);
  std::printf("pairs: %+.2f %% of the time (quartiles %+.2f to %+.2f %%)\n",
              100 * (Median(ratio) - 1), 100 * (ratio[last / 4] - 1),
              100 * (ratio[last - last / 4] - 1));
  std::printf("calls: %.1f a batch x %.2f us = %.4f %% of a batch of %.2f ms\n", calls,
              1e6 * call_s, 100 * calls * call_s / batch_s, 1e3 * batch_s);
  return 0;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) {
  try {
    return tilery::Main(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "profile_bench: %s\n", e.what());
    return 1;
  }
}
