// How many units a second the scheduler gives out, judges and records: a real coordinator and
// ledger, and light workers in processes of their own that speak the real protocol over loopback
// and do nothing.
//
//   scheduler_bench [units] [workers] [folder]      200000 4 /tmp/...
//   scheduler_bench --steady RATE [units] [workers] [folder]
//   scheduler_bench --apart --steady RATE ...
//
// By default each worker holds many units and reports all at once: the most that the scheduler can
// do. Steady: each holds a few and takes as long over one as gives RATE units/s over all workers,
// reports it and asks for the next: how long leases take at that rate. If the scheduler cannot keep
// up, the rate that is printed is lower. Apart: the scheduler has two cores, and the workers have
// the others, as if they were on other hosts.
//
// Prints units/s, the time from a worker's reports to its next leases (median, 99th percentile),
// the processor time of both sides and the scheduler's peak memory.
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "scheduler/coordinator.h"
#include "scheduler/resume.h"
#include "tests/bench/light_workers.h"

namespace tilery {
namespace {

constexpr int64_t kAhead = 256, kSteadyAhead = 4;  // units a worker may hold
constexpr int kProcesses = 4;                      // at most, for all workers

Plan TinyPictures(int64_t count) {
  Plan plan;
  ItemParams params;
  params.tiling.tile = {1, 64, 64};
  params.transfer.passes.resize(1);
  params.output.format = "png";
  plan.params.push_back(params);
  for (int64_t i = 0; i < count; ++i) {
    Item item;
    item.input = "/data/photos/picture" + std::to_string(i) + ".png";
    item.output = "/data/results/picture" + std::to_string(i) + ".png";
    item.header.format = "png";
    item.header.shape = {1, 64, 64};
    item.header.channels = 3;
    item.key = HashText(item.input);
    item.tiles = item.infer_units = 1;
    item.first_unit = plan.units++;
    plan.items.push_back(std::move(item));
  }
  plan.tiles = count;
  return plan;
}

double CpuSeconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Of the cores that this process may use, only the first two, or only the others. False if there
// are no others.
bool UseCores(bool first_two) {
  cpu_set_t all, some;
  CPU_ZERO(&all);
  CPU_ZERO(&some);
  if (sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < 3) return false;
  int seen = 0;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &all) && (seen++ < 2) == first_two) CPU_SET(cpu, &some);
  }
  return sched_setaffinity(0, sizeof some, &some) == 0;
}

int Main(int argc, char** argv) {
  double rate = 0;
  const bool apart = argc > 1 && std::string_view(argv[1]) == "--apart";
  if (apart) ++argv, --argc;
  if (argc > 2 && std::string_view(argv[1]) == "--steady") {
    rate = std::atof(argv[2]);
    argv += 2;
    argc -= 2;
  }
  const int64_t units = argc > 1 ? std::atoll(argv[1]) : 200000;
  const int workers = argc > 2 ? std::atoi(argv[2]) : 4;
  const std::filesystem::path folder = argc > 3
                                           ? argv[3]
                                           : std::filesystem::temp_directory_path() /
                                                 ("scheduler_bench." + std::to_string(getpid()));
  std::filesystem::create_directories(folder / "scratch");

  int64_t port_and_epoch[2] = {0, 0};
  const std::string token = NewToken();
  const int processes = rate > 0 ? 1 : std::min(workers, kProcesses);
  std::vector<int> waits_fds;
  std::vector<pid_t> children;
  std::vector<int> start_fds;
  for (int i = 0; i < processes; ++i) {
    int start[2], waits[2];
    if (pipe(start) != 0 || pipe(waits) != 0) return 1;
    const pid_t child = fork();
    if (child == 0) {
      close(start[1]);
      if (read(start[0], port_and_epoch, sizeof port_and_epoch) != sizeof port_and_epoch) _exit(1);
      if (apart && !UseCores(false)) _exit(1);
      LightWorkers light;
      light.first = i * workers / processes;
      light.count = (i + 1) * workers / processes - light.first;
      light.port = static_cast<uint16_t>(port_and_epoch[0]);
      light.token = token;
      light.epoch = port_and_epoch[1];
      light.ahead = rate > 0 ? kSteadyAhead : kAhead;
      light.unit_s = rate > 0 ? workers / rate : 0;
      RunLightWorkers(light, waits[1]);
      _exit(0);
    }
    close(start[0]), close(waits[1]);
    children.push_back(child);
    start_fds.push_back(start[1]);
    waits_fds.push_back(waits[0]);
  }

  if (apart && !UseCores(true)) {
    std::fprintf(stderr, "--apart: three or more cores are needed\n");
    return 2;
  }
  const auto planned = std::chrono::steady_clock::now();
  const Plan plan = TinyPictures(units);
  Ledger ledger(folder);
  WorkerContext context;
  context.work = folder;
  context.scratch = folder / "scratch";
  context.numerics_key = "bench";
  context.params = plan.params;
  RunOptions options;
  options.token = token;
  options.work = folder;
  options.scratch = context.scratch;
  const Resume resume =
      PlanResume(plan, Existing::kRefuse, context.numerics_key, context.scratch, ledger);
  Coordinator coordinator(plan, resume, ledger, context, options);
  const double plan_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - planned).count();
  port_and_epoch[0] = coordinator.port();
  port_and_epoch[1] = ledger.epoch();
  const double cpu_before = CpuSeconds(RUSAGE_SELF);
  for (int fd : start_fds) (void)!write(fd, port_and_epoch, sizeof port_and_epoch);
  const RunResult result = coordinator.Run({}, {});
  const double cpu = CpuSeconds(RUSAGE_SELF) - cpu_before;

  std::vector<int32_t> waits;
  for (int fd : waits_fds) {
    int32_t buffer[4096];
    for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;) {
      waits.insert(waits.end(), buffer, buffer + got / static_cast<ssize_t>(sizeof buffer[0]));
    }
  }
  for (pid_t child : children) waitpid(child, nullptr, 0);
  std::sort(waits.begin(), waits.end());
  const auto at = [&](double share) {
    return waits.empty()
               ? 0.0
               : 1e-3 * waits[static_cast<size_t>(share * static_cast<double>(waits.size() - 1))];
  };
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  std::printf("units %lld  workers %d  status %s  wall %.2f s  %.0f units/s\n",
              static_cast<long long>(units), workers, result.status.c_str(), result.wall_s,
              static_cast<double>(result.units_run) / result.wall_s);
  std::printf("claims and resume %.2f s  scheduler cpu %.2f s  workers cpu %.2f s\n", plan_s, cpu,
              CpuSeconds(RUSAGE_CHILDREN));
  std::printf(
      "reports to next leases: p50 %.2f ms  p99 %.2f ms  (%zu batches)  peak memory %.0f MB\n",
      at(0.5), at(0.99), waits.size(), static_cast<double>(usage.ru_maxrss) / 1024);
  if (argc <= 3) std::filesystem::remove_all(folder);
  return result.status == "done" && result.units_run == units ? 0 : 1;
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) { return tilery::Main(argc, argv); }
