// `tilery compile`: compiles a model ahead of time, as a job with `model.compile: auto` would.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <nlohmann/json.hpp>
#include <regex>

#include "io/error.h"
#include "scheduler/commands.h"
#include "scheduler/compile_client.h"
#include "scheduler/compiled_model.h"
#include "scheduler/devices.h"
#include "scheduler/model_file.h"
#include "scheduler/signals.h"
#include "scheduler/tiling_rules.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr int64_t kLargestTile = 1 << 20;

[[noreturn]] void Refuse(const char* flag, const std::string& value, const std::string& allowed) {
  throw Error(Fault::kUsage,
              fmt::format("--{}: '{}' is not {}", flag, Printable(value, 80), allowed));
}

std::vector<std::string> Split(const std::string& text, const char* separators) {
  std::vector<std::string> parts;
  for (size_t at = 0;;) {
    const size_t end = text.find_first_of(separators, at);
    parts.push_back(text.substr(at, end - at));
    if (end == text.npos) return parts;
    at = end + 1;
  }
}

std::vector<int64_t> Numbers(const char* flag, const std::string& text, int64_t most) {
  std::vector<int64_t> numbers;
  for (const std::string& part : Split(text, ",x")) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < 1 || value > most) {
      Refuse(flag, part, fmt::format("a number from 1 to {}", most));
    }
    numbers.push_back(value);
  }
  return numbers;
}

std::vector<std::string> Words(const char* flag, const std::string& text,
                               const std::vector<std::string>& allowed) {
  const std::vector<std::string> words = Split(text, ",");
  for (const std::string& word : words) {
    if (std::find(allowed.begin(), allowed.end(), word) == allowed.end()) {
      Refuse(flag, word, fmt::format("one of {}", fmt::join(allowed, ", ")));
    }
  }
  return words;
}

// The tile as a job would resolve it: what was given, checked, or what `auto` stands for.
std::vector<int64_t> ResolveTile(const ModelFile& model, const std::vector<int64_t>& given) {
  if (!model.contract.dims) {
    if (!given.empty()) return given;
    throw Error(Fault::kUsage, fmt::format("{}: doesn't say whether it works on images or volumes; "
                                           "give --tile with one number per axis, as 256x256",
                                           Printable(model.path)));
  }
  Job job;
  if (!given.empty()) {
    job.tiling.tile = {Extent::Kind::kVoxels, {given.begin(), given.end()}};
  }
  return ResolveTiling(job, MergeContracts({}, model.contract, {}), *model.contract.dims).tile;
}

CompileRequest MakeRequest(const CompileFlags& flags) {
  CompileRequest request;
  request.device = flags.device.empty() ? "cuda:0" : flags.device;
  const bool cpu = request.device == "cpu";
  const bool gpu = std::regex_match(request.device, std::regex("cuda:[0-9]+(:[0-9]+)?"));
  if (!cpu && !gpu) Refuse("device", request.device, "cpu, cuda:N or cuda:N:M");
  const std::vector<int64_t> tile =
      flags.tile.empty() ? std::vector<int64_t>{} : Numbers("tile", flags.tile, kLargestTile);
  request.batches =
      flags.batch.empty() ? std::vector<int64_t>{} : Numbers("batch", flags.batch, kLargestBatch);
  request.precisions =
      Words("precision", flags.precision.empty() ? cpu ? "fp32" : "fp16" : flags.precision,
            {"fp32", "tf32", "fp16", "bf16"});
  request.layouts = Words("layout", flags.layout.empty() ? "nhwc" : flags.layout, {"nchw", "nhwc"});

  const ModelFile model = ReadModelFile(flags.model, ModelUse::kCompile);
  request.model = model.path;
  request.model_hash = model.hash;
  request.dims = model.contract.dims.value_or(0);
  request.channels_in = model.contract.channels_in.value_or(0);
  request.tile = ResolveTile(model, tile);
  if (request.batches.empty()) {
    request.batches = {UsualBatch(request.tile, request.dims, cpu)};
  }
  for (const std::string& library : flags.libraries) {
    request.libraries.push_back(fs::absolute(library));
  }
  if (!flags.output.empty()) request.folder = fs::absolute(flags.output);
  request.max_autotune = flags.max_autotune;
  // Trying all forms of all kernels is what was asked for.
  if (flags.max_autotune) request.limit *= 6;
  if (gpu) {
    Job job;  // numbers are those of a run
    job.execution.devices = {request.device};
    const DeviceSeat seat = ChooseDevices(job).seats[0];
    request.device_uuid = seat.uuid;
    request.device_name = seat.name;
    request.capability = seat.capability;
  }
  return request;
}

Json ResultJson(const CompileResult& result) {
  Json packages = Json::array();
  for (const CompiledPackage& package : result.packages) {
    packages.push_back({{"path", Printable(package.path.string(), 4096)},
                        {"hash", package.hash},
                        {"gpu", package.gpu},
                        {"capability", package.capability},
                        {"tile", package.tile},
                        {"batch", package.batch},
                        {"precision", package.precision},
                        {"layout", package.layout},
                        {"channels_in", package.channels_in},
                        {"channels_out", package.channels_out},
                        {"seconds", package.seconds},
                        {"reused", package.reused}});
  }
  Json failed = Json::array();
  for (const CompileResult::Failed& failure : result.failed) {
    failed.push_back({{"package", failure.package}, {"reason", failure.reason}});
  }
  return {{"packages", packages}, {"failed", failed}};
}

}  // namespace

int CompileCommand(const CompileFlags& flags, bool json) {
  InstallDrainSignals();
  // What is compiled is kept, and what is being compiled is nothing yet.
  const EarlyEnd end([](const std::string& signal) {
    std::cerr << signal << ": stopped; the same command compiles what is missing" << std::endl;
  });
  const CompileResult result = CompilePackages(
      MakeRequest(flags), [](const std::string& line) { std::cerr << line << std::endl; });
  if (result.outcome == CompileResult::Outcome::kRefused) {
    throw Error(Fault::kUsage, result.reason);
  }
  if (json) {
    std::cout << ResultJson(result).dump() << std::endl;
  } else {
    for (const CompiledPackage& package : result.packages) {
      std::cout << fmt::format(
          "{}: {}\n", Printable(package.path.string(), 4096),
          package.reused ? "is there" : fmt::format("compiled in {:.1f} s", package.seconds));
    }
  }
  for (const CompileResult::Failed& failure : result.failed) {
    std::cerr << fmt::format("tilery: not compiled: {}{}{}\n", failure.package,
                             failure.package.empty() ? "" : ": ", failure.reason);
  }
  return result.outcome == CompileResult::Outcome::kDone ? 0 : kExitInternal;
}

}  // namespace tilery
