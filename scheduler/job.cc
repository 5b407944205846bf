#include "scheduler/job.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "scheduler/contract.h"
#include "scheduler/job_filler.h"

namespace tilery {
namespace fs = std::filesystem;
namespace {

void FillModel(const JobFiller& from, const FlatJob& flat, Job& job) {
  if (from.Find("model.path") == nullptr) from.Missing("model.path", "model");
  from.With("model.path", [&](auto& v, auto& k) { job.model.path = from.PathOf(v, k); });
  from.With("model.precision", [&](auto& v, auto& k) { job.model.precision = AsWord(v, k); });
  from.With("model.compile", [&](auto& v, auto& k) { job.model.compile = AsWord(v, k); });
  from.With("model.max_error", [&](auto& v, auto& k) {
    job.model.max_error = AsNumbers(v, k).at(0);
    if (*job.model.max_error < 0) RefuseValue(v, k.key, "'" + Shown(v) + "' is below 0");
  });
  from.With("model.libraries", [&](auto& v, auto& k) {
    for (const std::string& text : AsTexts(v, k))
      job.model.libraries.push_back(from.Path(v, k, text));
  });
  job.model.contract = ContractFromFlat(flat, "job");
}

// dtype and shape make an input raw; the other keys of raw files have no meaning without them.
std::optional<RawLayout> RawFrom(const JobFiller& from) {
  const JobValue* dtype = from.Find("input.dtype");
  const JobValue* shape = from.Find("input.shape");
  for (const char* name :
       {"input.dtype", "input.shape", "input.samples", "input.byte_order", "input.offset"}) {
    const JobValue* value = from.Find(name);
    if (value == nullptr || (dtype != nullptr && shape != nullptr)) continue;
    RefuseValue(*value, name, "describes raw files, which need both input.dtype and input.shape");
  }
  if (dtype == nullptr || shape == nullptr) return std::nullopt;
  RawLayout raw;
  raw.dtype = DTypeFromName(AsWord(*dtype, *FindJobKey("input.dtype")));
  const std::vector<int64_t> extents = AsIntegers(*shape, *FindJobKey("input.shape"));
  if (extents.size() != 2 && extents.size() != 3) {
    RefuseValue(*shape, "input.shape",
                "'" + Shown(*shape) + "' has " + std::to_string(extents.size()) +
                    " axes; allowed: [y, x] or [z, y, x]");
  }
  raw.shape = extents.size() == 2 ? Index{1, extents[0], extents[1]}
                                  : Index{extents[0], extents[1], extents[2]};
  try {
    Product(raw.shape);
  } catch (const Error& error) {
    RefuseValue(*shape, "input.shape", error.what());
  }
  from.With("input.samples", [&](auto& v, auto& k) {
    raw.channels = static_cast<int32_t>(std::min<int64_t>(*AsInteger(v, k), 65536));
  });
  from.With("input.byte_order", [&](auto& v, auto& k) { raw.big_endian = AsWord(v, k) == "big"; });
  from.With("input.offset", [&](auto& v, auto& k) { raw.offset = AsMemory(v, k); });
  return raw;
}

void FillInput(const JobFiller& from, Job& job) {
  if (from.Find("input.path") == nullptr) from.Missing("input.path", "input");
  from.With("input.path", [&](auto& v, auto& k) {
    for (const std::string& text : AsTexts(v, k)) job.input.paths.push_back(from.Path(v, k, text));
  });
  job.input.raw = RawFrom(from);
  from.With("input.grids", [&](auto& v, auto& k) { job.input.grids = AsTexts(v, k); });
  from.With("input.alpha", [&](auto& v, auto& k) {
    job.input.alpha = Named<AlphaMode>(v, k,
                                       {{"auto", AlphaMode::kAuto},
                                        {"model", AlphaMode::kModel},
                                        {"resize", AlphaMode::kResize},
                                        {"copy", AlphaMode::kCopy},
                                        {"drop", AlphaMode::kDrop}});
  });
  from.With("input.nonfinite", [&](auto& v, auto& k) {
    using NonFinite = Transfer::NonFinite;
    job.input.nonfinite = Named<NonFinite>(
        v, k, {{"keep", NonFinite::kKeep}, {"fill", NonFinite::kFill}, {"fail", NonFinite::kFail}});
  });
  from.With("input.normalize", [&](auto& v, auto& k) { job.input.normalize = AsRange(v, k); });
}

void FillTiling(const JobFiller& from, Job& job) {
  from.With("tiling.tile", [&](auto& v, auto& k) { job.tiling.tile = AsExtent(v, k); });
  from.With("tiling.overlap", [&](auto& v, auto& k) { job.tiling.overlap = AsExtent(v, k); });
  from.With("tiling.trim", [&](auto& v, auto& k) { job.tiling.trim = AsExtent(v, k); });
  from.With("tiling.skip", [&](auto& v, auto& k) { AsWord(v, k); });
  from.With("tiling.window", [&](auto& v, auto& k) {
    job.tiling.window = Named<WindowKind>(v, k,
                                          {{"linear", WindowKind::kLinear},
                                           {"cosine", WindowKind::kCosine},
                                           {"crop", WindowKind::kCrop},
                                           {"hann", WindowKind::kHann},
                                           {"gaussian", WindowKind::kGaussian}});
  });
  from.With("tiling.pad", [&](auto& v, auto& k) {
    job.tiling.pad = Named<PadMode>(
        v, k, {{"reflect", PadMode::kReflect}, {"edge", PadMode::kEdge}, {"zero", PadMode::kZero}});
  });
}

// Mistakes that need no model to be seen, named with their line.
void CheckTilingValues(const JobFiller& from, const Job& job) {
  const Extent& tile = job.tiling.tile;
  const Extent& overlap = job.tiling.overlap;
  const Extent& trim = job.tiling.trim;
  const auto at = [](const Extent& extent, size_t axis) {
    return extent.values.size() == 1 ? extent.values[0] : extent.values[axis];
  };
  const auto number = [](double x) { return std::to_string(static_cast<int64_t>(x)); };
  const auto clash = [&](const Extent& a, const Extent& b) {
    return a.kind == Extent::Kind::kVoxels && b.kind == Extent::Kind::kVoxels &&
           (a.values.size() == b.values.size() || a.values.size() == 1 || b.values.size() == 1);
  };
  if (clash(tile, overlap)) {
    for (size_t axis = 0; axis < std::max(tile.values.size(), overlap.values.size()); ++axis) {
      if (at(overlap, axis) < at(tile, axis)) continue;
      RefuseValue(*from.Find("tiling.overlap"), "tiling.overlap",
                  "the overlap of " + number(at(overlap, axis)) + " must be below the tile of " +
                      number(at(tile, axis)) + "; at most half a tile is usual");
    }
  }
  if (clash(overlap, trim)) {
    for (size_t axis = 0; axis < std::max(overlap.values.size(), trim.values.size()); ++axis) {
      if (2 * at(trim, axis) <= at(overlap, axis)) continue;
      RefuseValue(*from.Find("tiling.trim"), "tiling.trim",
                  "the trim of " + number(at(trim, axis)) + " is above half the overlap of " +
                      number(at(overlap, axis)));
    }
  }
}

// `outputs: [{...}]` with one entry is `output: {...}`.
void UnfoldOutputs(FlatJob& flat) {
  const auto found = flat.find("outputs");
  if (found == flat.end()) return;
  const JobValue list = found->second;
  flat.erase(found);
  if (list.kind != JobValue::Kind::kList || list.items.empty()) {
    RefuseValue(list, "outputs", "must be a list of outputs, not '" + Shown(list) + "'");
  }
  if (list.items.size() > 1) {
    RefuseValue(
        list, "outputs",
        std::to_string(list.items.size()) + " outputs: several outputs are not supported yet");
  }
  for (const auto& [name, value] : flat) {
    if (name.starts_with("output.")) {
      RefuseValue(value, name, "is given beside 'outputs' (" + list.where + "); use one of them");
    }
  }
  Flatten(
      list.items[0], "output.",
      [](const JobKey& key) { return std::string_view(key.key).starts_with("output."); }, flat);
}

// A name becomes part of the names of folders and files.
std::string CheckedName(const JobValue& value, const JobKey& key) {
  constexpr size_t kLongest = 64;
  const std::string name = AsText(value, key);
  const bool plain = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.';
  });
  if (name.empty() || name.size() > kLongest || name[0] == '.' || name[0] == '-' || !plain) {
    RefuseValue(value, key.key,
                "'" + Shown(value) + "' is no name: letters, digits, '-', '_' and '.', at most " +
                    std::to_string(kLongest) + ", beginning with a letter, a digit or '_'");
  }
  return name;
}

}  // namespace

