#include "scheduler/planner.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "io/error.h"
#include "io/parallel_for.h"
#include "pipeline/sparse_tiles.h"
#include "scheduler/item_rules.h"
#include "scheduler/keys.h"
#include "scheduler/queue.h"
#include "scheduler/tiling_rules.h"

namespace tilery {
namespace {

// Per worker: that are read or in the engine, and that are written. As worker/unit_runner.h.
constexpr int64_t kUnitsAhead = 4, kUnitsBehind = 3;
constexpr int64_t kProcessBytes = 300LL << 20;  // a worker with its libraries and model, idle
// What runs beside infer units, by what RunnerOptionsFor() starts at most: four inputs decoded by
// bands; two outputs, each of two bands, one being filled and one encoded.
constexpr int64_t kStageBytes = 4 * (16LL << 20);
constexpr int64_t kAssembleBytes = 2 * (2 * kAssembleBand + 2 * (64LL << 20));

}  // namespace

Item NewItem(InputHeader& input, std::string& output) {
  Item item;
  item.input = std::move(input.path);
  item.output = std::move(output);
  item.stamp = input.stamp;
  item.header = std::move(input.header);
  item.grid = std::move(input.grid);
  if (!item.grid.label.empty()) item.support = Support::kTopology;
  return item;
}

void CheckPaths(const std::vector<InputHeader>& inputs, const std::vector<std::string>& outputs) {
  std::unordered_map<std::string_view, size_t> writers;
  writers.reserve(outputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    const auto [other, fresh] = writers.emplace(outputs[k], k);
    if (fresh) continue;
    throw Error(Fault::kUsage, "two inputs would write " + Printable(outputs[k]) + ": " +
                                   Printable(inputs[other->second].path) + " and " +
                                   Printable(inputs[k].path) +
                                   "; use {reldir}, {name} or {index} in output.path");
  }
  for (const InputHeader& input : inputs) {
    const auto writer = writers.find(input.path);
    if (writer == writers.end()) continue;
    throw Error(Fault::kUsage, "output " + Printable(input.path) + " of " +
                                   Printable(inputs[writer->second].path) +
                                   " is an input too; choose another output.path");
  }
}

namespace {

// What neither job nor file nor probe told about channels: that of the pictures themselves.
void AssumeChannels(const std::vector<InputHeader>& inputs, Contract& contract) {
  if (contract.channels_in && contract.channels_out) return;
  int32_t colours = contract.channels_in.value_or(contract.channels_out.value_or(0));
  if (!contract.channels_in && !contract.channels_out) {
    colours = 1;
    for (const InputHeader& input : inputs) {
      if (input.error.empty()) colours = std::max(colours, ColoursOf(input.header));
    }
  }
  if (!contract.channels_in) contract.source["channels.in"] = "assumed";
  if (!contract.channels_out) contract.source["channels.out"] = "assumed";
  contract.channels_in = contract.channels_in.value_or(colours);
  contract.channels_out = contract.channels_out.value_or(colours);
}

std::string AssumedWarning(const Contract& contract) {
  std::string keys;
  for (const auto& [key, source] : contract.source) {
    if (source == "assumed") keys += (keys.empty() ? "" : ", ") + key;
  }
  return keys.empty() ? "" : "assumed, since neither the job nor the model file says: " + keys;
}

// Refuses tiles that no worker could hold one of.
void CheckTileMemory(const Job& job, const Contract& contract, const Tiling& tiling) {
  // What is refused here may be too large for whole numbers.
  double in = 1, out = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto tile = static_cast<double>(tiling.tile[axis]);
    in *= tile;
    out *= tile * static_cast<double>(tiling.scale[axis].num) /
           static_cast<double>(tiling.scale[axis].den);
  }
  const double bytes = 4.0 * std::max(in * *contract.channels_in, out * *contract.channels_out);
  if (bytes <= static_cast<double>(job.execution.unit_memory)) return;
  std::string text = std::to_string(bytes);
  text.erase(text.find('.'));
  throw Error(Fault::kUsage, "tiling.tile: one tile of " + ShapeToString(tiling.tile, 3) +
                                 " takes " + text + " bytes as f32, but execution.unit_memory is " +
                                 std::to_string(job.execution.unit_memory) +
                                 "; make the tile smaller or unit_memory larger");
}

// Dimensions of the job: declared, else those of the first readable input.
int JobDims(const Contract& contract, const std::vector<InputHeader>& inputs) {
  if (contract.dims) return *contract.dims;
  for (const InputHeader& input : inputs) {
    if (input.error.empty()) return input.header.dims == 3 ? 3 : 2;
  }
  return 2;
}

// Rules are decided once for each kind of item; jobs have few kinds and many items.
class RuleBook {
 public:
  RuleBook(const Job& job, const Contract& contract, const Tiling& tiling, int dims)
      : job_(job), contract_(contract), tiling_(tiling), dims_(dims) {}

