// `tilery`: command line, scheduler and supervisor. Loads neither Torch nor CUDA and starts in
// milliseconds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>
#include <optional>
#include <string_view>

#include "cluster/launcher.h"
#include "io/error.h"
#include "scheduler/bench.h"
#include "scheduler/commands.h"
#include "scheduler/job_command_line.h"
#include "scheduler/join.h"
#include "scheduler/mpi_run.h"
#include "scheduler/pipeline_commands.h"
#include "scheduler/probe_client.h"
#include "scheduler/signals.h"
#include "scheduler/submit.h"

namespace tilery {
namespace {

// The ladder of one model. Takes the keys of a job, too: how tiles are cut and blended, say.
struct BenchCommandLine {
  JobCommand command;
  BenchOptions bench;
  std::string device, precision;
  int64_t batch = 0;

  explicit BenchCommandLine(CLI::App& parent)
      : command(parent, "bench",
                "Measure a model alone, with the engine around it, and from file to file", "MODEL",
                "model file") {
    CLI::App& app = *command.app;
    app.add_option("--device", device,
                   "cpu, cuda:N or cuda:N:M; default: the first GPU, else the CPU");
    app.add_option("--precision", precision, "fp32, tf32, fp16 or bf16; on the CPU fp32")
        ->check(CLI::IsMember({"auto", "fp32", "tf32", "fp16", "bf16"}));
    app.add_option("--layout", bench.layout, "of the model's tensors: nchw or nhwc")
        ->check(CLI::IsMember({"auto", "nchw", "nhwc"}));
    app.add_option("--batch", batch, "tiles per run of the model")
        ->check(CLI::Range(int64_t{1}, kLargestBatch));
    app.add_option("--package", bench.package,
                   "the model compiled for the device; says batch, precision and layout")
        ->check(CLI::ExistingFile);
    app.add_option("--lanes", bench.lanes, "runs of the model at a time")
        ->check(CLI::Range(1, 1024));
    app.add_option("--seconds", bench.seconds, "of measuring, for each step in memory; default 8")
        ->check(CLI::Range(1e-3, 1e5));
    app.add_option("--repeats", bench.repeats,
                   "measurements of each step, of which the best counts; default 2")
        ->check(CLI::Range(1, 1000));
    app.add_option("--size", bench.size, "extent of a synthetic picture or volume: N, Y X or Z Y X")
        ->expected(1, 3)
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
    app.add_option("--items", bench.items, "synthetic pictures or volumes")
        ->check(CLI::Range(1, 100000));
    app.add_option("--dtype", bench.dtype, "sample type of them; default u8");
    app.add_option("--format", bench.format, "file format of them: png, tiff, npy or nifti");
    app.add_option("--steps", bench.steps, "of forward,engine,files")->delimiter(',');
    app.add_option("--save", bench.save, "write the figures to this file");
    app.add_option("--compare", bench.compare,
                   "end with code 3 if a step is slower than in this file, made by --save");
    app.add_option("--tolerance", bench.tolerance, "share it may be slower; default 5%");
  }

  int Run() {
    bench.flags = command.Given();
    bench.json = command.json;
    // What has two names is said once.
    const auto set = [&](const std::string& key, const std::string& value) {
      if (value.empty()) return;
      std::erase_if(bench.flags, [&](const auto& flag) { return flag.first == key; });
      bench.flags.emplace_back(key, std::vector<std::string>{value});
    };
    set("model.path", command.file);
    set("execution.devices", device);
    set("model.precision", precision);
    set("execution.batch", batch > 0 ? std::to_string(batch) : "");
    return BenchCommand(bench);
  }
};

// A command that looks at one thing.
struct LookCommand {
  CLI::App* app = nullptr;
  std::string what, stage;
  bool json = false;

  LookCommand(CLI::App& parent, const std::string& name, const std::string& argument,
              const std::string& description, bool has_json = true) {
    app = parent.add_subcommand(name, description);
    if (!argument.empty()) app->add_option(argument, what)->required();
    if (has_json) app->add_flag("--json", json, "one JSON document on one line");
    if (argument == "WORK|JOB")
      app->add_option("--stage", stage, "name or number of a pipeline's stage");
  }
};

// Compiles a model ahead of time.
struct CompileOptions {
  CLI::App* app = nullptr;
  CompileFlags flags;
  bool json = false;

