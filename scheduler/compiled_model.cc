#include "scheduler/compiled_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "io/error.h"
#include "io/file.h"
#include "scheduler/gpu_choice.h"
#include "scheduler/numerics.h"
#include "scheduler/python_finder.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kVoxelsOfABatch = 1 << 21;  // keep any card busy, and fit into any
constexpr int64_t kLargestUsualBatch = 8192, kLargestCpuBatch = 8;

[[noreturn]] void Refuse(const std::string& model, const std::string& why) {
  throw Error(Fault::kUsage, "model.path " + Printable(model) + ": " + why);
}

// A package takes exactly what it was compiled for.
CompiledPackage Given(const ModelFile& model, const CompileRequest& wanted) {
  const PackageFacts facts = FactsOfPackage(model.path);
  const auto check = [&](const char* what, bool fits, const std::string& found,
                         const std::string& want) {
    if (fits) return;
    Refuse(model.path, fmt::format("it was compiled for {} {}, and wanted is {}; compile the model "
                                   "for this with `tilery compile`, or give the exported program "
                                   "itself",
                                   what, Printable(found), Printable(want)));
  };
  const auto names = [](const std::string& gpu, const std::string& capability) {
    return fmt::format("{} ({})", gpu, capability);
  };
  check("the device", facts.gpu == wanted.device_name && facts.capability == wanted.capability,
        names(facts.gpu, facts.capability), names(wanted.device_name, wanted.capability));
  check("torch", facts.torch == BuiltWithTorch(), facts.torch, BuiltWithTorch());
  const auto text = [](const std::vector<int64_t>& tile) {
    return fmt::format("{}", fmt::join(tile, "x"));
  };
  check("a tile of", facts.tile == wanted.tile, text(facts.tile), text(wanted.tile));
  const auto fits = [](const auto& allowed, const auto& value) {
    return allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end();
  };
  check("batches of", fits(wanted.batches, facts.batch), std::to_string(facts.batch),
        fmt::format("{}", fmt::join(wanted.batches, ", ")));
  check("precision", fits(wanted.precisions, facts.precision), facts.precision,
        fmt::format("{}", fmt::join(wanted.precisions, ", ")));
  CompiledPackage package;
  package.path = model.path;
  package.hash = model.hash;
  package.batch = facts.batch;
  package.precision = facts.precision;
  package.layout = facts.layout;
  package.tile = facts.tile;
  package.reused = true;
  return package;
}

// The record that an earlier run began, if its package is still whole.
std::optional<Numerics> Known(const fs::path& work, const std::string& model_key,
                              const Numerics& wanted, const Index& tile) {
  const auto record = KnownNumerics(work);
  if (!record || record->model_hash != model_key || record->tile != tile) return std::nullopt;
  const Numerics& n = record->numerics;
  if (n.device_kind != wanted.device_kind || n.torch != wanted.torch || n.batch != wanted.batch ||
      n.precision != wanted.precision || n.package.empty()) {
    return std::nullopt;
  }
  const fs::path package = PackageFile(work, n.package);
  if (!StampOf(package) || HashFile(package) != n.package) return std::nullopt;
  return n;
}

