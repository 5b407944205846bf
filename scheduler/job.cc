#include "scheduler/job.h"

#include <set>

#include "io/error.h"
#include "scheduler/contract.h"
#include "scheduler/job_keys.h"
#include "scheduler/job_paths.h"
#include "scheduler/job_value.h"
#include "scheduler/output_paths.h"

namespace tilery {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFlagWhere = "command line";

// Finds values of the flat job and the folder that their paths count from.
class JobFiller {
 public:
  JobFiller(const FlatJob& flat, const std::set<std::string>& from_flags, const fs::path& file)
      : flat_(flat), from_flags_(from_flags), file_(file) {}

  const JobValue* Find(const std::string& name) const {
    const auto found = flat_.find(name);
    return found == flat_.end() ? nullptr : &found->second;
  }
  // Calls `take(value, key)` if the key was given.
  template <typename Take>
  void With(const std::string& name, Take take) const {
    if (const JobValue* value = Find(name)) take(*value, *FindJobKey(name));
  }
  std::string Path(const JobValue& value, const JobKey& key, const std::string& text) const {
    const bool flag = from_flags_.count(key.key) != 0;
    return ExpandPath(value, key, text, flag || file_.empty() ? fs::current_path()
                                                              : fs::absolute(file_).parent_path());
  }
  std::string PathOf(const JobValue& value, const JobKey& key) const {
    return Path(value, key, AsText(value, key));
  }
  [[noreturn]] void Missing(const std::string& key, const std::string& flag) const {
    throw Error(Fault::kUsage, (file_.empty() ? kFlagWhere : Printable(file_.string())) + ": " + key +
                                   " is missing (in flags: --" + flag + ")");
  }

