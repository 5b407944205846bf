// Commands that look at a work folder: status, verify, report, trace.
#include <fmt/format.h>

#include <iostream>

#include "io/error.h"
#include "scheduler/commands.h"
#include "scheduler/ledger.h"
#include "scheduler/pipeline.h"
#include "scheduler/status.h"

namespace tilery {
namespace fs = std::filesystem;

fs::path WorkFolderOf(const std::string& work_or_job, const std::string& stage) {
  const fs::path given = fs::absolute(work_or_job);
  if (fs::is_directory(given)) {
    if (stage.empty()) return given;
    throw Error(Fault::kUsage, fmt::format("--stage {}: {} is a work folder, which is of one stage",
                                           Printable(stage, 80), Printable(work_or_job)));
  }
  if (!fs::exists(given))
    throw Error(Fault::kUsage,
                fmt::format("{}: neither a work folder nor a job file", Printable(work_or_job)));
  const Pipeline pipeline = LoadPipeline(given, {}, stage);
  if (pipeline.stages.size() == 1) return pipeline.stages[0].job.execution.work;
  std::string names;
  for (const Stage& each : pipeline.stages) names += (names.empty() ? "" : ", ") + each.name;
  throw Error(Fault::kUsage, fmt::format("{} holds several jobs; choose with --stage: {}",
                                         Printable(work_or_job), Printable(names, 1000)));
}

int StatusCommand(const fs::path& work, const TakeDocument& take) {
  const Json status = ReadStatus(work);
  if (take) {
    take(status);
    return 0;
  }
  const Json& units = status.at("units");
  std::cout << fmt::format("{}: {}/{} tiles; units: {} waiting, {} leased, {} done, {} failed\n",
                           status.at("state").get<std::string>(),
                           status.at("tiles_done").get<int64_t>(),
                           status.at("tiles").get<int64_t>(), units.at("waiting").get<int64_t>(),
                           units.at("leased").get<int64_t>(), units.at("done").get<int64_t>(),
                           units.at("failed").get<int64_t>());
  for (const Json& worker : status.at("workers"))
    std::cout << fmt::format("  {} on {} (pid {}, {}): {}\n", worker.at("id").get<std::string>(),
                             worker.at("host").get<std::string>(), worker.at("pid").get<int64_t>(),
                             worker.at("device").get<std::string>(),
                             worker.at("state").get<std::string>());
  return 0;
}

int VerifyCommand(const fs::path& work, bool json) {
  if (!fs::exists(work / "ledger.sqlite"))
    throw Error(Fault::kUsage,
                fmt::format("{}: no ledger here; nothing has run in it", Printable(work.string())));
  const WorkLock lock(work);
  const Ledger ledger(work);
  int64_t whole = 0;
  Json wrong = Json::array();
  ledger.EachOutput([&](const OutputRecord& record) {
    std::string reason;
    if (!record.published) {
      reason = "not done";
    } else {
      try {
        const auto stamp = StampOf(record.path);
        if (!stamp)
          reason = "missing";
        else if (stamp->size != record.file.size)
          reason = fmt::format("{} bytes, {} recorded", stamp->size, record.file.size);
        else if (HashFile(record.path) != record.file.hash)
          reason = "content differs from what was published";
      } catch (const Error& e) {
        reason = e.what();
      }
    }
    if (reason.empty())
      ++whole;
    else
      wrong.push_back(
          {{"output", Printable(record.path, 8192)}, {"reason", Printable(reason, 2000)}});
  });
  const int64_t all = whole + static_cast<int64_t>(wrong.size());
  if (json) {
    std::cout << Json{{"outputs", all}, {"whole", whole}, {"wrong", wrong}}.dump() << std::endl;
  } else {
    for (const Json& entry : wrong)
      std::cout << entry.at("output").get<std::string>() << ": "
                << entry.at("reason").get<std::string>() << "\n";
    std::cout << fmt::format("{} of {} outputs are whole\n", whole, all);
  }
  return wrong.empty() ? 0 : kExitFailedItems;
}

int ArtefactCommand(const fs::path& work, const std::string& which) {
  const fs::path file = work / (which == "trace" ? "trace.json" : "report.html");
  if (!fs::exists(file))
    throw Error(Fault::kUsage, fmt::format("{}: not there; it is written when a run ends",
                                           Printable(file.string())));
  std::cout << file.string() << std::endl;
  return 0;
}

}  // namespace tilery
