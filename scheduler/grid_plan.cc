#include "scheduler/grid_plan.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <utility>

#include "io/error.h"
#include "io/parallel_for.h"
#include "io/tvdb_file.h"
#include "pipeline/codec/grid_file.h"
#include "scheduler/grid_ranges.h"
#include "scheduler/keys.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

GridTask::Kind KindOf(Task task) {
  return task == Task::kMeasure    ? GridTask::Kind::kMeasure
         : task == Task::kCompress ? GridTask::Kind::kCompress
                                   : GridTask::Kind::kDecompress;
}

VdbGrid NameOnly(const VdbGrid& grid) {
  VdbGrid name;
  name.name = grid.name;
  name.label = grid.label;
  return name;
}

InputHeader ReadOne(Task task, const std::string& path, std::vector<VdbGrid>& grids) {
  InputHeader input;
  input.path = path;
  input.header.format = "grids";
  input.header.dims = 3;
  try {
    if (task == Task::kDecompress) {
      input.stamp = TvdbFile(path).file().stamp();
    } else {
      const VdbFile file(path);
      input.stamp = file.file().stamp();
      for (const VdbGrid& grid : file.grids()) grids.push_back(NameOnly(grid));
    }
  } catch (const std::exception& error) {
    input.error = error.what();
    if (input.error.empty()) input.error = Printable(path) + ": can't be read";
  }
  input.identity = input.stamp;
  return input;
}

// What all files of a sequence have in common: the path without its last number.
std::string SequenceOf(const std::string& path) {
  const auto digit = [&](size_t at) { return std::isdigit(static_cast<unsigned char>(path[at])); };
  const size_t name = path.rfind('/') + 1;
  // The extension's own digits count no frames.
  size_t end = std::max(path.rfind('.'), name);
  if (path.rfind('.') == std::string::npos) end = path.size();
  while (end > name && !digit(end - 1)) --end;
  if (end == name) return path;
  size_t begin = end;
  while (begin > name && digit(begin - 1)) --begin;
  return path.substr(0, begin) + '#' + path.substr(end);
}

bool HasShare(const GridBounds& bounds) {
  const auto share = [](const GridBound& b) { return b.kind == GridBound::Kind::kShare; };
  return share(bounds.standard) || std::any_of(bounds.named.begin(), bounds.named.end(),
                                               [&](const auto& n) { return share(n.second); });
}

bool HasSequence(const std::vector<std::string>& paths) {
  std::set<std::string> seen;
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return !seen.insert(SequenceOf(path)).second;
  });
}

void CheckNames(const Job& job, const std::vector<InputHeader>& inputs,
                const std::vector<std::vector<VdbGrid>>& grids) {
  std::set<std::string> known;
  for (const auto& of_file : grids) {
    for (const VdbGrid& grid : of_file) known.insert({grid.label, grid.name});
  }
  const bool any = std::any_of(inputs.begin(), inputs.end(),
                               [](const InputHeader& input) { return input.error.empty(); });
  for (const auto& [name, bound] : job.max_error.named) {
    if (known.contains(name) || !any) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    const std::string near = NearestWord(name, names);
    std::string all;
    for (size_t k = 0; k < std::min<size_t>(names.size(), 20); ++k)
      all += (k > 0 ? ", " : "") + Printable(names[k], 60);
    throw Error(Fault::kUsage, "compress.max_error: no input holds a grid '" + Printable(name, 60) +
                                   "'; there are: " + all +
                                   (near.empty() ? "" : "; the nearest is '" + near + "'"));
  }
}

// Bounds of the files of each sequence.
class SequenceBounds {
 public:
  SequenceBounds(const Job& job, const std::vector<InputHeader>& inputs,
                 const std::vector<std::vector<VdbGrid>>& grids)
      : job_(job) {
    if (!HasShare(job.max_error)) return;
    std::vector<std::string> paths;
    for (const InputHeader& input : inputs) paths.push_back(input.path);
    if (!HasSequence(paths)) return;
    const std::vector<std::string> files = RangeFiles(MeasureJob(job), paths);
    // A file that can't be read is no part of the range, whatever was measured of it before.
    for (size_t k = 0; k < paths.size(); ++k)
      Add(SequenceOf(paths[k]), inputs[k].error.empty() ? files[k] : "", grids[k]);
    for (auto& [name, sequence] : sequences_)
      sequence.bounds = Resolve(job.max_error, sequence.grids, sequence.ranges);
  }
  const GridBounds& For(const std::string& path) const {
    if (sequences_.empty()) return job_.max_error;
    return sequences_.at(SequenceOf(path)).bounds;
  }

  static Job MeasureJob(const Job& job) {
    Job measure = job;
    measure.task = Task::kMeasure;
    measure.name += "-measure";
    measure.execution.work = job.execution.work + "/measure";
    measure.execution.scratch = job.execution.scratch + "/measure";
    measure.outputs[0] = {};
    measure.outputs[0].path = measure.execution.work + "/ranges/";
    measure.outputs[0].existing = Existing::kReplace;
    return measure;
  }

