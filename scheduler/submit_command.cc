#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <regex>

#include "cluster/message.h"
#include "cluster/process.h"
#include "io/error.h"
#include "io/file.h"
#include "scheduler/job_keys.h"
#include "scheduler/pipeline.h"
#include "scheduler/prepare.h"
#include "scheduler/probe_client.h"
#include "scheduler/resume.h"
#include "scheduler/submit.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

constexpr std::chrono::seconds kQueueAnswers{120};  // a busy queue may take its time

struct Queue {
  const char* name;
  const char* command;  // that submits
  const char* cancel;
  const char* log;  // how a log's name goes on behind that of the job
};
constexpr Queue kQueues[] = {{"slurm", "sbatch", "scancel", "-%j.log"},
                             {"pbs", "qsub", "qdel", ".log"},
                             {"lsf", "bsub", "bkill", "-%J.log"}};

const Queue& FindQueue(const std::string& wanted) {
  for (const Queue& queue : kQueues)
    if (wanted.empty() ? !FindOnPath(queue.command).empty() : wanted == queue.name) return queue;
  throw Error(Fault::kUsage,
              wanted.empty()
                  ? "no batch queue was found: neither sbatch, qsub nor bsub is on the PATH; "
                    "--queue slurm|pbs|lsf with --dry-run prints a script"
                  : fmt::format("--queue {}: allowed: slurm, pbs, lsf", Printable(wanted, 60)));
}

void CheckRequest(const BatchRequest& request) {
  const auto refuse = [](const std::string& what) { throw Error(Fault::kUsage, what); };
  if (request.minutes && request.grace_s >= *request.minutes * 60)
    refuse(fmt::format("--grace {}: must be below the time limit of {} s (--time {})",
                       request.grace_s, *request.minutes * 60, *request.minutes));
  if (!request.workers) return;
  if (request.queue != "slurm")
    refuse(
        fmt::format("--workers is for --queue slurm; for {} say --nodes, or bring a script of "
                    "your own with --template",
                    request.queue));
  if (request.nodes != 1)
    refuse(
        "--workers starts an array of tasks wherever there is room, --nodes takes whole nodes; "
        "say one of them");
  if (request.gpus.value_or(1) > 1)
    refuse(fmt::format("--gpus-per-node {}: each of --workers has one GPU, or none (0)",
                       *request.gpus));
}

