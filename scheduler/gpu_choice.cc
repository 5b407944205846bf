#include "scheduler/gpu_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <span>

#include "io/error.h"
#include "io/file.h"
#include "scheduler/compile_client.h"
#include "scheduler/compiled_model.h"
#include "scheduler/wire.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

// A compilation takes from half a minute to two; what would run for less is not worth one.
constexpr double kWorthCompiling_s = 120;
constexpr double kShareOfFree = 0.9;  // of a GPU's memory, where several workers divide it

// Wider ones to fall back to.
std::vector<std::string> From(const std::string& precision) {
  std::vector<std::string> all = {precision};
  if (precision == "fp16" || precision == "bf16") all.push_back("tf32");
  if (precision != "fp32") all.push_back("fp32");
  return all;
}

fs::path ReportFile(const fs::path& work) { return work / "tuning.json"; }

// The first infer unit of the plan.
void AddSample(const Plan& plan, TuningRequest& request) {
  const auto item = std::find_if(plan.items.begin(), plan.items.end(),
                                 [](const Item& i) { return i.refused.empty(); });
  if (item == plan.items.end()) return;
  UnitWork work;
  work.item = item - plan.items.begin();
  work.input = item->input;
  work.stamp = item->stamp;
  work.header = item->header;
  work.sizing = item->sizing;
  request.work = ToJson(work);
  request.params = ToJson(plan.params[static_cast<size_t>(item->params)]);
}

// Bytes that units take on a GPU beside the model: the slots of the item with the largest, and one
// more for those in between. 0 where the usual reserve is enough, so that most jobs ask the same
// question.
int64_t ReserveFor(const Plan& plan, int64_t memory) {
  constexpr int64_t kSlots = 5, kUsualShare = 20, kLeast = int64_t{256} << 20;
  const auto largest =
      std::max_element(plan.items.begin(), plan.items.end(), [](const Item& a, const Item& b) {
        return (a.refused.empty() ? a.tiles : -1) < (b.refused.empty() ? b.tiles : -1);
      });
  if (largest == plan.items.end() || !largest->refused.empty()) return 0;
  const Transfer& t = plan.params[static_cast<size_t>(largest->params)].transfer;
  const auto geometry = plan.Geometry(largest - plan.items.begin());
  const auto bytes = [](DType dtype) { return static_cast<int64_t>(DTypeSize(dtype)); };
  const int64_t input =
      geometry->unit_input(0).voxels() * largest->header.channels * bytes(t.in_dtype);
  const int64_t output =
      geometry->unit_cover(0).voxels() * (4 * t.accumulators + t.out_channels * bytes(t.out_dtype));
  int64_t reserve = kLeast;
  while (reserve < kSlots * (input + output)) reserve *= 2;
  return reserve <= std::max(memory / kUsualShare, kLeast) ? 0 : reserve;
}

class Chooser {
 public:
  Chooser(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
          const ProbeAnswer& device, fs::path work,
          const std::function<void(const std::string&)>& say, std::vector<std::string>& warnings)
      : job_(job),
        prepared_(prepared),
        devices_(devices),
        device_(device),
        work_(std::move(work)),
        say_(say),
        warnings_(warnings) {
    const ItemParams& params = prepared.resolved.plan.params.at(0);
    request_.model = prepared.model.path;
    request_.model_hash = prepared.model.Key();
    request_.compiled_only = prepared.model.compiled_only();
    for (const OperatorLibrary& library : prepared.model.libraries)
      request_.libraries.push_back(library.path);
    request_.device_kind = device.device_kind;
    request_.dims = prepared.resolved.dims;
    request_.channels_in = params.transfer.model_in;
    request_.channels_out = params.transfer.model_out;
    request_.tile = params.tiling.tile;
    request_.scale = params.tiling.scale;
    request_.batch = job.execution.batch.value_or(0);
    if (request_.compiled_only && request_.batch == 0) {
      request_.batch = given() ? FactsOfPackage(request_.model).batch
                               : UsualBatch(TileOf(request_), request_.dims, false);
    }
    // Whatever the number of workers, so that it does not decide bytes.
    request_.memory = job.execution.gpu_memory.value_or(0);
    request_.reserve = ReserveFor(prepared.resolved.plan,
                                  request_.memory > 0 ? request_.memory : devices.seats[0].memory);
    request_.any_input = !job.model.max_error;
    AddSample(prepared.resolved.plan, request_);
  }

