#include "scheduler/bench_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "io/error.h"
#include "io/file.h"
#include "scheduler/bench_files.h"
#include "scheduler/compiled_model.h"
#include "scheduler/gpu_choice.h"
#include "scheduler/inputs.h"
#include "scheduler/numerics.h"
#include "scheduler/prepare.h"
#include "scheduler/probe_client.h"
#include "scheduler/tiling_rules.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

constexpr Index kPhoto{1, 2160, 3840};
constexpr int64_t kScan = 448;  // along each axis
constexpr int kPhotos = 8, kPhotosOnCpu = 2;
constexpr int64_t kPictureTiles = 4,
                  kVolumeTiles = 3;  // along each axis, where a photo is too much

struct Kind {
  const char *format, *extension;
};
constexpr Kind kKinds[] = {{"png", ".png"}, {"tiff", ".tif"}, {"npy", ".npy"}, {"nifti", ".nii"}};

std::vector<std::string> Take(JobFlags& flags, const std::string& key) {
  std::vector<std::string> values;
  std::erase_if(flags, [&](auto& flag) {
    if (flag.first != key) return false;
    values = std::move(flag.second);
    return true;
  });
  return values;
}

Index ShapeOf(const BenchOptions& options, bool cpu, int dims, int32_t channels,
              const Tiling& tiling) {
  const auto axes = static_cast<size_t>(dims);
  Index shape{1, 1, 1};
  const auto first = static_cast<size_t>(3 - dims);
  if (!options.size.empty()) {
    if (options.size.size() != 1 && options.size.size() != axes) {
      throw Error(Fault::kUsage, fmt::format("--size has {} numbers; for this model it takes one, "
                                             "or one for each of {}",
                                             options.size.size(), dims == 2 ? "y x" : "z y x"));
    }
    for (size_t a = 0; a < axes; ++a) {
      shape[first + a] = options.size[options.size.size() == 1 ? 0 : a];
    }
    constexpr double kMost = 1e11;  // samples, of 8 bytes at most
    double samples = channels;
    for (const int64_t n : shape) samples *= static_cast<double>(n);
    if (samples > kMost) {
      throw Error(
          Fault::kUsage,
          fmt::format("--size: {:.3g} samples are beyond the limit of {:.0e}", samples, kMost));
    }
    return shape;
  }
  if (!cpu && dims == 3) return {kScan, kScan, kScan};
  if (!cpu && (channels == 1 || channels == 3)) return kPhoto;
  const int64_t tiles = dims == 2 ? kPictureTiles : kVolumeTiles;
  for (size_t a = first; a < 3; ++a) {
    shape[a] = tiling.tile[a] + (tiles - 1) * (tiling.tile[a] - tiling.overlap[a]);
  }
  return shape;
}

Header HeaderOf(const std::string& format, DType dtype, int dims, int32_t channels,
                const Index& shape) {
  Header header;
  header.format = format;
  header.dtype = dtype;
  // What is no picture in the usual sense lies as one slice in an array.
  header.dims = dims == 2 && format != "npy" && format != "nifti" ? 2 : 3;
  header.access = format == "png" ? Access::kRows : Access::kRandom;
  header.channels = channels;
  header.shape = shape;
  return header;
}

// What a package says it was compiled for, where the job doesn't.
void UsePackage(const std::string& package, const Job& job, bool layout, WorkerContext& context) {
  const auto text = ReadPackageFacts(package);
  try {
    const Json facts = Json::parse(text.value_or(""));
    if (!job.execution.batch) facts.at("batch").get_to(context.batch);
    if (job.model.precision == "auto") facts.at("precision").get_to(context.precision);
    if (!layout) facts.at("layout").get_to(context.layout);
  } catch (const Json::exception&) {
    throw Error(Fault::kUsage, "--package " + Printable(package) +
                                   ": no package of tilery compile: it does not say what it was "
                                   "compiled for");
  }
  context.package = fs::absolute(package).string();
  context.package_hash = HashFile(package);
}