  explicit CompileOptions(CLI::App& parent) {
    app = parent.add_subcommand("compile", "Compile a model for a device, tile and batch");
    app->add_option("MODEL", flags.model,
                    "exported program (NAME.pt2), or TorchScript with one of its name beside it")
        ->required();
    app->add_option("--tile", flags.tile,
                    "one number, or one per axis: 128x128x128 (default: what a job would use)");
    app->add_option("--batch", flags.batch,
                    "tiles in a batch, one package for each: 8,16 (default: by the tile's size)");
    app->add_option("--precision", flags.precision,
                    "fp32, tf32, fp16, bf16, or several: fp16,tf32 (default: fp16; on cpu fp32)");
    app->add_option("--layout", flags.layout, "nchw, nhwc or both: nchw,nhwc (default: nhwc)");
    app->add_option("--device", flags.device, "cuda:N, cuda:N:M or cpu (default: cuda:0)");
    app->add_option("--output", flags.output,
                    "folder for the packages (default: the user's cache)");
    app->add_option("--libraries", flags.libraries,
                    "a library of custom operators; may be repeated")
        ->allow_extra_args(false);
    app->add_flag("--max-autotune", flags.max_autotune,
                  "let the compiler try many forms of each kernel: minutes, not seconds");
    app->add_flag("--json", json, "one JSON document on one line");
    app->footer(
        "\nIt runs a Python that has the Torch of this build: what the environment variable "
        "TILERY_PYTHON\nnames, else that of TILERY_TORCH, of the build, or python3. Exit codes: 0 "
        "all "
        "packages are there,\n1 the compiler failed, 2 something must be put right first, 75 "
        "interrupted.");
  }
};

// Takes part in a run of another process.
struct WorkerCommand {
  CLI::App* app = nullptr;
  std::string target, token_file;
  double wait_s = 60;

  explicit WorkerCommand(CLI::App& parent) {
    app = parent.add_subcommand("worker", "Take part in a run with this host's devices");
    app->add_option("--join", target,
                    "the run's work folder, or HOST:PORT with the token of WORK/join.json in "
                    "TILERY_TOKEN or --token-file")
        ->required();
    app->add_option("--token-file", token_file, "file with the run's token, readable by you alone");
    app->add_option("--wait", wait_s, "seconds to wait for the run to begin; default 60")
        ->check(CLI::Range(0.0, 1e7));
    app->footer(
        "\nThe run must listen for other hosts: `tilery run --listen auto ...`. INT, TERM or USR1: "
        "what is begun\nis finished, the rest given back. Exit codes: 0 the run has ended or this "
        "host has left it, 2 it may\nnot take part or found no run, 75 the scheduler was lost.");
  }

  int Run() const {
    InstallDrainSignals();
    JoinOptions options = JoinOptionsFrom(target, token_file);
    options.wait_s = wait_s;
    return Join(options);
  }
};

// Puts a job, or each stage of a pipeline, into a batch queue.
struct SubmitCommandLine {
  JobCommand command;
  SubmitOptions submit;
  int64_t minutes = 0;
  int workers = 0, gpus = -1, cpus = 0;
  std::vector<std::string> environment;

  explicit SubmitCommandLine(CLI::App& parent)
      : command(parent, "submit", "Queue a job, or each stage of a pipeline, on a cluster", "JOB",
                "job file (YAML); flags beat it", {"execution.workers"}) {
    CLI::App& app = *command.app;
    BatchRequest& request = submit.request;
    app.add_option("--queue", request.queue,
                   "slurm, pbs or lsf; default: the one whose command is on the PATH");
    app.add_option("--nodes", request.nodes, "whole nodes to work on; default 1")
        ->check(CLI::Range(1, 100000));
    app.add_option("--workers", workers,
                   "instead of --nodes: tasks with one GPU each, wherever there is room (slurm)")
        ->check(CLI::Range(1, 100000));
    app.add_option("--gpus-per-node", gpus, "GPUs of each node; 0: work on CPUs")
        ->check(CLI::Range(0, 1024));
    app.add_option("--cpus-per-node", cpus,
                   "cores of each node (of each task, with --workers); default: the nodes are had "
                   "alone")
        ->check(CLI::Range(1, 100000));
    app.add_option("--memory", request.memory, "of each node, as 64G; default: all, or the queue's")
        ->check(CLI::Validator(
            [](const std::string& text) {
              const size_t digits = text.find_first_not_of("0123456789");
              const bool good = digits != 0 && digits + 1 == text.size() &&
                                std::string_view("KMGT").find(text[digits]) != std::string::npos;
              return good ? std::string() : text + ": write it as 64G (K, M, G or T)";
            },
            "SIZE"));
    app.add_option("--time", minutes, "limit in minutes; default: the queue's")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 24));
    app.add_option(
           "--grace", request.grace_s,
           "seconds before the limit at which the run ends by itself, to go on when the job "
           "is queued again; default 120")
        ->check(CLI::Range(int64_t{5}, int64_t{1} << 20));
    app.add_option("--account", request.account, "whom the queue counts it to");
    app.add_option("--partition", request.partition, "partition or queue of the cluster");
    app.add_option("--env", environment, "NAME=VALUE for the job's environment; may be repeated")
        ->allow_extra_args(false);
    app.add_option("--line", request.lines,
                   "a line of shell before all else, as 'module load cuda'; may be repeated")
        ->allow_extra_args(false);
    app.add_option("--template", submit.template_file,
                   "a script of your own with {{WORDS}}, as those of configs/cluster")
        ->check(CLI::ExistingFile);
    app.add_flag("--dry-run", submit.dry_run, "print the script, submit nothing");
  }