  GpuChoice Choose() {
    std::string wanted = PrecisionOf(job_, prepared_.resolved.plan.params, true);
    if (given() && job_.model.precision == "auto")
      wanted = FactsOfPackage(request_.model).precision;
    if (auto known = Known(wanted)) return *known;
    for (const std::string& precision : Allowed(wanted)) {
      if (!Measure(precision)) continue;
      if (!request_.compiled_only) UsePackages();
      break;
    }
    return Take();
  }

  Tuning Named(const NamedForm& form) {
    request_.batch = form.batch;
    request_.precision = form.precision;
    request_.layout = form.layout;
    if (!form.package.empty()) {
      request_.compiled_only = true;  // it alone is asked for
      request_.packages = {{form.package, form.package_hash}};
    }
    request_.work = request_.params = nullptr;  // of its error nothing is asked
    tuning_ = AskTuning(request_, devices_.seats[0], warnings_);
    for (const std::string& note : tuning_.notes) say_(note);
    return tuning_;
  }

 private:
  bool given() const { return prepared_.model.kind == "package"; }

  static std::vector<int64_t> TileOf(const TuningRequest& request) {
    return {request.tile.begin() + (3 - request.dims), request.tile.end()};
  }

  // Precisions to try one after the other.
  std::vector<std::string> Allowed(const std::string& wanted) const {
    if (!request_.compiled_only) return From(wanted);
    if (job_.model.max_error && wanted != "fp32") {
      // There is no fp32 answer to measure errors against.
      const std::string why = fmt::format(
          "model.max_error is given, and what runs only compiled can't be compared with fp32");
      if (given() || job_.model.precision != "auto") {
        throw Error(Fault::kUsage,
                    fmt::format("{}: {}: say model.precision fp32, or give the model "
                                "as TorchScript",
                                Printable(request_.model), why));
      }
      say_(why + ": it runs in fp32");
      return {"fp32"};
    }
    return given() ? std::vector<std::string>{wanted} : From(wanted);
  }

  // The packages of a model that runs only compiled.
  void FindPackages(const std::string& precision) {
    CompileRequest compile = CompileFor(precision);
    compile.batches = {request_.batch};
    request_.packages.clear();
    for (const CompiledPackage& package : PackagesOf(prepared_.model, compile, say_))
      request_.packages.push_back({package.path, package.hash});
  }

  CompileRequest CompileFor(const std::string& precision) const {
    const DeviceSeat& seat = devices_.seats[0];
    CompileRequest compile;
    compile.model = request_.model;
    compile.model_hash = prepared_.model.hash;
    compile.libraries.assign(request_.libraries.begin(), request_.libraries.end());
    compile.device = seat.device;
    compile.device_uuid = seat.uuid;
    compile.device_name = seat.name;
    compile.capability = seat.capability;
    compile.dims = request_.dims;
    compile.tile = TileOf(request_);
    compile.precisions = {precision};
    compile.layouts = {"nhwc", "nchw"};
    compile.channels_in = request_.channels_in;
    return compile;
  }

  // What an earlier run of this work folder went by.
  std::optional<GpuChoice> Known(const std::string& precision) const {
    const auto record = KnownNumerics(work_);
    if (!record || record->model_hash != request_.model_hash || record->tile != request_.tile)
      return std::nullopt;
    if (job_.model.max_error) return std::nullopt;  // it is this job's own input that decides
    const Numerics& n = record->numerics;
    if (n.device_kind != device_.device_kind || n.torch != device_.torch) return std::nullopt;
    if (request_.batch > 0 && n.batch != request_.batch) return std::nullopt;
    // What auto wanted may not have done.
    const auto allowed = From(precision);
    const bool wide = job_.model.precision == "auto"
                          ? std::find(allowed.begin(), allowed.end(), n.precision) != allowed.end()
                          : n.precision == precision;
    const bool no_package = job_.model.compile == "off" && !request_.compiled_only;
    if (!wide || (no_package && !n.package.empty())) return std::nullopt;
    if (request_.compiled_only && n.package.empty()) return std::nullopt;
    GpuChoice choice;
    choice.numerics = n;
    try {
      if (StampOf(ReportFile(work_))) choice.report = Json::parse(ReadSmallFile(ReportFile(work_)));
      choice.graph = choice.report.value("graph", true);
    } catch (const std::exception&) {
      // For people only.
    }
    if (!n.package.empty()) {
      choice.package = PackageFile(work_, n.package);
      if (!StampOf(choice.package) || HashFile(choice.package) != n.package) return std::nullopt;
    }
    return choice;
  }