// Whether what the model makes of a tile is the same wherever it is in a batch, and beside
// whatever. One that can't be tried says why when it runs.
bool GivesTilesApart(const Prepared& prepared) {
  const ItemParams& params = prepared.resolved.plan.params[0];
  ProbeRequest request;
  request.model = prepared.model.path;
  request.model_hash = prepared.model.Key();
  for (const OperatorLibrary& library : prepared.model.libraries)
    request.libraries.push_back(library.path);
  request.batches = true;
  request.dims = prepared.resolved.dims;
  request.channels_in = params.transfer.model_in;
  request.tile = params.tiling.tile;
  for (int a = 3 - request.dims; a < 3; ++a)
    request.tile[a] =
        std::min(request.tile[a], ProbedExtent(request.dims, params.tiling.multiple[a]));
  std::vector<std::string> warnings;  // the same as those of the question for the device
  try {
    return AskWorker(request, CpuSeat(), warnings).apart;
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

int64_t UsualBatch(const std::vector<int64_t>& tile, int dims, bool cpu) {
  int64_t voxels = 1;
  for (int a = 0; a < std::max<int>(dims, static_cast<int>(tile.size())); ++a) {
    voxels *= tile[tile.size() == 1 ? 0 : static_cast<size_t>(a)];
    if (voxels >= kVoxelsOfABatch) return 1;
  }
  int64_t batch = 1;
  const int64_t most = cpu ? kLargestCpuBatch : kLargestUsualBatch;
  while (2 * batch * voxels <= kVoxelsOfABatch && 2 * batch <= most) batch *= 2;
  return batch;
}

void CheckMayCompile(const Job& job, const ModelFile& model) {
  if (!model.compiled_only()) return;
  if (!job.execution.numerics_file.empty()) {
    throw Error(Fault::kUsage,
                fmt::format("--numerics {}: {} runs only compiled, and a record does not hold the "
                            "package; run it in the work folder that the record is of",
                            Printable(job.execution.numerics_file), Printable(model.path)));
  }
  if (model.kind == "exported" && job.model.compile == "off") {
    Refuse(model.path,
           "model.compile is off, and an exported program runs only compiled; leave it at auto, or "
           "give the model as TorchScript (tools/export_model.py makes both)");
  }
}

std::vector<CompiledPackage> PackagesOf(const ModelFile& model, CompileRequest wanted,
                                        const SayLine& say) {
  if (model.kind == "package") return {Given(model, wanted)};
  wanted.model = model.path;
  wanted.model_hash = model.hash;
  wanted.libraries.clear();
  for (const OperatorLibrary& library : model.libraries) wanted.libraries.push_back(library.path);
  CompileResult compiled = CompilePackages(wanted, say);
  if (compiled.outcome == CompileResult::Outcome::kRefused) {
    Refuse(model.path, fmt::format("an exported program is compiled before it runs, and that can't "
                                   "be done: {}. Without a Python that has torch {} (TILERY_PYTHON "
                                   "names one), give the model as TorchScript "
                                   "(tools/export_model.py makes both)",
                                   compiled.reason, BuiltWithTorch()));
  }
  // One that can't be compiled leaves the others as they are.
  if (!compiled.packages.empty()) return std::move(compiled.packages);
  throw Error(Fault::kModel,
              fmt::format("model.path {}: an exported program runs only compiled, and compiling it "
                          "failed: {}. Give the model as TorchScript (tools/export_model.py makes "
                          "both)",
                          Printable(model.path), compiled.reason));
}

Numerics ChooseForCpu(const Job& job, const Prepared& prepared, const ProbeAnswer& device,
                      const fs::path& work, const SayLine& say) {
  const Plan& plan = prepared.resolved.plan;
  Numerics numerics;
  numerics.batch = 0;
  numerics.precision = PrecisionOf(job, plan.params, false);
  numerics.device_kind = device.device_kind;
  numerics.torch = device.torch;
  const ModelFile& model = prepared.model;
  if (plan.params.empty()) return numerics;
  const Tiling& tiling = plan.params[0].tiling;
  if (!model.compiled_only()) {
    const int64_t batch = job.execution.batch.value_or(
        CpuBatch(tiling.tile, tiling.scale, job.execution.unit_memory));
    if (batch == 1 || !job.execution.numerics_file.empty() || GivesTilesApart(prepared))
      return numerics;
    say(
        fmt::format("what {} makes of a tile depends on its place in a batch or on the others of "
                    "it: each tile runs without others{}",
                    Printable(model.path),
                    job.execution.batch ? ", beside copies of itself (execution.batch)" : ""));
    numerics.batch = job.execution.batch.value_or(1);
    if (numerics.batch > 1) numerics.slots = "0";
    return numerics;
  }
  const bool given = model.kind == "package";
  numerics.batch = job.execution.batch.value_or(
      given ? FactsOfPackage(model.path).batch
            : CpuBatch(tiling.tile, tiling.scale, job.execution.unit_memory));
  if (const auto known = Known(work, model.Key(), numerics, tiling.tile)) return *known;
  CompileRequest wanted;
  wanted.device = "cpu";
  wanted.device_name = "cpu";
  constexpr std::string_view kCpu = "cpu/";
  wanted.capability = device.device_kind.substr(kCpu.size());
  wanted.dims = prepared.resolved.dims;
  wanted.tile.assign(tiling.tile.begin() + (3 - wanted.dims), tiling.tile.end());
  wanted.batches = {numerics.batch};
  wanted.precisions = {numerics.precision};
  wanted.layouts = {"nchw"};  // as the engine gathers
  wanted.channels_in = plan.params[0].transfer.model_in;
  try {
    const CompiledPackage package = PackagesOf(model, wanted, say).front();
    numerics.layout = package.layout;
    numerics.package = package.hash;
    KeepPackage(package.path, package.hash, work);
  } catch (const Error& e) {
    if (e.fault() != Fault::kModel) throw;
    throw Error(Fault::kUsage, e.what());
  }
  return numerics;
}

}  // namespace tilery