  int Run() {
    submit.file = command.file;
    submit.stage = command.stage;
    submit.flags = command.Given();
    submit.json = command.json;
    if (submit.file.empty() && submit.flags.empty()) command.RefuseNothing();
    BatchRequest& request = submit.request;
    if (minutes > 0) {
      request.minutes = minutes;
      if (command.app->count("--grace") == 0)
        request.grace_s = std::min(request.grace_s, minutes * 60 / 2);
    }
    if (workers > 0) request.workers = workers;
    if (gpus >= 0) request.gpus = gpus;
    if (cpus > 0) request.cpus = cpus;
    std::vector<std::string> exports;
    for (const std::string& each : environment) {
      const size_t equals = each.find('=');
      const auto word = [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; };
      const auto end = each.begin() + static_cast<int64_t>(std::min(equals, each.size()));
      if (equals == std::string::npos || equals == 0 || !std::all_of(each.begin(), end, word))
        throw Error(Fault::kUsage, fmt::format("--env {}: write it as NAME=VALUE; whole lines of "
                                               "shell go with --line",
                                               Printable(each, 200)));
      exports.push_back(
          fmt::format("export {}={}", each.substr(0, equals), ShellWord(each.substr(equals + 1))));
    }
    request.lines.insert(request.lines.begin(), exports.begin(), exports.end());
    return SubmitCommand(submit);
  }
};

// `load`: called once, on the rank that needs it.
int Run(const std::function<Pipeline()>& load, bool json) {
  if (const auto mpi = FindMpiLaunch())
    return RunUnderMpi(*mpi, [&](const RunStage& one) { return RunPipeline(load(), json, one); });
  const Pipeline pipeline = load();
  return RunPipeline(pipeline, json, [&](const Job& job, const TakeDocument& take) {
    Crowd crowd;
    crowd.local = !job.execution.join;
    if (!job.execution.listen.empty()) crowd.addresses = AddressesOfHost(job.execution.listen);
    if (const char* nodes = std::getenv("SLURM_JOB_NUM_NODES"); nodes != nullptr && !crowd.local)
      crowd.nodes = std::atoi(nodes);
    const std::string login = crowd.local ? LoginNodeWords() : "";
    if (!login.empty()) std::cerr << login << std::endl;
    return RunCommand(job, take, crowd);
  });
}

// compress, decompress: IN and OUT are flags of a job under other names.
struct GridCommandLine {
  JobCommand command;
  std::string task, out;
  bool lossless = false, overwrite = false;

  GridCommandLine(CLI::App& parent, const std::string& name, const std::string& description,
                  const std::string& argument, const std::string& about)
      : command(parent, name, description, argument, about), task(name) {
    CLI::App& app = *command.app;
    app.add_option("OUT", out, "where to: a file, a folder (ends in /), or out/smoke.####.tvdb");
    if (task == "compress")
      app.add_flag("--lossless", lossless, "values come back bit by bit; --max-error lossless");
    app.add_flag("--overwrite", overwrite,
                 "replace files that are there; --output.existing replace");
  }

