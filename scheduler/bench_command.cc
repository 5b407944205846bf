#include <fmt/format.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <iostream>

#include "cluster/process.h"
#include "cluster/worker_start.h"
#include "io/error.h"
#include "io/file.h"
#include "scheduler/bench.h"
#include "scheduler/bench_files.h"
#include "scheduler/bench_report.h"
#include "scheduler/bench_setup.h"
#include "scheduler/commands.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

// Where files are made: what was named, which stays, or a folder that goes in the end.
class Place {
 public:
  explicit Place(const BenchOptions& options) {
    for (const auto& [key, values] : options.flags) {
      if (key == "execution.work") folder_ = fs::absolute(values.at(0)).lexically_normal();
    }
    kept_ = !folder_.empty();
    std::error_code error;
    if (kept_) {
      folder_ /= "tilery-bench";  // what lies beside it is not ours
      fs::create_directories(folder_, error);
      if (error) throw Error(Fault::kOutput, Printable(folder_.string()) + ": " + error.message());
      return;
    }
    std::string name = (fs::temp_directory_path(error) / "tilery-bench-XXXXXX").string();
    if (error || mkdtemp(name.data()) == nullptr) {
      throw Error(Fault::kOutput, Errno("make a folder for files as " + Printable(name), errno) +
                                      "; name one with --work");
    }
    folder_ = name;
  }
  ~Place() {
    std::error_code ignored;
    if (!kept_) fs::remove_all(folder_, ignored);
  }
  Place(const Place&) = delete;
  const fs::path& folder() const { return folder_; }

 private:
  fs::path folder_;
  bool kept_ = false;
};

std::string Extents(const std::vector<int64_t>& extents) {
  std::string text;
  for (int64_t n : extents) text += (text.empty() ? "" : "x") + std::to_string(n);
  return text;
}

// All that tells this measurement from others, before anything is measured.
Json Described(const BenchOptions& options, const BenchSetup& setup) {
  const WorkerContext& c = setup.request.context;
  const Header& item = setup.request.item;
  const ItemParams& params = c.params[0];
  const auto first = static_cast<size_t>(3 - setup.resolved.dims);
  Json size = Json::array();
  for (size_t a = first; a < 3; ++a) size.push_back(item.shape[a]);
  return {{"model", setup.model.path},
          {"model_hash", setup.model.Key()},
          {"package", c.package},
          {"package_hash", setup.package_hash},
          {"device", setup.seat.device},
          {"precision", c.precision},
          {"layout", c.layout},
          {"batch", c.batch},
          {"slots", c.slots},
          {"lanes", c.lanes},
          {"dims", setup.resolved.dims},
          {"tile", Extents(setup.resolved.tile)},
          {"overlap", Extents(setup.resolved.overlap)},
          {"window", WindowKindName(params.tiling.window)},
          {"size", size},
          {"channels", item.channels},
          {"dtype", DTypeName(item.dtype)},
          {"output_dtype", DTypeName(params.transfer.out_dtype)},
          {"format", item.format},
          {"items", setup.items()},
          {"tiles_per_item", setup.tiles_per_item()},
          {"seconds", options.seconds},
          {"repeats", options.repeats},
          {"warnings", setup.warnings},
          {"ladder", Json::object()}};
}

// Of the one-shot child; also describes the device where nothing is measured in memory.
Json AskBench(const BenchSetup& setup) {
  const std::string asked =
      ToJson(setup.request).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  Ran ran;
  try {
    auto environment = WorkerEnvironment();
    for (auto& variable : setup.seat.EnvironmentFor(setup.request.context.precision))
      environment.push_back(std::move(variable));
    ran = RunToEnd({setup.seat.executable, {"--bench"}, environment}, asked);
  } catch (const Error& error) {
    throw Error(Fault::kUsage, error.what());  // the worker can't be executed
  }
  if (ran.ended.by_signal || ran.ended.number != 0) {
    std::string words =
        ran.errors.size() > 1500 ? ran.errors.substr(ran.errors.size() - 1500) : ran.errors;
    while (!words.empty() && words.back() == '\n') words.pop_back();
    throw Error(
        !ran.ended.by_signal && ran.ended.number == 2 ? Fault::kUsage : Fault::kInternal,
        fmt::format("{} --bench ended with {}: {}", Printable(setup.seat.executable.string()),
                    ran.ended.words(), Printable(words, 1600)));
  }
  try {
    return Json::parse(ran.output);
  } catch (const Json::exception& e) {
    throw Error(Fault::kInternal, fmt::format("{} --bench: answer is not understood: {}",
                                              Printable(setup.seat.executable.string()), e.what()));
  }
}