// Batch, precision, layout and package: those that were named, else those that a run would choose.
void DecideForm(const BenchOptions& options, const Job& job, const Prepared& prepared,
                const DeviceChoice& devices, const fs::path& folder,
                const std::function<void(const std::string&)>& say, WorkerContext& context,
                std::vector<std::string>& warnings) {
  const bool layout = options.layout != "auto";
  context.precision = PrecisionOf(job, prepared.resolved.plan.params, devices.gpu());
  context.layout = layout ? options.layout : "nchw";
  if (!devices.gpu()) {
    if (context.layout != "nchw" || !options.package.empty()) {
      throw Error(Fault::kUsage,
                  "--layout nhwc and --package are for GPUs: on the CPU models run "
                  "as they are, in nchw; choose --device cuda:0");
    }
    if (prepared.model.compiled_only()) {
      const ProbeAnswer device = AskWorker(ProbeRequest{}, devices.seats[0], warnings);
      const Numerics numerics = ChooseForCpu(job, prepared, device, folder, say);
      context.batch = numerics.batch;
      context.slots = numerics.slots;
      context.layout = numerics.layout;
      context.package = PackageFile(folder, numerics.package).string();
      context.package_hash = numerics.package;
      return;
    }
    context.batch = job.execution.batch.value_or(
        CpuBatch(context.tile, context.scale, job.execution.unit_memory));
    return;
  }
  context.device_memory = MemoryOfWorker(job, devices);
  if (!options.package.empty()) {
    context.batch = job.execution.batch.value_or(1);
    UsePackage(options.package, job, layout, context);
  } else if (layout) {
    if (prepared.model.compiled_only()) {
      throw Error(Fault::kUsage, "--layout without --package: " + Printable(prepared.model.path) +
                                     " runs only compiled; name its package too, or neither");
    }
    if (!job.execution.batch) {
      throw Error(Fault::kUsage,
                  "--layout without --batch: name both, and nothing is measured to "
                  "choose them, or neither");
    }
    context.batch = *job.execution.batch;
  }
  const ProbeAnswer device = AskWorker(ProbeRequest{}, devices.seats[0], warnings);
  if (layout || !options.package.empty()) {
    const NamedForm form{context.batch, context.precision, context.layout, context.package,
                         context.package_hash};
    const Tuning tuning = MeasureNamed(job, prepared, devices, device, form, say, warnings);
    context.slots = tuning.slots;
    context.graph = tuning.graph;
    return;
  }
  const GpuChoice choice = ChooseForGpu(job, prepared, devices, device, folder, say, warnings);
  context.batch = choice.numerics.batch;
  context.slots = choice.numerics.slots;
  context.precision = choice.numerics.precision;
  context.layout = choice.numerics.layout;
  context.package = choice.package.string();
  context.package_hash = choice.numerics.package;
  context.graph = choice.graph;
}

}  // namespace