// What a run would refuse after hours of waiting is refused now.
void CheckStage(const Job& job) {
  const Prepared prepared = Prepare(job, nullptr);
  for (const std::string& warning : prepared.warnings) std::cerr << "warning: " << warning << "\n";
  const Plan& plan = prepared.resolved.plan;
  size_t refused = 0;
  for (const Item& item : plan.items) refused += item.refused.empty() ? 0 : 1;
  if (refused == plan.items.size())
    throw Error(Fault::kUsage,
                fmt::format("all {} items are refused; the first: {}: {}", refused,
                            Printable(plan.items.at(0).input, 4096), plan.items.at(0).refused));
  if (refused > 0)
    std::cerr << fmt::format("warning: {} of {} items are refused; `tilery plan` lists them\n",
                             refused, plan.items.size());
  std::error_code error;
  if (fs::exists(fs::path(job.execution.work) / "ledger.sqlite", error)) return;  // a run resumes
  // Without a past, whatever stands where an output belongs is a stranger's.
  std::string folder = (fs::temp_directory_path() / "tilery-submit-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr)
    throw Error(Fault::kOutput, Errno(folder + ": cannot be made", errno));
  const auto remove = [&] { fs::remove_all(folder, error); };
  try {
    Ledger ledger{fs::path(folder)};
    PlanResume(plan, job.outputs[0].existing, "", folder, ledger);
  } catch (...) {
    remove();
    throw;
  }
  remove();
}

// The command line of the run, as the user gave it, with what makes it wait for hosts.
BatchJob JobFor(const SubmitOptions& options, const Stage& stage, const Queue& queue) {
  const Job& job = stage.job;
  const std::string self = SelfExecutable().string();
  BatchJob batch;
  batch.name = job.name;
  batch.folder = fs::current_path();
  batch.work = job.execution.work;
  batch.script = batch.work / "submit" / (job.name + ".sh");
  const char* log = options.request.workers ? "-%A_%a.log" : queue.log;
  batch.log = batch.work / "submit" / (job.name + log);
  batch.run = {self, "run"};
  if (!options.file.empty()) batch.run.push_back(fs::absolute(options.file).string());
  if (!stage.name.empty()) batch.run.insert(batch.run.end(), {"--stage", stage.name});
  for (const auto& [flag, values] : options.flags) {
    const std::string key = ResolveFlag(flag);
    if (key == "execution.launch")
      throw Error(Fault::kUsage, "--execution.launch: `submit` says itself who starts workers");
    batch.run.push_back("--" + key);
    batch.run.insert(batch.run.end(), values.begin(), values.end());
  }
  batch.run.insert(batch.run.end(), {"--execution.launch", "join"});
  const bool one_host = options.request.nodes == 1 && !options.request.workers;
  if (job.execution.listen.empty())
    batch.run.insert(batch.run.end(), {"--listen", one_host ? "127.0.0.1" : "auto"});
  // Where no GPU is asked for, those that are there belong to others.
  if (options.request.gpus == 0 && job.execution.devices.empty())
    batch.run.insert(batch.run.end(), {"--devices", "cpu"});
  batch.worker = {self, "worker", "--join", batch.work.string()};
  batch.status = {self, "status", batch.work.string()};
  batch.failed_is_fine = !stage.name.empty() && !job.stop_on_failed;
  return batch;
}

// Slurm puts values in the place of %x in names of logs; a folder's own % must be doubled.
fs::path LogPattern(const BatchJob& job, const Queue& queue) {
  if (std::string_view(queue.name) == "pbs") return job.log;
  std::string folder;
  for (const char c : job.log.parent_path().string()) folder += c == '%' ? "%%" : std::string(1, c);
  return fs::path(folder) / job.log.filename();
}

std::string Ask(const std::string& command, const std::vector<std::string>& arguments,
                const std::string& input) {
  const fs::path program = FindOnPath(command);
  if (program.empty())
    throw Error(Fault::kUsage, fmt::format("{} is not on the PATH: submit where the queue's "
                                           "commands are; --dry-run prints the script",
                                           command));
  RunBounds bounds;
  bounds.limit = kQueueAnswers;
  Ran ran =
      RunToEnd({.program = program, .arguments = arguments, .own_group = true}, input, bounds);
  if (ran.by == Ran::By::kItself && !ran.ended.by_signal && ran.ended.number == 0)
    return ran.output;
  const std::string words = Printable(ran.errors.empty() ? ran.output : ran.errors, 2000);
  throw Error(
      Fault::kUsage,
      ran.by == Ran::By::kLimit
          ? fmt::format("{} did not answer within {} s", command, kQueueAnswers.count())
          : fmt::format("{} has refused the job ({}): {}", command, ran.ended.words(), words));
}

// The new job's number.
std::string Submit(const Queue& queue, const BatchJob& job, const std::string& script,
                   const std::string& after) {
  const std::string name = queue.name;
  const std::string path = job.script.string();
  std::string said;
  std::regex number("([0-9]+)");
  if (name == "slurm") {
    std::vector<std::string> arguments = {"--parsable"};
    if (!after.empty())
      arguments.insert(arguments.end(),
                       {"--dependency=afterok:" + after, "--kill-on-invalid-dep=yes"});
    arguments.push_back(path);
    said = Ask(queue.command, arguments, "");
  } else if (name == "pbs") {
    std::vector<std::string> arguments;
    if (!after.empty()) arguments.insert(arguments.end(), {"-W", "depend=afterok:" + after});
    arguments.push_back(path);
    said = Ask(queue.command, arguments, "");
    number = "([0-9]+\\S*)";  // 123.server
  } else {
    std::vector<std::string> arguments;
    if (!after.empty()) arguments.insert(arguments.end(), {"-w", "done(" + after + ")"});
    said = Ask(queue.command, arguments, script);
    number = "Job <([0-9]+)>";
  }
  std::smatch match;
  if (!std::regex_search(said, match, number))
    throw Error(Fault::kUsage, fmt::format("{} has said no job number but: {}", queue.command,
                                           Printable(said, 400)));
  return match[1];
}

std::string TemplateText(const SubmitOptions& options, const Queue& queue, std::string& name) {
  if (!options.template_file.empty()) {
    name = options.template_file;
    return ReadSmallFile(name, 1 << 20);
  }
  name = options.request.workers ? "slurm_array" : queue.name;
  return std::string(CarriedTemplate(name));
}

// Scripts of stages that were queued before one was refused.
void Cancel(const Queue& queue, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    try {
      Ask(queue.cancel, {id}, "");
      std::cerr << fmt::format("job {} is cancelled again\n", id);
    } catch (const Error& error) {
      std::cerr << fmt::format("job {} stays in the queue: {}\n", id, error.what());
    }
  }
}

}  // namespace