  int Run() const {
    JobFlags flags = command.Given();
    const auto add = [&](const char* key, const std::string& value) {
      if (value.empty()) return;
      for (const auto& [given, values] : flags) {
        if (given == key)
          throw Error(Fault::kUsage,
                      fmt::format("tilery {}: --{} stands beside '{}'; say one of them", task, key,
                                  Printable(value, 200)));
      }
      flags.emplace_back(key, std::vector<std::string>{value});
    };
    add("input.path", command.file);
    add("output.path", out);
    add("task", task);
    add("compress.max_error", lossless ? "lossless" : "");
    add("output.existing", overwrite ? "replace" : "");
    return tilery::Run([&] { return LoadPipeline("", flags, ""); }, command.json);
  }
};

int Status(const LookCommand& status) {
  std::error_code error;
  if (std::filesystem::is_regular_file(status.what, error))
    return StatusOfPipeline(LoadPipeline(status.what, {}, status.stage), status.json);
  TakeDocument print;
  if (status.json) print = [](const Json& document) { std::cout << document.dump() << std::endl; };
  return StatusCommand(WorkFolderOf(status.what, status.stage), print);
}

int Main(int argc, char** argv) {
  CLI::App app{
      "Tiled neural inference in batch: images and volumes far larger than a device, blended as if "
      "one endless device had run the model once."};
  app.name("tilery");
  app.set_version_flag("--version", "tilery " TILERY_VERSION);
  app.require_subcommand(1);
  JobCommand run(app, "run", "Run a job; the same command again resumes it");
  JobCommand plan(app, "plan", "Show what a job would do and cost, without doing it");
  SubmitCommandLine submit(app);
  BenchCommandLine bench(app);
  LookCommand status(app, "status", "WORK|JOB", "Show how far a job is");
  LookCommand report(app, "report", "WORK|JOB", "Print where a run's report lies", false);
  LookCommand trace(app, "trace", "WORK|JOB", "Print where a run's trace lies", false);
  LookCommand verify(app, "verify", "WORK|JOB", "Compare all published outputs with the ledger");
  LookCommand inspect(app, "inspect", "FILE",
                      "Show what a model, image, volume or OpenVDB file says of itself");
  CompileOptions compile(app);
  LookCommand doctor(app, "doctor", "", "Check what this machine offers");
  GridCommandLine compress(app, "compress",
                           "Make small .tvdb files of OpenVDB files, within a bound", "FILE.vdb",
                           "OpenVDB files: a file, a folder, a glob, or smoke.####.vdb");
  GridCommandLine decompress(app, "decompress", "Make OpenVDB files of .tvdb files again",
                             "FILE.tvdb",
                             "compressed files: a file, a folder, a glob, smoke.####.tvdb");
  WorkerCommand worker(app);
  CLI::App* supervise = app.add_subcommand("supervise", "")->group("");
  CLI::App* join_rank = app.add_subcommand("join-rank", "")->group("");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e, std::cout, std::cerr);
    return code == 0 ? 0 : kExitUsage;
  }
  if (supervise->parsed()) return RunSupervisor(kControlFd);
  if (join_rank->parsed()) return JoinAsRank();
  if (worker.app->parsed()) return worker.Run();
  if (run.app->parsed()) return Run([&] { return run.Load(); }, run.json);
  for (GridCommandLine* grids : {&compress, &decompress})
    if (grids->command.app->parsed()) return grids->Run();
  if (plan.app->parsed()) return PlanPipeline(plan.Load(), plan.json);
  if (submit.command.app->parsed()) return submit.Run();
  if (bench.command.app->parsed()) return bench.Run();
  if (status.app->parsed()) return Status(status);
  if (report.app->parsed())
    return ArtefactCommand(WorkFolderOf(report.what, report.stage), "report");
  if (trace.app->parsed()) return ArtefactCommand(WorkFolderOf(trace.what, trace.stage), "trace");
  if (verify.app->parsed())
    return VerifyCommand(WorkFolderOf(verify.what, verify.stage), verify.json);
  if (compile.app->parsed()) return CompileCommand(compile.flags, compile.json);
  if (inspect.app->parsed()) return InspectCommand(inspect.what, inspect.json);
  return DoctorCommand(doctor.json);
}

}  // namespace
}  // namespace tilery

int main(int argc, char** argv) {
  std::signal(SIGCHLD,
              SIG_DFL);  // whoever ignores it hands that on, and no child could be waited for
  // First of all: from the moment it is started, a run may be asked to end.
  if (argc > 1)
    for (const std::string_view runs : {"run", "compress", "decompress"})
      if (argv[1] == runs) tilery::InstallDrainSignals();
  try {
    return tilery::Main(argc, argv);
  } catch (const std::exception&) {
    return tilery::TellError();
  }
}