 private:
  const FlatJob& flat_;
  const std::set<std::string>& from_flags_;
  const fs::path& file_;
};

template <typename Enum, size_t N>
Enum Named(const JobValue& value, const JobKey& key,
           const std::pair<const char*, Enum> (&names)[N]) {
  const std::string word = AsWord(value, key);
  for (const auto& [name, result] : names) {
    if (word == name) return result;
  }
  RefuseValue(value, key.key, "'" + word + "' is not supported yet");
}

void FillModel(const JobFiller& from, const FlatJob& flat, Job& job) {
  if (from.Find("model.path") == nullptr) from.Missing("model.path", "model");
  from.With("model.path", [&](auto& v, auto& k) { job.model.path = from.PathOf(v, k); });
  from.With("model.precision", [&](auto& v, auto& k) { job.model.precision = AsWord(v, k); });
  from.With("model.compile", [&](auto& v, auto& k) { job.model.compile = AsWord(v, k); });
  job.model.contract = ContractFromFlat(flat, "job");
}

// dtype and shape make an input raw; the other keys of raw files have no meaning without them.
std::optional<RawLayout> RawFrom(const JobFiller& from) {
  const JobValue* dtype = from.Find("input.dtype");
  const JobValue* shape = from.Find("input.shape");
  for (const char* name : {"input.dtype", "input.shape", "input.samples", "input.byte_order",
                           "input.offset"}) {
    const JobValue* value = from.Find(name);
    if (value == nullptr || (dtype != nullptr && shape != nullptr)) continue;
    RefuseValue(*value, name, "describes raw files, which need both input.dtype and input.shape");
  }
  if (dtype == nullptr || shape == nullptr) return std::nullopt;
  RawLayout raw;
  raw.dtype = DTypeFromName(AsWord(*dtype, *FindJobKey("input.dtype")));
  const std::vector<int64_t> extents = AsIntegers(*shape, *FindJobKey("input.shape"));
  if (extents.size() != 2 && extents.size() != 3) {
    RefuseValue(*shape, "input.shape", "'" + Shown(*shape) + "' has " +
                                           std::to_string(extents.size()) +
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
  from.With("input.alpha", [&](auto& v, auto& k) {
    job.input.alpha = Named<AlphaMode>(v, k, {{"auto", AlphaMode::kAuto},
                                              {"model", AlphaMode::kModel},
                                              {"resize", AlphaMode::kResize},
                                              {"copy", AlphaMode::kCopy},
                                              {"drop", AlphaMode::kDrop}});
  });
  from.With("input.nonfinite", [&](auto& v, auto& k) {
    using NonFinite = Transfer::NonFinite;
    job.input.nonfinite = Named<NonFinite>(v, k, {{"keep", NonFinite::kKeep},
                                                  {"fill", NonFinite::kFill},
                                                  {"fail", NonFinite::kFail}});
  });
  from.With("input.normalize", [&](auto& v, auto& k) { job.input.normalize = AsRange(v, k); });
}

void FillTiling(const JobFiller& from, Job& job) {
  from.With("tiling.tile", [&](auto& v, auto& k) { job.tiling.tile = AsExtent(v, k); });
  from.With("tiling.overlap", [&](auto& v, auto& k) { job.tiling.overlap = AsExtent(v, k); });
  from.With("tiling.trim", [&](auto& v, auto& k) { job.tiling.trim = AsExtent(v, k); });
  from.With("tiling.skip", [&](auto& v, auto& k) { AsWord(v, k); });
  from.With("tiling.window", [&](auto& v, auto& k) {
    job.tiling.window = Named<WindowKind>(v, k, {{"linear", WindowKind::kLinear},
                                                 {"cosine", WindowKind::kCosine},
                                                 {"crop", WindowKind::kCrop},
                                                 {"hann", WindowKind::kHann},
                                                 {"gaussian", WindowKind::kGaussian}});
  });
  from.With("tiling.pad", [&](auto& v, auto& k) {
    job.tiling.pad = Named<PadMode>(v, k, {{"reflect", PadMode::kReflect},
                                           {"edge", PadMode::kEdge},
                                           {"zero", PadMode::kZero}});
  });
}

// Refuses a type that the output's format holds in no picture or volume.
void CheckDType(const JobValue& value, const JobKey& key, const OutputSpec& output) {
  const std::string format = FormatOfExtension(output.path);
  if (format.empty() || !output.dtype) return;
  std::string why;
  for (const uint8_t dims : {3, 2}) {
    for (const int32_t channels : {1, 3}) {
      Header header;
      header.format = format;
      header.dtype = *output.dtype;
      header.dims = dims;
      header.channels = channels;
      header.shape = dims == 3 ? Index{2, 2, 2} : Index{1, 2, 2};
      why = WhyNot(format, header);
      if (why.empty()) return;
    }
  }
  RefuseValue(value, key.key, "'" + Shown(value) + "' for " + Printable(output.path) + ": " + why);
}

void FillOutput(const JobFiller& from, Job& job) {
  if (from.Find("output.path") == nullptr) from.Missing("output.path", "output");
  OutputSpec output;
  from.With("output.name", [&](auto& v, auto& k) { output.name = AsText(v, k); });
  from.With("output.path", [&](auto& v, auto& k) {
    output.path = from.PathOf(v, k);
    try {
      CheckTemplate(output.path);
    } catch (const Error& error) {
      throw Error(Fault::kUsage, v.where + ": " + error.what());
    }
    std::error_code error;
    if (!output.path.ends_with('/') && fs::is_directory(output.path, error)) output.path += '/';
    if (output.path.ends_with('/') || output.path.ends_with("{ext}") ||
        output.path.ends_with("{name}") || !FormatOfExtension(output.path).empty()) {
      return;
    }
    const std::string extension = fs::path(output.path).extension().string();
    std::string known;
    for (const std::string& each : KnownExtensions()) known += (known.empty() ? "" : " ") + each;
    const std::string near = NearestWord(extension, KnownExtensions());
    RefuseValue(v, k.key,
                "'" + Shown(v) + "': no format is known for " +
                    (extension.empty() ? "a name without extension" : "'" + Printable(extension, 60) + "'") +
                    "; known: " + known + (near.empty() ? "" : "; the nearest is '" + near + "'") +
                    "; a folder ends in /");
  });
  from.With("output.dtype", [&](auto& v, auto& k) {
    const std::string word = AsWord(v, k);
    if (word != "auto") output.dtype = DTypeFromName(word);
  });
  from.With("output.post", [&](auto& v, auto& k) { output.post = AsPost(v, k); });
  from.With("output.existing", [&](auto& v, auto& k) {
    output.existing = Named<Existing>(v, k, {{"refuse", Existing::kRefuse},
                                             {"skip", Existing::kSkip},
                                             {"replace", Existing::kReplace}});
  });
  from.With("output.losses", [&](auto& v, auto& k) { output.allow_losses = AsWord(v, k) == "allow"; });
  from.With("output.dtype", [&](auto& v, auto& k) { CheckDType(v, k, output); });
  job.outputs.push_back(std::move(output));
}

void FillDevices(const JobValue& value, const JobKey& key, Job& job) {
  std::set<std::string> seen;
  for (const std::string& device : AsTexts(value, key)) {
    if (device == "auto") {
      if (AsTexts(value, key).size() > 1) RefuseValue(value, key.key, "'auto' stands alone");
      continue;
    }
    if (!seen.insert(device).second) {
      RefuseValue(value, key.key, "'" + Printable(device, 60) +
                                      "' is named twice; execution.workers lets workers share a device");
    }
    if (device != "cpu") {
      RefuseValue(value, key.key, "'" + Printable(device, 60) +
                                      "' is not there; available: cpu (other devices are not "
                                      "supported yet), or auto");
    }
    job.execution.devices.push_back(device);
  }
}

void FillExecution(const JobFiller& from, Job& job) {
  auto& execution = job.execution;
  from.With("execution.devices", [&](auto& v, auto& k) { FillDevices(v, k, job); });
  const auto small = [](const JobValue& v, const JobKey& k) -> std::optional<int> {
    const auto n = AsInteger(v, k);
    if (n && *n > 100000) RefuseValue(v, k.key, "'" + Shown(v) + "' is beyond the limit of 100000");
    return n ? std::optional<int>(static_cast<int>(*n)) : std::nullopt;
  };
  from.With("execution.workers", [&](auto& v, auto& k) { execution.workers = small(v, k); });
  from.With("execution.threads", [&](auto& v, auto& k) { execution.threads = small(v, k); });
  from.With("execution.batch", [&](auto& v, auto& k) { execution.batch = AsInteger(v, k); });
  from.With("execution.reproducible",
            [&](auto& v, auto& k) { execution.strict = AsWord(v, k) == "strict"; });
  from.With("execution.scratch_limit",
            [&](auto& v, auto& k) { execution.scratch_limit = AsMemory(v, k); });
  from.With("execution.unit_memory", [&](auto& v, auto& k) { execution.unit_memory = AsMemory(v, k); });
  from.With("execution.numerics", [&](auto& v, auto& k) {
    execution.numerics_file = from.PathOf(v, k);
    std::error_code error;
    if (!fs::is_regular_file(execution.numerics_file, error)) {
      RefuseValue(v, k.key, Printable(execution.numerics_file) + " is no file");
    }
  });
  from.With("execution.failures.max", [&](auto& v, auto& k) {
    const Share share = AsShare(v, k);
    execution.max_failures = share.share;
    execution.max_failures_count = share.count;
  });
  from.With("execution.work", [&](auto& v, auto& k) { execution.work = from.PathOf(v, k); });
  if (execution.work.empty()) {
    execution.work = FolderOfTemplate(job.outputs[0].path) + "/.tilery/" + job.name;
    execution.work = fs::path(execution.work).lexically_normal().string();
  }
  while (execution.work.size() > 1 && execution.work.ends_with('/')) execution.work.pop_back();
  from.With("execution.scratch", [&](auto& v, auto& k) { execution.scratch = from.PathOf(v, k); });
  if (execution.scratch.empty()) execution.scratch = execution.work + "/scratch";
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
    RefuseValue(list, "outputs", std::to_string(list.items.size()) +
                                     " outputs: several outputs are not supported yet");
  }
  for (const auto& [name, value] : flat) {
    if (name.starts_with("output.")) {
      RefuseValue(value, name, "is given beside 'outputs' (" + list.where + "); use one of them");
    }
  }
  Flatten(list.items[0], "output.",
          [](const JobKey& key) { return std::string_view(key.key).starts_with("output."); }, flat);
}

}  // namespace

Job LoadJob(const fs::path& file,
            const std::vector<std::pair<std::string, std::vector<std::string>>>& flags) {
  FlatJob flat;
  if (!file.empty()) {
    Flatten(ParseYamlFile(file), "", [](const JobKey&) { return true; }, flat);
    UnfoldOutputs(flat);
  }
  std::set<std::string> from_flags;
  for (const auto& [name, values] : flags) {
    const JobKey& key = *FindJobKey(ResolveFlag(name));
    if (key.type == KeyType::kList && !IsLater(key)) {
      throw Error(Fault::kUsage, std::string(kFlagWhere) + ": '" + key.key +
                                     "' is for job files; as flags: --output, --output.dtype, ...");
    }
    if (IsLater(key)) {
      throw Error(Fault::kUsage, std::string(kFlagWhere) + ": '" + key.key + "' is not supported yet");
    }
    flat[key.key] = FlagValue(key, values);
    from_flags.insert(key.key);
  }
  const JobFiller from(flat, from_flags, file);
  Job job;
  job.file = file;
  job.name = file.empty() ? "job" : file.stem().string();
  from.With("task", [&](auto& v, auto& k) { AsWord(v, k); });
  FillModel(from, flat, job);
  FillInput(from, job);
  FillTiling(from, job);
  FillOutput(from, job);
  FillExecution(from, job);
  CheckTilingValues(from, job);
  return job;
}

}  // namespace tilery