int SubmitCommand(const SubmitOptions& given) {
  SubmitOptions options = given;
  const Queue& queue = FindQueue(options.request.queue);
  options.request.queue = queue.name;
  CheckRequest(options.request);
  if (options.request.workers && !options.request.gpus) options.request.gpus = 1;
  const Pipeline pipeline = LoadPipeline(options.file, options.flags, options.stage);
  std::string name;
  const std::string text = TemplateText(options, queue, name);

  std::vector<BatchJob> jobs;
  std::vector<std::string> scripts;
  for (size_t k = 0; k < pipeline.stages.size(); ++k) {
    const Stage& stage = pipeline.stages[k];
    if (k == 0 || !pipeline.ordered || InputsAreThere(stage.job)) CheckStage(stage.job);
    jobs.push_back(JobFor(options, stage, queue));
    BatchJob filled = jobs.back();
    filled.log = LogPattern(filled, queue);
    scripts.push_back(BatchScript(text, name, filled, options.request));
  }

  Json told = Json::array();
  std::vector<std::string> ids;
  for (size_t k = 0; k < jobs.size(); ++k) {
    const BatchJob& job = jobs[k];
    const std::string& stage = pipeline.stages[k].name;
    Json entry = {{"name", job.name},        {"stage", stage.empty() ? Json() : Json(stage)},
                  {"after", nullptr},        {"script", job.script.string()},
                  {"log", job.log.string()}, {"work", job.work.string()}};
    if (options.dry_run) {
      if (!options.json) std::cout << (k == 0 ? "" : "\n") << scripts[k];
      entry["text"] = scripts[k];
      told.push_back(entry);
      continue;
    }
    const std::string after = pipeline.ordered && k > 0 ? ids.back() : "";
    try {
      // As a run makes it: for nobody else.
      std::error_code error;
      fs::create_directories(job.work.parent_path(), error);
      mkdir(job.work.c_str(), 0700);
      fs::create_directories(job.script.parent_path(), error);
      WriteFileAtomically(job.script, scripts[k], Durability::kRename, 0755);
      ids.push_back(Submit(queue, job, scripts[k], after));
    } catch (...) {
      Cancel(queue, ids);
      throw;
    }
    entry["id"] = ids.back();
    if (!after.empty()) entry["after"] = after;
    told.push_back(entry);
    if (options.json) continue;
    std::cout << fmt::format("job {}{}{}\n  script {}\n  log    {}\n", ids.back(),
                             stage.empty() ? "" : ": stage " + stage,
                             after.empty() ? "" : ", after job " + after,
                             Printable(job.script.string()), Printable(job.log.string()));
  }
  if (options.json)
    std::cout << Json{{"queue", queue.name}, {"jobs", told}}.dump() << std::endl;
  else if (!options.dry_run)
    std::cout << fmt::format(
        "how far it is, from any host: {}\n",
        ShellWords(
            {"tilery", "status", options.file.empty() ? jobs[0].work.string() : options.file}));
  return 0;
}

std::string LoginNodeWords() {
  if (getenv("SLURM_JOB_ID") != nullptr || FindOnPath("sbatch").empty()) return "";
  return "this host has Slurm (sbatch), but this is no job of it: the run has this host alone. "
         "`tilery submit` queues the job for as many nodes as it is to have";
}

}  // namespace tilery