  // Whether the model is near enough to fp32 in this precision; the last one always is.
  bool Measure(const std::string& precision) {
    request_.precision = precision;
    say_(fmt::format("finding the fastest way to run {} in {} on {}", Printable(request_.model),
                     precision, devices_.seats[0].name));
    const bool may_widen =
        precision != "fp32" && !given() && (job_.model.precision == "auto" || job_.model.max_error);
    if (request_.compiled_only) {
      try {
        FindPackages(precision);
      } catch (const Error& e) {
        if (e.fault() != Fault::kModel) throw;
        if (!may_widen) throw Error(Fault::kUsage, e.what());
        say_(fmt::format("the model does not compile in {}, a wider precision is tried: {}",
                         precision, e.what()));
        return false;
      }
    }
    try {
      tuning_ = AskTuning(request_, devices_.seats[0], warnings_);
    } catch (const Error& e) {
      if (!may_widen || e.fault() != Fault::kUsage) throw;
      say_(fmt::format("the model does not run in {}, a wider precision is tried: {}", precision,
                       e.what()));
      return false;
    }
    if (const int64_t share = MemoryOfWorker(job_, devices_); share > 0 && tuning_.bytes > share) {
      say_(fmt::format(
          "batches of {} take {} bytes, and each worker on this GPU may have {}: finding "
          "a smaller one, which may change results in their last bits",
          tuning_.batch, tuning_.bytes, share));
      request_.memory = share;
      tuning_ = AskTuning(request_, devices_.seats[0], warnings_);
    }
    for (const std::string& note : tuning_.notes) say_(note);
    if (!may_widen) return true;
    const std::string why = TooFar(tuning_);
    if (!why.empty()) say_(fmt::format("{} {}: a wider precision is used", precision, why));
    return why.empty();
  }

  // Why a form is not near enough to fp32; "" if it is.
  std::string TooFar(const Tuning& tuning) const {
    const auto& error = tuning.error;
    if (error.nonfinite > 0) return "gives values that are not finite where those of fp32 are";
    if (!job_.model.max_error) return "";
    if (error.tiles == 0) return "could not be compared with fp32 (" + error.unknown + ")";
    if (error.max <= *job_.model.max_error) return "";
    return fmt::format("is off by {:.3g} from fp32 (max_error {:.3g})", error.max,
                       *job_.model.max_error);
  }

  void UsePackages() {
    if (job_.model.compile == "off") return;
    const double alone = static_cast<double>(prepared_.resolved.plan.tiles) /
                         std::max(tuning_.tiles_per_s, 1e-9) /
                         static_cast<double>(devices_.seats.size());
    const DeviceSeat& seat = devices_.seats[0];
    CompileRequest compile = CompileFor(request_.precision);
    compile.batches = {tuning_.batch};
    compile.look_only = alone < kWorthCompiling_s;
    const CompileResult compiled = CompilePackages(compile, say_);
    if (!compile.look_only && !compiled.reason.empty())
      say_("not compiled, runs as it is: " + compiled.reason);
    if (compiled.packages.empty()) return;
    for (const CompiledPackage& package : compiled.packages)
      request_.packages.push_back({package.path, package.hash});
    request_.batch = tuning_.batch;  // that they were compiled for
    try {
      const Tuning with = AskTuning(request_, seat, warnings_);
      for (const std::string& note : with.notes) say_(note);
      const std::string why = TooFar(with);
      if (why.empty())
        tuning_ = with;
      else
        say_(fmt::format("compiled the model {}: it runs as it is", why));
    } catch (const Error& e) {
      say_(std::string("compiled it does not run, so it runs as it is: ") + e.what());
    }
  }