BenchSetup MakeBenchSetup(const BenchOptions& options, const fs::path& folder,
                          const std::function<void(const std::string&)>& say_line) {
  BenchSetup setup;
  JobFlags flags = options.flags;
  for (const auto& [key, values] : flags) {
    if (key.starts_with("input.path") || key.starts_with("output.path")) {
      throw Error(Fault::kUsage, "tilery bench makes its own input and output; leave out --" + key +
                                     " and say what they are like by --size, --dtype, --format");
    }
  }
  Take(flags, "execution.work");

  const auto job_for = [&](const std::string& extension) {
    JobFlags all = flags;
    all.emplace_back("input.path", std::vector<std::string>{(folder / "in").string()});
    all.emplace_back("output.path",
                     std::vector<std::string>{(folder / "out").string() + "/{stem}" + extension});
    all.emplace_back("execution.work", std::vector<std::string>{(folder / "run").string()});
    return LoadJob({}, all);
  };
  Job job = job_for(".npy");
  if (job.execution.devices.size() > 1) {
    throw Error(Fault::kUsage, "tilery bench measures one device at a time, not " +
                                   std::to_string(job.execution.devices.size()));
  }
  DeviceChoice devices = ChooseDevices(job);
  devices.seats.resize(1);
  setup.seat = devices.seats[0];
  setup.warnings = devices.warnings;
  const bool cpu = !devices.gpu();
  setup.model = ReadModelOf(job);
  CheckMayCompile(job, setup.model);
  InputHeader natural;
  natural.header.dims = 2;
  const Contract contract = CompleteContract(job, setup.model, {natural}, setup.warnings);
  const int dims = contract.dims.value_or(2);
  if (!contract.dims)
    flags.emplace_back("model.dims", std::vector<std::string>{std::to_string(dims)});
  const int32_t channels = contract.channels_in.value_or(3);
  const Tiling tiling = ResolveTiling(job, contract, dims).tiling;
  const Index shape = ShapeOf(options, cpu, dims, channels, tiling);
  const int items = options.items.value_or(dims == 3 ? 1 : cpu ? kPhotosOnCpu : kPhotos);

  std::string why = "--format '" + Printable(options.format, 40) +
                    "' is not made here; it can be png, tiff, npy or nifti";
  bool found = false;
  for (const auto& [format, extension] : kKinds) {
    const bool wanted = options.format.empty() ? dims == 2 || std::string_view(format) == "npy"
                                               : options.format == format;
    if (!wanted) continue;
    const Header header = HeaderOf(format, DTypeFromName(options.dtype), dims, channels, shape);
    why = WhyNot(format, header);
    if (!why.empty()) continue;
    job = job_for(extension);
    std::vector<InputHeader> inputs;
    std::vector<std::string> outputs;
    for (int k = 0; k < items; ++k) {
      const std::string name = fmt::format("{:05}{}", k, extension);
      InputHeader input;
      input.path = (folder / "in" / name).string();
      input.header = header;
      inputs.push_back(std::move(input));
      outputs.push_back((folder / "out" / name).string());
    }
    setup.resolved =
        MakePlan(job, contract, setup.model.Key(), std::move(inputs), std::move(outputs));
    why = setup.resolved.plan.items[0].refused;
    setup.extension = extension;
    found = why.empty();
    if (found) break;
  }
  if (!found) {
    throw Error(Fault::kUsage,
                "no synthetic item fits this model: " + why + "; say --format, --dtype or --size");
  }
  for (const std::string& warning : setup.resolved.warnings) setup.warnings.push_back(warning);

  const Item& item = setup.resolved.plan.items[0];
  const ItemParams& params = setup.resolved.plan.params[static_cast<size_t>(item.params)];
  BenchRequest& request = setup.request;
  request.device = setup.seat.device;
  request.item = item.header;
  request.sizing = item.sizing;
  WorkerContext& context = request.context;
  context.model = fs::absolute(setup.model.path).string();
  context.model_hash = setup.model.hash;
  context.libraries = setup.model.libraries;
  context.compiled_only = setup.model.compiled_only();
  context.dims = setup.resolved.dims;
  context.tile = params.tiling.tile;
  context.scale = params.tiling.scale;
  context.model_in = params.transfer.model_in;
  context.model_out = params.transfer.model_out;
  context.params = {params};
  setup.range_lo = params.transfer.range_lo;
  setup.range_hi = params.transfer.range_hi;
  if (!cpu && options.package.empty() && options.layout == "auto") {
    // What is measured is remembered for other runs too, its errors on the first unit included.
    WriteBenchInputs(setup, folder);
    Item& first = setup.resolved.plan.items[0];
    first.stamp = StampOf(first.input).value();
  }
  DecideForm(options, job, {setup.model, setup.resolved, {}}, devices, folder, say_line, context,
             setup.warnings);
  context.lanes = options.lanes.value_or(cpu ? job.execution.threads.value_or(UsableCpus()) : 1);
  setup.package_hash = context.package_hash;
  setup.named = !cpu && (options.layout != "auto" || !options.package.empty());

  // A run on a GPU finds the same answers in the cache, if it asks the same question.
  setup.run_flags = flags;
  const auto say = [&](const std::string& key, const std::string& value) {
    Take(setup.run_flags, key);
    setup.run_flags.emplace_back(key, std::vector<std::string>{value});
  };
  say("execution.devices", setup.seat.device);
  if (cpu) say("execution.threads", std::to_string(context.lanes));
  if (cpu || setup.named) {
    say("execution.batch", std::to_string(context.batch));
    say("model.precision", context.precision);
  }
  if (!options.package.empty()) say("model.compile", "auto");  // `off` is about making packages
  return setup;
}

}  // namespace tilery
