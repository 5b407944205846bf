#include "scheduler/bench_files.h"

#include <fmt/format.h>

#include <map>
#include <sstream>

#include "cluster/process.h"
#include "io/error.h"
#include "io/format.h"
#include "io/thread_pool.h"
#include "scheduler/gpu_choice.h"
#include "scheduler/probe_client.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLargestTrace = size_t{1} << 30;
constexpr size_t kLastWords = 1500;

// Line by line, since a message may have several.
std::string LastWords(const std::string& text) {
  std::stringstream lines(text.size() > kLastWords ? text.substr(text.size() - kLastWords) : text);
  std::string words;
  for (std::string line; std::getline(lines, line);) {
    words += (words.empty() ? "" : "\n") + Printable(line, kLastWords);
  }
  return words;
}

void Check(const std::error_code& error, const fs::path& path) {
  if (error) throw Error(Fault::kOutput, Printable(path.string()) + ": " + error.message());
}

// As an earlier run of this model would have left it in its work folder.
void LeaveForm(const BenchSetup& setup, const Numerics& device, const fs::path& work) {
  std::error_code error;
  fs::create_directories(work, error);
  Check(error, work);
  const WorkerContext& context = setup.request.context;
  NumericsRecord record;
  record.model_hash = setup.model.Key();
  record.tile = context.tile;
  record.numerics = device;
  record.numerics.batch = context.batch;
  record.numerics.slots = context.slots;
  record.numerics.precision = context.precision;
  record.numerics.layout = context.layout;
  record.numerics.package = setup.package_hash;
  if (!setup.package_hash.empty()) KeepPackage(context.package, setup.package_hash, work);
  KeepNumerics(record, work);
}

}  // namespace

void WriteBenchInputs(const BenchSetup& setup, const fs::path& folder) {
  const fs::path in = folder / "in";
  std::error_code error;
  fs::remove_all(in, error);
  fs::create_directories(in, error);
  Check(error, in);
  const Header& header = setup.request.item;
  std::vector<std::byte> samples(static_cast<size_t>(Product(header.shape) * header.channels) *
                                 DTypeSize(header.dtype));
  FillBenchSamples(header, setup.range_lo, setup.range_hi, samples.data());
  const fs::path first = setup.resolved.plan.items[0].input;
  {
    OutputFile file(first, SmallFileAttempt());
    WriteSpec spec;
    spec.header = header;
    ThreadPool pool(8);
    spec.pool = &pool;
    const std::unique_ptr<Writer> writer = CreateWriter(file, spec);
    writer->Write(Box::Whole(header.shape),
                  DenseView(static_cast<const std::byte*>(samples.data()), header.dtype,
                            header.channels, header.shape, Layout::kInterleaved));
    writer->Finish();
    file.Publish(Durability::kRename);
  }
  for (int64_t k = 1; k < setup.items(); ++k) {
    fs::copy_file(first, setup.resolved.plan.items[static_cast<size_t>(k)].input, error);
    Check(error, in);
  }
}

Json RunBenchFiles(const BenchSetup& setup, const Numerics& device, const fs::path& folder,
                   StepFigures& figures) {
  const fs::path out = folder / "out", work = folder / "run";
  for (const fs::path& old : {out, work}) {
    std::error_code error;
    fs::remove_all(old, error);
    Check(error, old);
  }
  if (setup.named) LeaveForm(setup, device, work);
  SpawnSpec spec;
  spec.program = SelfExecutable();
  spec.arguments = {"run",
                    "--json",
                    "--input.path",
                    (folder / "in").string(),
                    "--output.path",
                    out.string() + "/{stem}" + setup.extension,
                    "--execution.work",
                    work.string()};
  for (const auto& [key, values] : setup.run_flags) {
    spec.arguments.push_back("--" + key);
    spec.arguments.insert(spec.arguments.end(), values.begin(), values.end());
  }
  const Ran ran = RunToEnd(spec, "");
  if (ran.ended.by_signal || ran.ended.number != 0) {
    // A mistake of the flags is one of ours, too.
    throw Error(!ran.ended.by_signal && ran.ended.number == 2 ? Fault::kUsage : Fault::kInternal,
                "the run from file to file ended with " + ran.ended.words() + ":\n" +
                    LastWords(ran.errors));
  }
  try {
    const Json profile = Json::parse(ReadSmallFile(work / "profile.json"));
    const Json trace = Json::parse(ReadSmallFile(work / "trace.json", kLargestTrace));
    std::vector<double> batch_s;
    for (const Json& event : trace.at("traceEvents")) {
      if (event.value("name", "") != "compute") continue;
      batch_s.push_back(event.at("dur").get<double>() * 1e-6);
    }
    Json stages = Json::object();
    std::map<std::string, double> idle;
    for (const Json& worker : profile.at("workers")) {
      for (const auto& [cause, seconds] : worker.at("model_idle_s").items())
        idle[cause] += seconds.get<double>();
      for (const auto& [name, totals] : worker.at("stages").items()) {
        stages[name] = stages.value(name, 0.0) + totals.at("s").get<double>();
      }
    }
    figures.Add(
        profile.at("tiles"),
        profile.at("last_publish_s").get<double>() - profile.at("first_lease_s").get<double>(),
        batch_s, idle);
    return {{"bound_by", profile.at("bound_by")},
            {"batch", profile.at("job").at("batch")},
            {"precision", profile.at("job").at("precision")},
            {"layout", profile.at("job").at("layout")},
            {"stages", stages}};
  } catch (const Json::exception& e) {
    throw Error(Fault::kInternal,
                fmt::format("{}: profile.json or trace.json is not understood: {}",
                            Printable(work.string()), e.what()));
  }
}

}  // namespace tilery
