#include "scheduler/bench_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "io/error.h"
#include "io/file.h"
#include "scheduler/inputs.h"
#include "scheduler/numerics.h"
#include "scheduler/prepare.h"
#include "scheduler/tiling_rules.h"
#include "scheduler/tuning_client.h"

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

std::string TakeOne(JobFlags& flags, const std::string& key, const std::string& standard) {
  const std::vector<std::string> values = Take(flags, key);
  return values.empty() ? standard : values[0];
}

// The first of those that are named, or of those that a run would use.
DeviceSeat SeatOf(const std::vector<std::string>& named) {
  if (named.size() > 1) {
    throw Error(Fault::kUsage, "tilery bench measures one device at a time; choose one of " +
                                   Printable(named[0], 60) + ", " + Printable(named[1], 60));
  }
  Job job;
  if (!named.empty() && named[0] != "auto") job.execution.devices = named;
  return ChooseDevices(job).seats[0];
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

// What a package says it was compiled for.
void ReadPackage(const std::string& package, WorkerContext& context, bool batch, bool precision,
                 bool layout) {
  const std::string text = ReadModelExtra(package, "tilery_package.json");
  try {
    const Json facts = Json::parse(text);
    if (!batch) facts.at("batch").get_to(context.batch);
    if (!precision) facts.at("precision").get_to(context.precision);
    if (!layout) facts.at("layout").get_to(context.layout);
  } catch (const Json::exception&) {
    throw Error(Fault::kUsage, "--package " + Printable(package) +
                                   ": no package of tools/compile_model.py: it does not say what "
                                   "it was compiled for (extra/tilery_package.json)");
  }
}

// The fastest form of the model as it is, as a run would find it; a layout that is said stays.
void Tune(const BenchOptions& options, const std::string& batch, const DeviceSeat& seat,
          WorkerContext& context) {
  TuningRequest request;
  request.model = context.model;
  request.model_hash = context.model_hash;
  request.dims = context.dims;
  request.channels_in = context.model_in;
  request.channels_out = context.model_out;
  request.tile = context.tile;
  request.scale = context.scale;
  request.precision = context.precision;
  request.batch = batch == "auto" ? 0 : context.batch;
  if (options.layout != "auto") request.layout = options.layout;
  std::vector<std::string> warnings;
  const Tuning tuning = AskTuning(request, seat, warnings);
  context.batch = tuning.batch;
  context.layout = tuning.layout;
  context.graph = tuning.graph;
}

// What decides the bytes of results beside the plan, as far as it is not said.
void DecideNumerics(const BenchOptions& options, const std::string& batch,
                    const std::string& precision, const DeviceSeat& seat, const Job& job,
                    const ItemParams& params, WorkerContext& context) {
  const bool cpu = seat.device == "cpu";
  if (batch == "auto") {
    context.batch = CpuBatch(context.tile, context.scale, job.execution.unit_memory);
  } else {
    const auto [end, error] =
        std::from_chars(batch.data(), batch.data() + batch.size(), context.batch);
    if (error != std::errc() || end != batch.data() + batch.size() || context.batch < 1 ||
        context.batch > kLargestBatch) {
      throw Error(Fault::kUsage, fmt::format("--batch '{}' is no number of tiles from 1 to {}",
                                             Printable(batch, 60), kLargestBatch));
    }
  }
  constexpr std::string_view kPrecisions[] = {"auto", "fp32", "tf32", "fp16", "bf16"};
  if (std::find(std::begin(kPrecisions), std::end(kPrecisions), precision) ==
      std::end(kPrecisions)) {
    throw Error(Fault::kUsage, "--precision '" + Printable(precision, 60) +
                                   "' is not known; it can be auto, fp32, tf32, fp16 or bf16");
  }
  const Transfer& t = params.transfer;
  const bool coarse = t.labels || DTypeSize(t.out_dtype) == 1 || t.out_dtype == DType::kF16;
  context.precision = precision != "auto" ? precision : cpu ? "fp32" : coarse ? "fp16" : "tf32";
  context.layout = options.layout == "auto" ? "nchw" : options.layout;
  if (cpu &&
      (context.precision != "fp32" || context.layout != "nchw" || !options.package.empty())) {
    throw Error(
        Fault::kUsage,
        "on the CPU models run in fp32 and nchw, without a package; choose --device cuda:0");
  }
  if (options.package.empty()) {
    if (!cpu && (batch == "auto" || options.layout == "auto")) Tune(options, batch, seat, context);
    return;
  }
  ReadPackage(options.package, context, batch != "auto", precision != "auto",
              options.layout != "auto");
  context.package = fs::absolute(options.package).string();
  context.package_hash = HashFile(options.package);
}

}  // namespace

BenchSetup MakeBenchSetup(const BenchOptions& options, const fs::path& folder) {
  BenchSetup setup;
  JobFlags flags = options.flags;
  for (const auto& [key, values] : flags) {
    if (key.starts_with("input.path") || key.starts_with("output.path")) {
      throw Error(Fault::kUsage, "tilery bench makes its own input and output; leave out --" + key +
                                     " and say what they are like by --size, --dtype, --format");
    }
  }
  setup.seat = SeatOf(Take(flags, "execution.devices"));
  setup.device = setup.seat.device;
  const bool cpu = setup.device == "cpu";
  const std::string batch = TakeOne(flags, "execution.batch", "auto");
  const std::string precision = TakeOne(flags, "model.precision", "auto");
  const std::vector<std::string> compile = Take(flags, "model.compile");
  Take(flags, "execution.work");

  const auto job_for = [&](const std::string& extension) {
    JobFlags all = flags;
    all.emplace_back("input.path", std::vector<std::string>{(folder / "in").string()});
    all.emplace_back("output.path",
                     std::vector<std::string>{(folder / "out").string() + "/{stem}" + extension});
    return LoadJob({}, all);
  };
  Job job = job_for(".npy");
  setup.model = ReadModelFile(job.model.path);
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
        MakePlan(job, contract, setup.model.hash, std::move(inputs), std::move(outputs));
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
  request.device = setup.device;
  request.item = item.header;
  request.sizing = item.sizing;
  WorkerContext& context = request.context;
  context.model = fs::absolute(setup.model.path).string();
  context.model_hash = setup.model.hash;
  context.dims = setup.resolved.dims;
  context.tile = params.tiling.tile;
  context.scale = params.tiling.scale;
  context.model_in = params.transfer.model_in;
  context.model_out = params.transfer.model_out;
  context.params = {params};
  DecideNumerics(options, batch, precision, setup.seat, job, params, context);
  context.lanes = options.lanes.value_or(cpu ? job.execution.threads.value_or(UsableCpus()) : 1);
  setup.package_hash = context.package_hash;
  setup.range_lo = params.transfer.range_lo;
  setup.range_hi = params.transfer.range_hi;

  const auto say = [&](const std::string& key, const std::string& value) {
    setup.run_flags.emplace_back(key, std::vector<std::string>{value});
  };
  setup.run_flags = flags;
  Take(setup.run_flags, "execution.threads");
  say("execution.devices", setup.device);
  say("execution.batch", std::to_string(context.batch));
  say("model.precision", context.precision);
  if (!compile.empty()) say("model.compile", compile[0]);
  if (cpu) say("execution.threads", std::to_string(context.lanes));
  return setup;
}

}  // namespace tilery