  const ItemRules& For(const Header& header, const std::string& format, Plan& plan,
                       int32_t& params) {
    for (const Entry& entry : entries_) {
      const Header& known = entry.header;
      if (known.dtype == header.dtype && known.dims == header.dims && known.alpha == header.alpha &&
          known.channels == header.channels && entry.format == format) {
        params = entry.params;
        return entry.rules;
      }
    }
    Entry entry{header, format, DecideItem(job_, contract_, tiling_, dims_, header, format), 0};
    if (entry.rules.refused.empty()) {
      const auto same = std::find(plan.params.begin(), plan.params.end(), entry.rules.params);
      entry.params = static_cast<int32_t>(same - plan.params.begin());
      if (same == plan.params.end()) plan.params.push_back(entry.rules.params);
    }
    entries_.push_back(std::move(entry));
    params = entries_.back().params;
    return entries_.back().rules;
  }

 private:
  struct Entry {
    Header header;
    std::string format;
    ItemRules rules;
    int32_t params;
  };
  const Job& job_;
  const Contract& contract_;
  const Tiling& tiling_;
  const int dims_;
  std::vector<Entry> entries_;
};

std::string RefuseShape(const Item& item, const ItemParams& params) {
  try {
    Header output = params.output;
    output.shape = OutputShape(item.header.shape, params.tiling);
    Product(output.shape);
    return WhyNot(output.format, output);
  } catch (const Error& error) {
    return error.what();
  }
}

// What models can't do with grids yet.
std::string WhyNotGrid(const Header& header, const ItemParams& params) {
  if (params.tiling.scale != Scale{})
    return "a model that changes the size of a grid is not supported yet";
  if (params.output.channels != header.channels)
    return "the grid has " + std::to_string(header.channels) +
           " numbers for a voxel and the model "
           "makes " +
           std::to_string(params.output.channels) + ", which is not supported yet";
  return "";
}

// Why this item takes no part, or "". Its paths and header are set; sets item.params.
std::string Judge(const InputHeader& input, const Job& job, int dims, bool dims_declared,
                  RuleBook& rules, Plan& plan, Item& item) {
  if (!input.error.empty()) return input.error;
  std::string name = Printable(item.input) + ": ";
  if (!item.grid.label.empty())
    name += "grid '" + Printable(item.grid.label, 60) + "' of " + input.grid_type + " values: ";
  const Header& header = item.header;
  const std::string format = FormatOfExtension(item.output);
  if (format.empty()) {
    return name + "no format is known for the output " + Printable(item.output) +
           "; give output.path an extension of a known format";
  }
  if (item.grid.label.empty() != (format != "vdb")) {
    return name + (item.grid.label.empty()
                       ? "an output that is an OpenVDB file needs an input that is one, whose "
                         "active voxels, transform and metadata it gets"
                       : "the output of a grid is an OpenVDB file (.vdb), not " + format);
  }
  if (!input.losses.empty() && !job.outputs.at(0).allow_losses) {
    std::string what;
    for (const std::string& loss : input.losses) what += (what.empty() ? "" : ", ") + loss;
    return name + format + " can't hold its " + what +
           "; choose another format or output.losses: allow";
  }
  if (!dims_declared && header.dims != dims) {
    return name +
           (header.dims == 3 ? "is a volume in a job of pictures"
                             : "is a picture in a job of volumes") +
           "; put it into a job of its own, or set model.dims";
  }
  const ItemRules& decided = rules.For(header, format, plan, item.params);
  if (!decided.refused.empty()) return name + decided.refused;
  if (!item.grid.label.empty()) {
    const std::string why = WhyNotGrid(header, plan.params[static_cast<size_t>(item.params)]);
    if (!why.empty()) return name + why;
  }
  const std::string shape = RefuseShape(item, plan.params[static_cast<size_t>(item.params)]);
  return shape.empty() ? "" : name + shape;
}

// Sizes units and refuses items whose scratch is beyond the limit. Sizes depend on the tiles of all
// items that take part, so they are decided anew when some drop out.
void SizeWithinScratch(const Job& job, Plan& plan) {
  for (bool settled = false; !settled;) {
    settled = true;
    SizeUnits(plan, job.execution.unit_memory);
    if (!job.execution.scratch_limit) return;
    for (Item& item : plan.items) {
      if (item.scratch_bytes <= *job.execution.scratch_limit) continue;
      item.refused = Printable(item.input) + ": needs " + std::to_string(item.scratch_bytes) +
                     " bytes of scratch, but execution.scratch_limit is " +
                     std::to_string(*job.execution.scratch_limit) +
                     "; raise it, or choose a smaller overlap";
      settled = false;
    }
  }
}

// Bound of what units of the item hold in host memory: input and accumulator until the result is
// there, then that and the seams.
int64_t BytesInFlight(const Item& item, const ItemParams& params) {
  const Transfer& t = params.transfer;
  const int64_t tiles = std::min(item.sizing.tiles, item.tiles);
  const int64_t in_voxels =
      std::min(Product(item.header.shape), tiles * Product(params.tiling.tile));
  const int64_t out_voxels =
      std::min(Product(OutputShape(item.header.shape, params.tiling)),
               tiles * Product(OutputShape(params.tiling.tile, params.tiling)));
  const auto bytes = [](DType dtype) { return static_cast<int64_t>(DTypeSize(dtype)); };
  const int64_t input = in_voxels * item.header.channels * bytes(item.header.dtype);
  const int64_t sums =
      std::min(out_voxels * t.accumulators * int64_t{4}, item.sizing.accumulator_bytes);
  const int64_t result = out_voxels * t.out_channels * bytes(t.out_dtype);
  return kUnitsAhead * (input + sums) + kUnitsBehind * (result + std::min(sums, item.seam_bytes));
}

// Bound of the scratch in use at a time, by the rule of UnitQueue::MayStart. `each`: of the items.
int64_t PeakScratch(std::vector<int64_t> each, int64_t workers) {
  std::sort(each.begin(), each.end(), std::greater<>());
  const auto largest = [&](int64_t count) {
    const auto n = std::min<int64_t>(count, static_cast<int64_t>(each.size()));
    return std::accumulate(each.begin(), each.begin() + n, int64_t{0});
  };
  return std::max(largest(kItemsAnyway),
                  std::min(largest(kItemsPerWorker * workers), kEasyScratch * workers));
}

void Summarize(const Job& job, Resolved& out) {
  double tile_voxels = 0, item_voxels = 0;
  bool stages = false, assembles = false;
  std::vector<int64_t> scratch;
  for (const Item& item : out.plan.items) {
    if (!item.refused.empty()) continue;
    const ItemParams& params = out.plan.params[static_cast<size_t>(item.params)];
    tile_voxels +=
        static_cast<double>(item.tiles) * static_cast<double>(Product(params.tiling.tile));
    item_voxels += static_cast<double>(Product(item.header.shape));
    out.seam_bytes += item.seam_bytes;
    out.output_bytes += item.output_bytes;
    if (item.scratch_bytes > 0) scratch.push_back(item.scratch_bytes);
    stages = stages || item.staged;
    assembles = assembles || item.infer_units > 1;
    out.host_bytes = std::max(out.host_bytes, BytesInFlight(item, params));
  }
  out.host_bytes += kProcessBytes + (stages ? kStageBytes : 0) + (assembles ? kAssembleBytes : 0);
  out.scratch_bytes = PeakScratch(std::move(scratch), job.execution.workers.value_or(1));
  if (job.execution.scratch_limit)
    out.scratch_bytes = std::min(out.scratch_bytes, *job.execution.scratch_limit);
  out.redundancy = item_voxels > 0 ? tile_voxels / item_voxels : 1;
}

}  // namespace