const JobValue* FindJobs(const JobValue& document, const char* key) {
  if (document.kind != JobValue::Kind::kMap) return nullptr;
  for (const auto& [name, value] : document.entries) {
    if (name == key) return &value;
  }
  return nullptr;
}

FlatJob FlattenJob(const JobValue& document) {
  FlatJob flat;
  const auto of_one_job = [](const JobKey& key) {
    return key.type != KeyType::kList || std::string_view(key.key) == "outputs";
  };
  Flatten(document, "", of_one_job, flat);
  UnfoldOutputs(flat);
  return flat;
}

Job FillJob(FlatJob flat, const JobFlags& flags, const fs::path& file, const std::string& stem,
            const std::string& stage) {
  std::set<std::string> from_flags;
  for (const auto& [flag, values] : flags) {
    const JobKey& key = *FindJobKey(ResolveFlag(flag));
    if (key.type == KeyType::kList) {
      throw Error(Fault::kUsage, std::string(kFlagWhere) + ": '" + key.key +
                                     "' is for job files; as flags: --output, --output.dtype, ...");
    }
    if (IsLater(key)) {
      throw Error(Fault::kUsage,
                  std::string(kFlagWhere) + ": '" + key.key + "' is not supported yet");
    }
    flat[key.key] = FlagValue(key, values);
    from_flags.insert(key.key);
  }
  const JobFiller from(flat, from_flags, file);
  Job job;
  job.file = file;
  job.name = stage.empty() ? stem : stem + "-" + stage;
  from.With("name", [&](auto& v, auto& k) {
    const std::string name = CheckedName(v, k);
    job.name = stage.empty() ? name : stem + "-" + name;
  });
  from.With("on_failed", [&](auto& v, auto& k) { job.stop_on_failed = AsWord(v, k) == "stop"; });
  FillGrids(from, flat, job);
  if (job.task == Task::kInfer) FillModel(from, flat, job);
  FillInput(from, job);
  FillTiling(from, job);
  FillOutput(from, job);
  FillExecution(from, job);
  CheckTilingValues(from, job);
  return job;
}

Job LoadJob(const fs::path& file, const JobFlags& flags) {
  if (file.empty()) return FillJob({}, flags, file, "job", "");
  const JobValue document = ParseYamlFile(file);
  for (const char* several : {"stages", "jobs"}) {
    if (const JobValue* list = FindJobs(document, several))
      throw Error(Fault::kUsage, list->where + ": '" + several +
                                     "' makes this a file of several jobs, and one is needed here");
  }
  return FillJob(FlattenJob(document), flags, file, file.stem().string(), "");
}

}  // namespace tilery