  GpuChoice Take() const {
    GpuChoice choice;
    choice.numerics.batch = tuning_.batch;
    choice.numerics.slots = tuning_.slots;
    choice.numerics.precision = request_.precision;
    choice.numerics.layout = tuning_.layout;
    choice.numerics.device_kind = device_.device_kind;
    choice.numerics.torch = device_.torch;
    if (tuning_.package >= 0) {
      const auto& package = request_.packages.at(static_cast<size_t>(tuning_.package));
      choice.numerics.package = package.hash;
      choice.package = PackageFile(work_, package.hash);
      KeepPackage(package.path, package.hash, work_);
    }
    const auto& error = tuning_.error;
    choice.graph = tuning_.graph;
    choice.report = {{"how", tuning_.how},
                     {"slots", tuning_.slots},
                     {"graph", tuning_.graph},
                     {"compiled", tuning_.package >= 0},
                     {"layout", tuning_.layout},
                     {"tiles_per_s", tuning_.tiles_per_s},
                     {"device_bytes", tuning_.bytes},
                     {"error_against_fp32",
                      {{"tiles", error.tiles},
                       {"max", error.max},
                       {"mean", error.mean},
                       {"lowest", error.lowest},
                       {"highest", error.highest},
                       {"nonfinite", error.nonfinite},
                       {"real_input", error.real_input},
                       {"unknown", Printable(error.unknown, 1000)}}}};
    return choice;
  }

  const Job& job_;
  const Prepared& prepared_;
  const DeviceChoice& devices_;
  const ProbeAnswer& device_;
  const fs::path work_;
  const std::function<void(const std::string&)>& say_;
  std::vector<std::string>& warnings_;
  TuningRequest request_;
  Tuning tuning_;
};

}  // namespace

GpuChoice ChooseForGpu(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                       const ProbeAnswer& device, const fs::path& work,
                       const std::function<void(const std::string&)>& say,
                       std::vector<std::string>& warnings) {
  return Chooser(job, prepared, devices, device, work, say, warnings).Choose();
}

Tuning MeasureNamed(const Job& job, const Prepared& prepared, const DeviceChoice& devices,
                    const ProbeAnswer& device, const NamedForm& form,
                    const std::function<void(const std::string&)>& say,
                    std::vector<std::string>& warnings) {
  return Chooser(job, prepared, devices, device, {}, say, warnings).Named(form);
}

int64_t MemoryOfWorker(const Job& job, const DeviceChoice& devices) {
  const auto seats = static_cast<int64_t>(devices.seats.size());
  const int64_t workers = job.execution.workers.value_or(static_cast<int>(seats));
  const int64_t sharing = (workers + seats - 1) / seats;
  if (job.execution.gpu_memory) return *job.execution.gpu_memory / sharing;
  if (sharing == 1) return 0;
  return static_cast<int64_t>(kShareOfFree * static_cast<double>(devices.seats[0].memory)) /
         sharing;
}

void KeepReport(const GpuChoice& choice, const fs::path& work) {
  if (choice.report.is_null()) return;
  WriteFileAtomically(ReportFile(work), choice.report.dump(1) + "\n", Durability::kRename);
}

fs::path PackageFile(const fs::path& work, const std::string& hash) {
  return work / ("model-" + hash + ".pt2");
}

void KeepPackage(const fs::path& package, const std::string& hash, const fs::path& work) {
  const fs::path to = PackageFile(work, hash);
  if (StampOf(to) && HashFile(to) == hash) return;
  OutputFile file(to, SmallFileAttempt());
  std::ifstream in(package, std::ios::binary);
  std::vector<char> part(1 << 20);
  while (in.read(part.data(), static_cast<std::streamsize>(part.size())) || in.gcount() > 0)
    file.Write(std::as_bytes(std::span(part.data(), static_cast<size_t>(in.gcount()))));
  if (in.bad() || !in.eof())
    throw Error(Fault::kOutput, Printable(package.string()) + ": can't be read to its end");
  file.Publish(Durability::kFsync);
}

}  // namespace tilery