bool Wants(const BenchOptions& options, const char* step) {
  return std::find(options.steps.begin(), options.steps.end(), step) != options.steps.end();
}

void CheckOptions(const BenchOptions& options) {
  for (const std::string& step : options.steps) {
    if (step == "forward" || step == "engine" || step == "files") continue;
    throw Error(Fault::kUsage, "--steps '" + Printable(step, 40) +
                                   "' is not known; steps are forward, engine and files");
  }
}

// The run decides some things by itself; what differs from what was measured above is said.
void Differences(const Json& run, Json& document) {
  for (const char* key : {"batch", "precision", "layout"}) {
    if (run.at(key) == document.at(key)) continue;
    document["warnings"].push_back(
        fmt::format("the run from file to file chose {} {}, the steps above used {}", key,
                    run.at(key).dump(), document.at(key).dump()));
  }
}

Json ReadComparison(const std::string& file) {
  if (file.empty()) return {};
  try {
    return Json::parse(ReadSmallFile(file));
  } catch (const Json::exception& e) {
    throw Error(Fault::kUsage, "--compare " + Printable(file) +
                                   ": not written by tilery bench --save: " + e.what());
  }
}

}  // namespace

int BenchCommand(const BenchOptions& options) {
  CheckOptions(options);
  const double tolerance = ToleranceFrom(options.tolerance);
  const Json before = ReadComparison(options.compare);
  const Place place(options);
  BenchSetup setup = MakeBenchSetup(options, place.folder(),
                                    [](const std::string& line) { std::cerr << line << "\n"; });
  setup.request.forward = Wants(options, "forward");
  setup.request.engine = Wants(options, "engine");
  setup.request.seconds = options.seconds;
  setup.request.repeats = options.repeats;
  Json document = Described(options, setup);
  if (!options.compare.empty()) CheckComparable(document, before, options.compare);

  std::cerr << fmt::format("measuring {} on {}\n", Printable(setup.model.path), setup.seat.device);
  const Json answer = AskBench(setup);
  for (const char* key : {"device_kind", "torch", "how", "ladder"}) document[key] = answer.at(key);
  document["card"] = CardOf(answer.at("device_kind"));
  if (!options.compare.empty()) CheckComparable(document, before, options.compare);
  if (Wants(options, "files")) {
    std::cerr << fmt::format("from file to file in {}\n", Printable(place.folder().string()));
    WriteBenchInputs(setup, place.folder());
    StepFigures figures;
    Json run;
    Numerics device;
    answer.at("device_kind").get_to(device.device_kind);
    answer.at("torch").get_to(device.torch);
    for (int k = 0; k < options.repeats; ++k)
      run = RunBenchFiles(setup, device, place.folder(), figures);
    Json step = ToJson(figures);
    step.update(run);
    document["ladder"]["files"] = step;
    Differences(run, document);
  }
  AddRatios(document, setup.tiles_per_item());

  std::vector<Regression> slower;
  if (!options.compare.empty()) {
    slower = FindRegressions(document, before, tolerance, options.compare);
  }
  if (options.json) {
    std::cout << document.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  } else {
    std::cout << BenchTable(document) << std::flush;
  }
  if (!options.save.empty()) {
    WriteFileAtomically(options.save, document.dump(1) + "\n", Durability::kRename);
  }
  for (const Json& warning : document.at("warnings")) {
    std::cerr << "warning: " << warning.get<std::string>() << "\n";
  }
  for (const Regression& regression : slower) {
    std::cerr << "slower: " << regression.words(options.compare, tolerance) << "\n";
  }
  return slower.empty() ? 0 : kExitFailedItems;
}

}  // namespace tilery
