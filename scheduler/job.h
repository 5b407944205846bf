// A job as the user wrote it: YAML file and flags, defaults filled in, paths made absolute.
// Mistakes are Error(kUsage) naming key, value, what is allowed and the nearest valid word; keys of
// the contract that are not built yet are refused as "not supported yet".
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/format.h"
#include "pipeline/codec/grid_bounds.h"
#include "pipeline/geometry.h"
#include "pipeline/transfer.h"

namespace tilery {

// A model's contract; unset = not said. From the job, else the model file's own tilery.json, else
// probed, else assumed; `source` tells which per key ("job", "file", "probed", "assumed").
struct Contract {
  std::optional<std::vector<Rational>> scale;  // one, or one per axis (y,x or z,y,x)
  std::optional<int> dims;
  std::optional<int32_t> channels_in, channels_out;
  std::optional<std::string> order;  // rgb | bgr
  std::optional<std::array<double, 2>> range;
  std::optional<std::vector<double>> mean, std;
  std::optional<std::vector<int64_t>> multiple, radius;
  std::optional<std::vector<int64_t>> tile, overlap;  // suggested tiling
  std::map<std::string, std::string> source;
};

// A number of voxels, one or one per axis; percent of the tile; or auto.
struct Extent {
  enum class Kind : uint8_t { kAuto, kVoxels, kPercent } kind = Kind::kAuto;
  std::vector<double> values;
};

// kMeasure is no word of users: what a run does before it compresses a sequence.
enum class Task : uint8_t { kInfer, kMeasure, kCompress, kDecompress };
enum class Existing : uint8_t { kRefuse, kSkip, kReplace };
enum class AlphaMode : uint8_t { kAuto, kModel, kResize, kCopy, kDrop };

inline constexpr int64_t kLargestBatch = 65536;  // far beyond what any device holds

struct OutputSpec {
  std::string name = "output";
  std::string path;            // template, absolute
  std::optional<DType> dtype;  // unset: auto
  std::vector<PostOp> post;
  Existing existing = Existing::kRefuse;
  bool allow_losses = false;
  double fill = 0;
};

// What the command line says: dotted key -> values, short names already resolved ("tiling.tile").
using JobFlags = std::vector<std::pair<std::string, std::vector<std::string>>>;

struct Job {
  std::string name;             // as the job says, else the stem of its file, else "job"
  std::filesystem::path file;   // empty: flags only
  bool stop_on_failed = false;  // in a pipeline: failed items keep the stages after it from running
  Task task = Task::kInfer;
  GridBounds max_error;  // of kCompress
  struct {
    std::string path;
    std::string precision = "auto", compile = "auto";
    std::optional<double> max_error;     // of outputs against fp32, in the model's own units
    std::vector<std::string> libraries;  // of custom operators, in the order of loading; absolute
    Contract contract;                   // as given in the job
  } model;
  struct {
    std::vector<std::string> paths;  // files, folders, globs; absolute
    std::optional<RawLayout> raw;
    std::vector<std::string> grids;  // of OpenVDB files
    AlphaMode alpha = AlphaMode::kAuto;
    Transfer::NonFinite nonfinite = Transfer::NonFinite::kKeep;
    std::optional<std::array<double, 2>> normalize;  // stored values of the range's ends
    std::optional<int> dims;                         // input.axes / model.dims decide slices
  } input;
  struct {
    Extent tile, overlap, trim;
    WindowKind window = WindowKind::kCosine;
    PadMode pad = PadMode::kReflect;
  } tiling;
  std::vector<OutputSpec> outputs;  // one; several: not supported yet
  struct {
    std::vector<std::string> devices;  // empty: auto
    std::optional<int> workers;        // unset: auto
    bool join = false;                 // workers come by themselves; none is started here
    std::string listen;  // for hosts that join: "auto", an interface or an address; "": none
    std::string broadcast = "auto";  // of the model's file: auto, on, off
    std::optional<int64_t> batch;
    bool strict = false;
    std::string work;     // absolute
    std::string scratch;  // absolute; default WORK/scratch
    std::optional<int64_t> scratch_limit;
    int64_t unit_memory = 1 << 30;
    std::optional<int64_t> gpu_memory;  // bytes that all workers on one GPU may take
    std::optional<int> threads;
    double max_failures = 1.0;  // share of the items; beyond it the run stops
    int64_t max_failures_count = -1;
    std::string numerics_file;  // --numerics
  } execution;
};

const char* TaskName(Task task);
// Of the files of grids that a task reads and writes; "" for kInfer.
std::string InputExtension(Task task);
std::string OutputExtension(Task task);

// `file` may be empty; one with several jobs is refused (pipeline.h loads those). Relative paths of
// flags count from the current folder, of the file from its own.
Job LoadJob(const std::filesystem::path& file, const JobFlags& flags);

// The nearest of `valid` to `word` by edit distance ("" if none is near).
std::string NearestWord(const std::string& word, const std::vector<std::string>& valid);

}  // namespace tilery
