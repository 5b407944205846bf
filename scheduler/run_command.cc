#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>

#include "io/error.h"
#include "scheduler/commands.h"
#include "scheduler/compiled_model.h"
#include "scheduler/console.h"
#include "scheduler/coordinator.h"
#include "scheduler/devices.h"
#include "scheduler/gpu_choice.h"
#include "scheduler/grid_report.h"
#include "scheduler/numerics.h"
#include "scheduler/prepare.h"
#include "scheduler/probe_client.h"
#include "scheduler/report.h"
#include "scheduler/resume.h"
#include "scheduler/serve.h"
#include "scheduler/signals.h"
#include "scheduler/status.h"

namespace tilery {
namespace {

using Level = Console::Level;

std::string DescribeTiling(const Resolved& resolved, const Job& job) {
  auto text = [](const std::vector<int64_t>& values) {
    std::string out;
    for (int64_t v : values) out += fmt::format("{}{}", out.empty() ? "" : "x", v);
    return out;
  };
  return fmt::format("tile {}, overlap {}, trim {}, {}", text(resolved.tile),
                     text(resolved.overlap), text(resolved.trim),
                     WindowKindName(job.tiling.window));
}

// Nothing to infer: the result of a run in which every item is unchanged or refused.
RunResult NothingToDo(const Plan& plan, const Resume& resume) {
  RunResult result;
  for (size_t k = 0; k < plan.items.size(); ++k) {
    if (resume.items[k] == ItemState::kUnchanged) ++result.items_unchanged;
    if (resume.items[k] == ItemState::kFailed) {
      ++result.items_failed;
      result.failures.push_back({plan.items[k].input, "plan", plan.items[k].refused});
    }
  }
  result.status = result.items_failed > 0 ? "failed" : "done";
  return result;
}

std::string DescribeForm(const Numerics& n) {
  return fmt::format(" in {}, {}, batches of {}{}", n.precision, n.layout, n.batch,
                     n.package.empty() ? "" : ", compiled");
}

// Files of grids are coded on CPUs, unless the job names another device or its method needs one to
// be fast.
DeviceChoice DevicesOf(const Job& job) {
  const bool codes = job.task == Task::kCompress && job.max_error.method == GridMethod::kVq;
  if (job.task == Task::kInfer || codes || !job.execution.devices.empty())
    return ChooseDevices(job);
  Job on_cpu = job;
  on_cpu.execution.devices = {"cpu"};
  return ChooseDevices(on_cpu);
}

// Nothing of a device decides bytes of grids.
Numerics NumericsOfGrids() {
  Numerics numerics;
  numerics.device_kind = "any";
  return numerics;
}

void Announce(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
              const NumericsRecord& record, const std::vector<std::string>& warnings,
              Console& console) {
  const Resolved& r = prepared.resolved;
  for (const std::string& warning : warnings) console.Say(Level::kWarning, warning);
  if (job.task != Task::kInfer) {
    console.CountIn("files");
    return console.Say(Level::kInfo,
                       fmt::format("{}: {}; on {}", Printable(job.name), GridWords(job, r.plan),
                                   devices.gpu() ? devices.words : "the CPU"));
  }
  console.Say(
      Level::kInfo,
      fmt::format(
          "{}: {} items, {} tiles in {} units; {}; {} on {}{}", Printable(job.name),
          r.plan.items.size(), r.plan.tiles, r.plan.units, DescribeTiling(r, job),
          Printable(job.model.path), devices.words,
          devices.gpu() || prepared.model.compiled_only() ? DescribeForm(record.numerics) : ""));
  for (const auto& [key, source] : r.contract.source)
    console.Log(Level::kInfo, fmt::format("contract: {} from {}", key, source));
  if (!r.exact && !r.inexact_reason.empty()) console.Say(Level::kInfo, r.inexact_reason);
}

void Conclude(const Job& job, const RunResult& result, Console& console) {
  const std::string& work = job.execution.work;
  for (size_t k = 0; k < result.failures.size(); ++k) {
    const Failure& f = result.failures[k];
    const std::string item = Printable(f.item, 4096);
    // Most reasons begin with the file already.
    const std::string text = f.reason.rfind(item, 0) == 0
                                 ? fmt::format("{} (at {})", f.reason, f.stage)
                                 : fmt::format("{}: {}: {}", item, f.stage, f.reason);
    if (k < 20)
      console.Say(Level::kError, text);
    else
      console.Log(Level::kError, text);
  }
  if (result.failures.size() > 20)
    console.Say(Level::kError, fmt::format("and {} more failed items: {}/profile.json lists them",
                                           result.failures.size() - 20, Printable(work)));
  std::string line = fmt::format("{}: {} items done, {} unchanged, {} failed", result.status,
                                 result.items_done, result.items_unchanged, result.items_failed);
  if (job.task == Task::kInfer) line += fmt::format("; {} tiles", result.tiles_inferred);
  line += fmt::format(" in {:.1f} s", result.wall_s);
  if (result.tiles_repeated > 0) line += fmt::format(", {} run again", result.tiles_repeated);
  if (!result.interrupted_by.empty()) line += fmt::format(" ({})", result.interrupted_by);
  if (result.status == "interrupted") line += "; the same command resumes";
  // What is measured on the way is no end.
  if (job.task == Task::kMeasure && result.status == "done") return console.Log(Level::kInfo, line);
  console.Say(Level::kInfo, line);
  console.Say(Level::kInfo, fmt::format("report: {}/report.html", Printable(work)));
}

}  // namespace

namespace {

// The document of a run that ends before it has begun.
void TellInterrupted(const Job& job, double wall_s, const TakeDocument& take) {
  if (!take) return;
  RunResult result;
  result.status = "interrupted";
  result.wall_s = wall_s;
  take(SummaryJson(result, {}, job.execution.work));
}

// Where each rank is shown GPUs of its own, the desk of hosts decides as they join.
void CheckRanks(const Crowd& crowd, const DeviceChoice& devices) {
  const auto gpus = static_cast<int>(devices.seats.size());
  if (crowd.ranks == 0 || crowd.workers || !devices.gpu() || crowd.ranks_here <= gpus) return;
  if (std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return;
  throw Error(
      Fault::kUsage,
      fmt::format("mpirun has started {} ranks on this host, which has {} GPUs for them: {}. "
                  "Start at most {} here, or say --workers N with how many each rank has, "
                  "which then share GPUs",
                  crowd.ranks_here, gpus, devices.words, gpus));
}

// Under the lock of the work folder. `early` goes when there is something to drain. `planned`
// becomes true once the ledger holds the plan's claims.
int RunLocked(const Job& job, const TakeDocument& take, const Crowd& crowd,
              std::optional<EarlyEnd>& early, bool& planned) {
  const auto begin = std::chrono::steady_clock::now();
  Console console;
  const std::filesystem::path work = job.execution.work;
  console.OpenLog(work);
  Ledger ledger(work);
  const bool infer = job.task == Task::kInfer;
  const DeviceChoice devices = DevicesOf(job);
  CheckRanks(crowd, devices);
  const Prepared prepared = Prepare(job, &ledger);
  const Plan& plan = prepared.resolved.plan;

  std::vector<std::string> warnings = devices.warnings;
  warnings.insert(warnings.end(), prepared.warnings.begin(), prepared.warnings.end());
  ProbeAnswer device;
  if (infer) {
    device = AskWorker(ProbeRequest{}, devices.seats[0], warnings);
    CheckMayCompile(job, prepared.model);
  }
  const auto say = [&](const std::string& line) { console.Say(Level::kInfo, line); };
  GpuChoice choice;
  Numerics& numerics = choice.numerics;
  if (!infer) {
    numerics = NumericsOfGrids();
  } else if (devices.gpu() && !plan.params.empty() && job.execution.numerics_file.empty()) {
    choice = ChooseForGpu(job, prepared, devices, device, work, say, warnings);
  } else if (!devices.gpu()) {
    numerics = ChooseForCpu(job, prepared, device, work, say);
  } else {
    numerics.batch = 0;
    numerics.precision = PrecisionOf(job, plan.params, true);
    numerics.device_kind = device.device_kind;
    numerics.torch = device.torch;
  }
  const NumericsRecord record =
      DecideNumerics(job, prepared.resolved, prepared.model.Key(), numerics, work);
  const Resume resume =
      PlanResume(plan, job.outputs[0].existing, record.Key(), job.execution.scratch, ledger);
  planned = true;
  KeepNumerics(record, work);
  KeepReport(choice, work);
  Announce(job, prepared, devices, record, warnings, console);
  SweepDead(plan, record.Key(), job.execution.scratch, ledger);
  early.reset();

  bool open = false;
  for (ItemState state : resume.items) open = open || state == ItemState::kOpen;
  Served served =
      open ? Serve(job, prepared, devices, record, choice.graph, resume, crowd, ledger, console)
           : Served{NothingToDo(plan, resume), "", {}};
  RunResult& result = served.result;
  if (!served.refusal.empty()) {
    planned = result.units_run + result.units_reused + result.items_unchanged > 0;
    console.Finish();
    throw Error(Fault::kUsage, served.refusal);
  }
  // All workers have ended: what one that was killed left half-written goes, too.
  if (result.status != "interrupted") {
    SweepDead(plan, record.Key(), job.execution.scratch, ledger, true);
  }
  result.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  ReportContext context;
  context.job = job.name;
  context.model = prepared.model.path;
  context.model_hash = prepared.model.hash;
  context.device_kind = device.device_kind;
  context.torch = device.torch;
  context.precision = record.numerics.precision;
  context.batch = record.numerics.batch;
  context.layout = record.numerics.layout;
  context.compiled = !record.numerics.package.empty();
  context.tuning = choice.report;
  context.tiles = plan.tiles;
  context.items = static_cast<int64_t>(plan.items.size());
  context.units = plan.units;
  context.redundancy = prepared.resolved.redundancy;
  context.tiling = DescribeTiling(prepared.resolved, job);
  context.deviations = record.deviations;
  const std::string different = DifferenceWords(result);
  if (!different.empty()) context.deviations.push_back(different);
  context.reproducible = context.deviations.empty();
  context.warnings = warnings;
  for (const std::string& retired : served.retired) context.warnings.push_back(retired);
  const std::string careful = CarefulWords(result, context.precision);
  if (!careful.empty()) context.warnings.push_back(careful);
  try {
    WriteReports(work, result, context);
  } catch (const Error& e) {
    if (e.fault() != Fault::kOutput) throw;
    console.Say(Level::kError, fmt::format("no report of this run: {}", e.what()));
  }
  if (!open) {
    Progress progress;
    progress.state = result.status;
    progress.tiles = plan.tiles;
    progress.tiles_done = plan.tiles;
    progress.done = plan.units;
    progress.eta_s = 0;
    WriteStatus(work, progress);
  }
  console.Finish();
  for (const std::string& words : {careful, different})
    if (!words.empty()) console.Say(Level::kWarning, words);
  Conclude(job, result, console);
  if (job.task == Task::kCompress) {
    for (const std::string& line : GridReportLines(plan)) console.Say(Level::kInfo, line);
  }
  if (take) take(SummaryJson(result, context, work.string()));
  if (result.status == "interrupted") return kExitInterrupted;
  return result.items_failed > 0 ? kExitFailedItems : 0;
}

// A full disk may be emptied, by others or by whoever reads our message. An error holds the
// system's reason in words only, but they are those of Errno() in this very process.
bool WaitingMayHelp(const Error& e) {
  const std::string what = e.what();
  const auto says = [&](int reason) { return what.find(Errno("", reason)) != std::string::npos; };
  return e.fault() == Fault::kOutput && (says(ENOSPC) || says(EDQUOT));
}

// A mistake leaves nothing behind where nothing was before.
void Discard(const Job& job, WorkLock& lock) {
  if (!lock.made_folder()) return;
  const std::filesystem::path work = job.execution.work;
  std::error_code ignored;
  for (const char* name :
       {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "ledger.sqlite-journal",
        "log.jsonl", "numerics.json", "status.json", "tuning.json"})
    std::filesystem::remove(work / name, ignored);
  for (const auto& entry : std::filesystem::directory_iterator(work, ignored)) {
    const std::string name = entry.path().filename().string();
    if ((name.rfind("worker-", 0) == 0 && name.ends_with(".log")) ||
        (name.rfind("model-", 0) == 0 && name.ends_with(".pt2")))
      std::filesystem::remove(entry.path(), ignored);
  }
  lock.Discard();
}

}  // namespace

int RunCommand(const Job& job, const TakeDocument& take, const Crowd& crowd) {
  InstallDrainSignals();
  const auto begin = std::chrono::steady_clock::now();
  const auto wall_s = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::optional<EarlyEnd> early(std::in_place, [&](const std::string& signal) {
    std::cerr << signal << ": nothing is begun yet; the same command starts again" << std::endl;
    TellInterrupted(job, wall_s(), take);
  });
  std::optional<WorkLock> lock;
  bool planned = false;
  try {
    lock.emplace(job.execution.work);
    return RunLocked(job, take, crowd, early, planned);
  } catch (const Error& e) {
    if (lock && !planned) Discard(job, *lock);
    early.reset();
    if (!WaitingMayHelp(e)) throw;
    std::cerr << "tilery: " << e.what() << "\nThe same command goes on once there is room"
              << std::endl;
    TellInterrupted(job, wall_s(), take);
    return kExitInterrupted;
  }
}

}  // namespace tilery