 private:
  struct Sequence {
    std::vector<VdbGrid> grids;
    GridRanges ranges;
    GridBounds bounds;
  };

  void Add(const std::string& name, const std::string& file, const std::vector<VdbGrid>& grids) {
    Sequence& sequence = sequences_[name];
    for (const VdbGrid& grid : grids) {
      const auto same = [&](const VdbGrid& other) { return other.label == grid.label; };
      if (std::none_of(sequence.grids.begin(), sequence.grids.end(), same))
        sequence.grids.push_back(grid);
    }
    // What could not be measured is no part of the range; its item fails by itself.
    std::error_code error;
    if (!fs::exists(file, error)) return;
    for (const auto& [label, range] : RangesFromBytes(ReadSmallFile(file))) {
      const auto [found, fresh] = sequence.ranges.emplace(label, range);
      if (fresh) continue;
      found->second[0] = std::min(found->second[0], range[0]);
      found->second[1] = std::max(found->second[1], range[1]);
    }
  }

  const Job& job_;
  std::map<std::string, Sequence> sequences_;
};

}  // namespace

std::vector<InputHeader> ReadGridHeaders(Task task, const std::vector<std::string>& paths,
                                         int threads, std::vector<std::vector<VdbGrid>>& grids) {
  std::vector<InputHeader> headers(paths.size());
  grids.resize(paths.size());
  ParallelFor(threads, static_cast<int64_t>(paths.size()), [&](int64_t k) {
    const auto at = static_cast<size_t>(k);
    headers[at] = ReadOne(task, paths[at], grids[at]);
  });
  return headers;
}

Resolved PlanGrids(const Job& job, std::vector<InputHeader> inputs,
                   std::vector<std::string> outputs,
                   const std::vector<std::vector<VdbGrid>>& grids) {
  CheckPaths(inputs, outputs);
  CheckNames(job, inputs, grids);
  const SequenceBounds bounds(job, inputs, grids);
  Resolved out;
  out.dims = 3;
  out.exact = true;
  out.tile = out.overlap = out.trim = {};
  Plan& plan = out.plan;
  plan.items.resize(inputs.size());
  for (size_t k = 0; k < inputs.size(); ++k) {
    Item& item = plan.items[k];
    item = NewItem(inputs[k], outputs[k]);
    item.refused = std::move(inputs[k].error);
    item.first_unit = plan.units;
    if (!item.refused.empty()) {
      item.key = HashText("refused\n" + item.input);
      continue;
    }
    ItemParams params;
    params.dims = 3;
    params.output.format = OutputExtension(job.task).substr(1);
    params.output.dims = 3;
    params.grids.kind = KindOf(job.task);
    if (job.task == Task::kCompress) params.grids.bounds = bounds.For(item.input);
    const auto same = std::find(plan.params.begin(), plan.params.end(), params);
    item.params = static_cast<int32_t>(same - plan.params.begin());
    if (same == plan.params.end()) plan.params.push_back(std::move(params));
    item.tiles = 1;
    item.infer_units = 1;
    ++plan.units;
    ++plan.tiles;
    item.key = ItemKey(item, plan.params[static_cast<size_t>(item.params)], "", inputs[k].identity);
  }
  return out;
}

namespace {

// Whether the job ends with a refusal whatever is measured.
bool WouldBeRefused(const Job& job, const std::vector<std::string>& paths) {
  const std::vector<std::string> outputs = ExpandOutputs(job, paths);
  if (std::set<std::string>(outputs.begin(), outputs.end()).size() < outputs.size()) return true;
  std::error_code error;
  // A work folder knows whose outputs they are.
  if (job.outputs[0].existing != Existing::kRefuse || fs::exists(job.execution.work, error))
    return false;
  return std::any_of(outputs.begin(), outputs.end(),
                     [&](const std::string& output) { return fs::exists(output, error); });
}

}  // namespace

std::optional<Job> MeasureJobOf(const Job& job) {
  if (job.task != Task::kCompress || !HasShare(job.max_error)) return std::nullopt;
  std::vector<std::string> paths;
  try {
    paths = ListInputs(job, {});
  } catch (const Error& error) {
    if (error.fault() != Fault::kUsage) throw;
    return std::nullopt;  // the job itself says what is wrong
  }
  if (!HasSequence(paths) || WouldBeRefused(job, paths)) return std::nullopt;
  return SequenceBounds::MeasureJob(job);
}

std::vector<std::string> RangeFiles(const Job& measure, const std::vector<std::string>& inputs) {
  std::vector<std::string> files;
  files.reserve(inputs.size());
  for (const std::string& input : inputs)
    files.push_back(measure.outputs.at(0).path + HashText(input) + ".ranges");
  return files;
}

bool GridOutputIsWhole(const std::string& path, GridTask::Kind task) {
  try {
    if (task == GridTask::Kind::kMeasure) {
      RangesFromBytes(ReadSmallFile(path));
    } else if (task == GridTask::Kind::kDecompress) {
      MeasureGrids(VdbFile(path));
    } else {
      const TvdbFile file(path);
      for (const TvdbPiece& piece : file.pieces()) file.Read(piece);
    }
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tilery
