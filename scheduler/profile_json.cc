#include <fmt/format.h>

#include <map>
#include <span>

#include "io/error.h"
#include "io/file.h"
#include "scheduler/report.h"
#include "scheduler/together.h"

namespace tilery {
namespace {

Json WorkerJson(const WorkerReport& worker) {
  return {{"id", worker.id},
          {"host", Printable(worker.host)},
          {"pid", worker.pid},
          {"device", Printable(worker.device)},
          {"joined_s", worker.joined_s},
          {"left_s", worker.left_s},
          {"last_s", worker.last_s},
          {"tiles", worker.tiles},
          {"units", worker.units},
          {"repeated", worker.repeated},
          {"careful", worker.careful},
          {"busy_s", worker.busy_s},
          {"idle_s", worker.idle_s},
          {"stages", worker.stages.is_object() ? worker.stages : Json::object()},
          {"model_s", worker.model_s},
          {"model_idle_s", worker.model_idle_s.is_object() ? worker.model_idle_s : Json::object()},
          {"queues", worker.queues.is_object() ? worker.queues : Json::object()},
          {"model", worker.model.is_object() ? worker.model : Json::object()},
          {"peak_host_bytes", worker.peak_host_bytes},
          {"peak_device_bytes", worker.peak_device_bytes},
          {"steady_allocations", worker.steady_allocations}};
}

Json OrNull(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

}  // namespace

std::string BoundBy(const RunResult& result) {
  // A stage's time is summed over its threads; the worker's own life is the yardstick for all of
  // them.
  std::string best = "none";
  double most = 0, alive = 0;
  std::map<std::string, double> seconds;
  for (const WorkerReport& worker : result.workers) {
    alive += worker.busy_s + worker.idle_s;
    if (!worker.stages.is_object()) continue;
    for (const auto& [name, totals] : worker.stages.items())
      seconds[name] += totals.value("s", 0.0);
  }
  for (const auto& [name, s] : seconds)
    if (s > most) best = name, most = s;
  if (result.workers.empty()) return "none";
  return most < 0.1 * alive ? "start-up" : best;
}

std::string DifferenceWords(const RunResult& result) {
  if (result.units_different == 0) return "";
  std::string names;
  for (const std::string& item : result.different)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", Printable(item, 4096));
  return fmt::format(
      "{} units were computed twice with different results, although nothing that decides bytes "
      "differs: {}. A device may be faulty; the run is not reproducible",
      result.units_different, names);
}

std::string CarefulWords(const RunResult& result, const std::string& precision) {
  if (result.tiles_careful == 0) return "";
  constexpr size_t kNames = 5;
  std::string names;
  size_t named = 0;
  for (const auto& [item, tiles] : result.careful_items) {
    if (named++ == kNames) {
      names += ", ... (profile.json names more)";
      break;
    }
    names += fmt::format("{}{} ({})", named == 1 ? "" : ", ", Printable(item, 4096), tiles);
  }
  return fmt::format(
      "{} of {} tiles were not finite in {} and ran once more in fp32, which is slower: {}. "
      "model.precision tf32 or fp32 avoids this",
      result.tiles_careful, result.tiles_inferred, precision, names);
}

Json ProfileJson(const RunResult& result, const ReportContext& context) {
  Json workers = Json::array(), failures = Json::array(), careful = Json::array();
  for (const auto& [item, tiles] : result.careful_items)
    careful.push_back({{"item", Printable(item, 8192)}, {"tiles", tiles}});
  for (const WorkerReport& worker : result.workers) workers.push_back(WorkerJson(worker));
  for (const Failure& failure : result.failures)
    failures.push_back({{"item", Printable(failure.item, 8192)},
                        {"stage", failure.stage},
                        {"reason", Printable(failure.reason, 4000)}});
  return {{"wall_s", result.wall_s},
          {"first_lease_s", OrNull(result.first_lease_s)},
          {"last_publish_s", OrNull(result.last_publish_s)},
          {"tiles", result.tiles_inferred},
          {"tiles_repeated", result.tiles_repeated},
          {"tiles_careful", result.tiles_careful},
          {"units_twice", result.units_twice},
          {"units_different", result.units_different},
          {"careful_items", careful},
          {"tiles_per_s", result.wall_s > 0 ? result.tiles_inferred / result.wall_s : 0.0},
          {"bound_by", BoundBy(result)},
          {"together", TogetherJson(result)},
          {"workers", workers},
          {"failures", failures},
          {"job",
           {{"name", Printable(context.job)},
            {"model", Printable(context.model)},
            {"model_hash", context.model_hash},
            {"device_kind", Printable(context.device_kind)},
            {"torch", context.torch},
            {"precision", context.precision},
            {"batch", context.batch},
            {"layout", context.layout},
            {"compiled", context.compiled},
            {"tuning", context.tuning},
            {"tiling", context.tiling},
            {"items", context.items},
            {"tiles", context.tiles},
            {"units", context.units},
            {"redundancy", context.redundancy},
            {"warnings", context.warnings}}}};
}

void WriteTrace(const std::filesystem::path& path, const RunResult& result) {
  // As text, event by event: as a document in memory it would be ten times its size in the file.
  OutputFile file(path, SmallFileAttempt(), 0644);
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  const auto flush = [&](size_t limit) {
    if (text.size() < limit) return;
    file.Write(std::as_bytes(std::span(text)));
    text.clear();
  };
  for (size_t k = 0; k < result.workers.size(); ++k) {
    const WorkerReport& worker = result.workers[k];
    text +=
        fmt::format(R"({}{{"name":"process_name","ph":"M","pid":{},"args":{{"name":{}}}}})",
                    k > 0 ? ",\n" : "\n", k, Json(worker.id + " " + Printable(worker.host)).dump());
    for (const TraceRow& row : worker.trace) {
      text += fmt::format(
          R"(,
{{"name":{},"ph":"X","pid":{},"tid":{},"ts":{},"dur":{},"args":{{"unit":{}}}}})",
          Json(Printable(row.name)).dump(), k, row.thread, row.begin_us, row.duration_us, row.unit);
      flush(1 << 20);
    }
  }
  text += "\n]}\n";
  flush(0);
  file.Publish(Durability::kRename);
}

Json SummaryJson(const RunResult& result, const ReportContext& context, const std::string& work) {
  return {{"status", result.status},
          {"items_done", result.items_done},
          {"items_failed", result.items_failed},
          {"items_unchanged", result.items_unchanged},
          {"tiles_inferred", result.tiles_inferred},
          {"tiles_skipped", result.tiles_skipped},
          {"tiles_repeated", result.tiles_repeated},
          {"tiles_reused", result.tiles_reused},
          {"units_run", result.units_run},
          {"units_reused", result.units_reused},
          {"reproducible", context.reproducible},
          {"deviations", context.deviations},
          {"wall_s", result.wall_s},
          {"work", Printable(work, 8192)}};
}

void WriteReports(const std::filesystem::path& work, const RunResult& result,
                  const ReportContext& context) {
  const Json profile = ProfileJson(result, context);
  WriteFileAtomically(work / "profile.json", profile.dump(1) + "\n", Durability::kRename);
  WriteTrace(work / "trace.json", result);
  WriteFileAtomically(work / "report.html",
                      ReportHtml(profile, result, SummaryJson(result, context, work.string())),
                      Durability::kRename);
}

}  // namespace tilery
