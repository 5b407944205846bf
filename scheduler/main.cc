// `tilery`: command line, scheduler and supervisor. Loads neither Torch nor CUDA and starts in
// milliseconds.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <iostream>
#include <optional>
#include <string_view>

#include "cluster/launcher.h"
#include "io/error.h"
#include "scheduler/bench.h"
#include "scheduler/commands.h"
#include "scheduler/job_keys.h"
#include "scheduler/join.h"
#include "scheduler/mpi_run.h"
#include "scheduler/probe_client.h"
#include "scheduler/signals.h"

namespace tilery {
namespace {

constexpr const char* kLaterCommands[] = {"submit", "compress", "decompress"};

// A command that takes a job: file, flags, or both.
struct JobCommand {
  CLI::App* app = nullptr;
  std::string file;
  bool json = false;
  std::vector<std::pair<std::string, CLI::Option*>> options;  // by dotted key

  JobCommand(CLI::App& parent, const std::string& name, const std::string& description,
             const std::string& argument = "JOB",
             const std::string& about = "job file (YAML); flags beat it") {
    app = parent.add_subcommand(name, description);
    app->add_option(argument, file, about);
    app->add_flag("--json", json, "one JSON document on one line of standard output");
    for (const JobKey& key : JobKeys()) {
      std::string names = fmt::format("--{}", key.key);
      if (*key.flag) names += fmt::format(",--{}", key.flag);
      // A callback and no vector: for vectors CLI11 takes "[a]" and "{}" for lists, but files are
      // called so, too.
      CLI::Option* option = app->add_option(names, [](const CLI::results_t&) { return true; });
      option->group("")->multi_option_policy(CLI::MultiOptionPolicy::Throw);
      if (TakesManyValues(key))
        option->expected(1, 1 << 24);
      else
        option->expected(1);
      options.emplace_back(key.key, option);
    }
    app->allow_extras();
    app->footer("\nEvery key of a job file is also a flag:\n" + JobKeysHelp());
  }

  JobFlags Given() const {
    for (const std::string& word : app->remaining()) {
      if (word.rfind("--", 0) == 0) ResolveFlag(word.substr(2, word.find('=') - 2));
      throw Error(Fault::kUsage,
                  fmt::format("{} is not expected here; tilery {} --help shows what is",
                              Printable(word), app->get_name()));
    }
    JobFlags flags;
    for (const auto& [key, option] : options)
      if (option->count() > 0) flags.emplace_back(key, option->results());
    return flags;
  }

  Job Load() const {
    const JobFlags flags = Given();
    if (file.empty() && flags.empty())
      throw Error(Fault::kUsage,
                  fmt::format("tilery {}: name a job file, or give --model, --input and "
                              "--output",
                              app->get_name()));
    return LoadJob(file, flags);
  }
};

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
    app.add_option("--device", device, "cpu or cuda:N; default: the first GPU, else the CPU");
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
  std::string what;
  bool json = false;

  LookCommand(CLI::App& parent, const std::string& name, const std::string& argument,
              const std::string& description, bool has_json = true) {
    app = parent.add_subcommand(name, description);
    if (!argument.empty()) app->add_option(argument, what)->required();
    if (has_json) app->add_flag("--json", json, "one JSON document on one line");
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
    app->add_option("--device", flags.device, "cuda:N or cpu (default: cuda:0)");
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

int Run(const JobCommand& run) {
  const auto go = [&](const Job& job, const Crowd& crowd) {
    return RunCommand(job, run.json, crowd);
  };
  if (const auto mpi = FindMpiLaunch())
    return RunUnderMpi(
        *mpi, [&] { return run.Load(); }, go);
  const Job job = run.Load();
  Crowd crowd;
  crowd.local = !job.execution.join;
  if (!job.execution.listen.empty()) crowd.addresses = AddressesOfHost(job.execution.listen);
  return go(job, crowd);
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
  BenchCommandLine bench(app);
  LookCommand status(app, "status", "WORK|JOB", "Show how far a job is");
  LookCommand report(app, "report", "WORK|JOB", "Print where a run's report lies", false);
  LookCommand trace(app, "trace", "WORK|JOB", "Print where a run's trace lies", false);
  LookCommand verify(app, "verify", "WORK|JOB", "Compare all published outputs with the ledger");
  LookCommand inspect(app, "inspect", "FILE", "Show what a model, image or volume says of itself");
  CompileOptions compile(app);
  LookCommand doctor(app, "doctor", "", "Check what this machine offers");
  for (const char* later : kLaterCommands)
    app.add_subcommand(later, "not supported yet")->group("")->allow_extras();
  WorkerCommand worker(app);
  CLI::App* supervise = app.add_subcommand("supervise", "")->group("");
  CLI::App* join_rank = app.add_subcommand("join-rank", "")->group("");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e, std::cout, std::cerr);
    return code == 0 ? 0 : kExitUsage;
  }
  for (const char* later : kLaterCommands)
    if (app.got_subcommand(later))
      throw Error(Fault::kUsage, fmt::format("tilery {}: not supported yet", later));
  if (supervise->parsed()) return RunSupervisor(kControlFd);
  if (join_rank->parsed()) return JoinAsRank();
  if (worker.app->parsed()) return worker.Run();
  if (run.app->parsed()) return Run(run);
  if (plan.app->parsed()) return PlanCommand(plan.Load(), plan.json);
  if (bench.command.app->parsed()) return bench.Run();
  if (status.app->parsed()) return StatusCommand(WorkFolderOf(status.what), status.json);
  if (report.app->parsed()) return ArtefactCommand(WorkFolderOf(report.what), "report");
  if (trace.app->parsed()) return ArtefactCommand(WorkFolderOf(trace.what), "trace");
  if (verify.app->parsed()) return VerifyCommand(WorkFolderOf(verify.what), verify.json);
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
  if (argc > 1 && std::string_view(argv[1]) == "run") tilery::InstallDrainSignals();
  try {
    return tilery::Main(argc, argv);
  } catch (const std::exception&) {
    return tilery::TellError();
  }
}
