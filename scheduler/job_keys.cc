#include "scheduler/job_keys.h"

#include "io/error.h"
#include "scheduler/job.h"

namespace tilery {
namespace {

using enum KeyType;

constexpr const char* kDTypes = "u8 i8 u16 i16 u32 i32 f16 f32 f64";
constexpr const char* kOutputTypes = "auto u8 i8 u16 i16 u32 i32 f16 f32 f64";

// Plain data, so that the program starts without running anything for it.
constexpr JobKey kKeys[] = {
    {"name", kText, "", "", 0, "", "",
     "name of the job, and of its work folder; default: the stem of its file"},
    {"task", kWord, "infer compress decompress", "", 0, "", "infer",
     "what the job does: run a model, or compress OpenVDB files and back"},

    {"model.path", kPath, "", "", 0, "model", "",
     "the model: a TorchScript file, an exported program or an AOTInductor package (.pt2)"},
    {"model.precision", kWord, "auto fp32 tf32 fp16 bf16", "", 0, "", "auto",
     "arithmetic of the model; auto on a CPU is fp32"},
    {"model.compile", kWord, "auto off", "", 0, "", "auto",
     "whether the model may be compiled for a GPU; auto: where that saves more time than it takes"},
    {"model.max_error", kNumber, "", "", 0, "", "",
     "how far the model's outputs may be from those in fp32, in its own units; beyond it the next "
     "wider precision is used"},
    {"model.scale", kScale, "", "", 1, "", "",
     "output voxels per input voxel: 4, \"1/8\", or one per axis"},
    {"model.dims", kWord, "2 3", "", 0, "", "",
     "dimensions the model works in; 2 on a volume: slices"},
    {"model.channels.in", kInteger, "", "", 1, "", "", "channels the model takes"},
    {"model.channels.out", kInteger, "", "", 1, "", "", "channels the model gives"},
    {"model.channels.order", kWord, "rgb bgr", "", 0, "", "rgb", "order of colours in the model"},
    {"model.range", kRange, "", "", 0, "", "[0, 1]", "values the model takes and gives"},
    {"model.mean", kNumbers, "", "", 0, "", "0", "subtracted after the range, per channel"},
    {"model.std", kNumbers, "", "", 0, "", "1", "divided by after that, per channel"},
    {"model.multiple", kIntegers, "", "", 1, "", "1", "extents must be multiples of this"},
    {"model.radius", kIntegers, "", "", 0, "", "",
     "receptive radius in input voxels: how far an output voxel looks"},
    {"model.tiling.tile", kIntegers, "", "", 1, "", "", "the tile the model suggests"},
    {"model.tiling.overlap", kIntegers, "", "", 0, "", "", "the overlap the model suggests"},
    {"model.transfer", kText, "", kWholeKey, 0, "", "", "a transfer function of the model's own"},
    {"model.libraries", kPaths, "", "", 0, "", "",
     "shared libraries with custom operators (TORCH_LIBRARY, Torch-TensorRT), loaded in this order "
     "before the model; their content is part of what decides bytes"},

    {"input.path", kPaths, "", "", 0, "input", "",
     "files, folders (read flat) or globs (** is recursive)"},
    {"input.axes", kText, "", kWholeKey, 0, "", "", "names of the stored axes"},
    {"input.channels", kIntegers, "", kWholeKey, 0, "", "", "channels to take, in order"},
    {"input.each", kTexts, "", kWholeKey, 0, "", "", "axes along which items are split"},
    {"input.select", kText, "", kWholeKey, 0, "", "", "which of several arrays or pages"},
    {"input.level", kInteger, "", kWholeKey, 0, "", "", "level of a pyramid"},
    {"input.roi", kIntegers, "", kWholeKey, 0, "", "", "box to work on"},
    {"input.mask", kPath, "", kWholeKey, 0, "", "", "mask of what counts"},
    {"input.normalize", kRange, "", "minmax percentile", 0, "", "",
     "stored values [low, high] that become the model's range"},
    {"input.alpha", kWord, "auto model resize copy drop", "", 0, "", "auto",
     "what becomes of alpha; auto: model for pictures, drop for labels"},
    {"input.nonfinite", kWord, "keep fill fail", "", 0, "", "keep",
     "NaN and infinity in float inputs"},
    {"input.dtype", kWord, kDTypes, "", 0, "", "", "of raw files: sample type"},
    {"input.shape", kIntegers, "", "", 1, "", "", "of raw files: [y, x] or [z, y, x]"},
    {"input.samples", kInteger, "", "", 1, "", "1", "of raw files: channels, interleaved"},
    {"input.byte_order", kWord, "little big", "", 0, "", "little", "of raw files"},
    {"input.offset", kMemory, "", "", 0, "", "0", "of raw files: bytes before the first sample"},
    {"input.grids", kTexts, "", "", 0, "", "",
     "the grid of an OpenVDB file to take, by its name; NAME[k] where several have it"},

    {"tiling.tile", kExtent, "auto", "", 1, "tile", "auto",
     "what the model sees at once, in voxels; auto: as the model suggests, else 256 or 96^3"},
    {"tiling.overlap", kExtent, "auto", "", 0, "overlap", "auto",
     "overlap of neighbours, in voxels or as \"25%\"; auto: what makes it exact, at most half a "
     "tile"},
    {"tiling.window", kWord, "linear cosine crop hann gaussian", "", 0, "window", "cosine",
     "how overlapping tiles are blended"},
    {"tiling.pad", kWord, "reflect edge zero", "", 0, "", "reflect",
     "what lies behind the end of an item smaller than a tile"},
    {"tiling.trim", kExtent, "auto", "", 0, "", "auto",
     "voxels at a tile's inner sides that are dropped; auto: the receptive radius"},
    {"tiling.skip", kWord, "off", "constant", 0, "", "off", "tiles that need no run of their own"},

    {"output.path", kTemplate, "", "", 0, "output", "",
     "file, folder, or template with {stem} {name} {ext} {reldir} {index}"},
    {"output.name", kText, "", "", 0, "", "output", "name of the output"},
    {"output.dtype", kWord, kOutputTypes, "", 0, "", "auto",
     "sample type; auto: the input's, the smallest unsigned integer for labels, f32 for "
     "probabilities"},
    {"output.post", kPost, "clamp sigmoid softmax argmax", "", 0, "", "[]",
     "steps after the model: clamp, sigmoid, softmax, argmax, {threshold: x}, {scale: [a, b]}, "
     "{labels: [...]}"},
    {"output.existing", kWord, "refuse skip replace", "", 0, "", "refuse",
     "what to do with files that this job did not write"},
    {"output.losses", kWord, "refuse allow", "", 0, "", "refuse",
     "whether the output may lose what its format can't hold"},
    {"output.select", kText, "", kWholeKey, 0, "", "", "which of the model's results"},
    {"output.fill", kNumber, "", kWholeKey, 0, "", "", "value outside the support"},
    {"output.pass", kWord, "", kWholeKey, 0, "", "", "what is copied unchanged"},
    {"output.compression", kText, "", kWholeKey, 0, "", "", "compression of the container"},
    {"outputs", kList, "", "", 0, "", "", "a list with one output (several: not supported yet)"},

    {"compress.max_error", kBound, "", "", 0, "max-error", "1%",
     "how far active values of grids may be off: \"1%\" of the grid's range over all files that "
     "differ only in their last number, 0.01 in its own units, lossless, or by grid: "
     "\"density=1%,vel=0.01,flame=lossless\"; none (with vq): as near as codes come"},
    {"compress.method", kWord, "bounded vq auto", "", 0, "method", "bounded",
     "how grids are coded: bounded: smallest, within max_error; vq: leaves as codes of a trained "
     "codebook, for speed and previews, some 2 % of the range off (root mean square) unless "
     "max_error is "
     "given; auto: of each block of leaves the smaller one, within max_error"},

    {"execution.devices", kTexts, "auto cpu cuda cuda:N cuda:N:M UUID name", "", 0, "devices",
     "auto",
     "devices to use: GPUs or parts of them (MIG), by nvidia-smi's numbers, UUIDs or names; auto: "
     "all GPUs, else the CPU"},
    {"execution.workers", kInteger, "auto", "", 1, "workers", "auto",
     "worker processes; auto: one per device"},
    {"execution.launch", kWord, "local join", "", 0, "", "local",
     "who starts workers: local: this process; join: only `tilery worker --join`, on any host"},
    {"execution.listen", kText, "auto", "", 0, "listen", "",
     "let other hosts join: all addresses of this one (auto), or an interface or address"},
    {"execution.broadcast", kWord, "auto on off", "", 0, "", "auto",
     "pass the model's file on between GPUs by NCCL: auto: files of 256 MiB and more among several "
     "hosts; on: any among several GPUs; off: each reads the file"},
    {"execution.batch", kInteger, "auto", "", 1, "", "auto", "tiles per run of the model"},
    {"execution.reproducible", kWord, "relaxed strict", "", 0, "", "relaxed",
     "strict: refuse devices whose results differ in their last bits"},
    {"execution.work", kPath, "", "", 0, "work", "",
     "work folder; default: .tilery/<job> beside the output"},
    {"execution.scratch", kPath, "", "", 0, "", "",
     "folder for what is not finished; default: in the work folder"},
    {"execution.scratch_limit", kMemory, "", "", 1, "", "", "bytes of scratch in use at once"},
    {"execution.unit_memory", kMemory, "", "", 1 << 20, "", "1GiB",
     "bound of one unit's accumulator; part of what decides bytes"},
    {"execution.gpu_memory", kMemory, "", "", 1 << 20, "", "",
     "bound of the memory of each GPU that a run takes; default: what is free"},
    {"execution.threads", kInteger, "auto", "", 1, "", "auto",
     "threads that read, decode, encode and write"},
    {"execution.failures.max", kShare, "", "", 0, "", "100%",
     "failed items (count or share) beyond which the run stops"},
    {"execution.numerics", kPath, "", "", 0, "numerics", "", "a numerics record to reuse"},

    {"on_failed", kWord, "continue stop", "", 0, "", "continue",
     "as a stage: whether those after it run when some of its items have failed"},
    {"stages", kList, "", "", 0, "", "", "jobs that run in order, each after the one before it"},
    {"jobs", kList, "", "", 0, "", "", "jobs that have nothing to do with each other"},
};

}  // namespace

std::span<const JobKey> JobKeys() { return kKeys; }

const JobKey* FindJobKey(std::string_view key) {
  for (const JobKey& known : kKeys) {
    if (key == known.key) return &known;
  }
  return nullptr;
}

bool IsLater(const JobKey& key) { return std::string_view(key.later) == kWholeKey; }

std::vector<std::string> SplitWords(const char* words) {
  std::vector<std::string> out;
  std::string_view rest(words);
  while (!rest.empty()) {
    const size_t end = rest.find(' ');
    out.emplace_back(rest.substr(0, end));
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
  }
  return out;
}

bool TakesManyValues(const JobKey& key) {
  switch (key.type) {
    case kTexts:
    case kPaths:
    case kIntegers:
    case kNumbers:
    case kRange:
    case kScale:
    case kExtent:
    case kPost:
      return true;
    default:
      return false;
  }
}

std::string ResolveFlag(const std::string& name) {
  std::vector<std::string> valid;
  for (const JobKey& known : kKeys) {
    if (name == known.key || (known.flag[0] != '\0' && name == known.flag)) return known.key;
    if (known.flag[0] != '\0') valid.emplace_back(known.flag);
    valid.emplace_back(known.key);
  }
  const std::string nearest = NearestWord(name, valid);
  throw Error(Fault::kUsage, "unknown flag '--" + Printable(name, 80) + "'" +
                                 (nearest.empty() ? "; `tilery run --help` lists all"
                                                  : "; the nearest is '--" + nearest + "'"));
}

}  // namespace tilery