void FindTilesOfGrids(const Job& job, const Contract& contract, std::vector<InputHeader>& inputs,
                      int threads) {
  std::vector<InputHeader*> grids;
  for (InputHeader& input : inputs) {
    if (input.error.empty() && !input.grid.label.empty()) grids.push_back(&input);
  }
  if (grids.empty()) return;
  Contract complete = contract;
  AssumeChannels(inputs, complete);
  const Tiling tiling = ResolveTiling(job, complete, JobDims(contract, inputs)).tiling;
  ParallelFor(threads, static_cast<int64_t>(grids.size()), [&](int64_t k) {
    InputHeader& input = *grids[static_cast<size_t>(k)];
    try {
      const VdbFile file(input.path);
      for (const VdbGrid& grid : file.grids()) {
        if (grid.label != input.grid.label) continue;
        const SparseTiles found = FindSparseTiles(file, grid, tiling);
        input.header.shape = found.shape;
        input.grid.tiles = found.tiles;
      }
      if (!input.grid.tiles) input.error = Printable(input.path) + ": changed while it was read";
    } catch (const std::exception& error) {
      input.error = error.what();
    }
  });
}

Resolved MakePlan(const Job& job, const Contract& contract, const std::string& model_hash,
                  std::vector<InputHeader> inputs, std::vector<std::string> outputs) {
  if (inputs.size() != outputs.size()) {
    throw Error(Fault::kInternal, std::to_string(inputs.size()) + " inputs, " +
                                      std::to_string(outputs.size()) + " outputs");
  }
  CheckPaths(inputs, outputs);
  Resolved out;
  out.contract = contract;
  AssumeChannels(inputs, out.contract);
  out.dims = JobDims(contract, inputs);
  const ResolvedTiling tiling = ResolveTiling(job, out.contract, out.dims);
  out.tile = tiling.tile;
  out.overlap = tiling.overlap;
  out.trim = tiling.trim;
  out.exact = tiling.exact;
  out.inexact_reason = tiling.inexact_reason;
  CheckTileMemory(job, out.contract, tiling.tiling);
  const std::string warning = AssumedWarning(out.contract);
  if (!warning.empty()) out.warnings.push_back(warning);

  Plan& plan = out.plan;
  plan.items.resize(inputs.size());
  RuleBook rules(job, out.contract, tiling.tiling, out.dims);
  for (size_t k = 0; k < inputs.size(); ++k) {
    Item& item = plan.items[k];
    item = NewItem(inputs[k], outputs[k]);
    item.refused = Judge(inputs[k], job, out.dims, contract.dims.has_value(), rules, plan, item);
  }
  SizeWithinScratch(job, plan);
  for (size_t k = 0; k < inputs.size(); ++k) {
    Item& item = plan.items[k];
    // A refused item has no parameters; its key only tells it from others.
    item.key = item.refused.empty() ? ItemKey(item, plan.params[static_cast<size_t>(item.params)],
                                              model_hash, inputs[k].identity)
                                    : HashText("refused\n" + item.input);
  }
  Summarize(job, out);
  return out;
}

}  // namespace tilery
