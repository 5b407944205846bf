// JSON forms of the values that travel between scheduler and worker (cluster/message.h). Fields
// that hold their default are left out. Every ...FromJson throws Error(kInternal) naming what is
// missing or wrong.
#pragma once

#include "cluster/message.h"
#include "scheduler/outcome.h"
#include "scheduler/plan.h"

namespace tilery {

// A shared library that a model's custom operators come from.
struct OperatorLibrary {
  std::string path, hash;  // absolute; XXH3-128 of the file
  bool operator==(const OperatorLibrary&) const = default;
};

// All that is the job's, sent once in `welcome`.
struct WorkerContext {
  std::string work;     // absolute path of WORK
  std::string scratch;  // absolute path of the scratch folder (bricks, stage files)
  std::string model;    // absolute path of the model file
  std::string model_hash;
  // Loaded in this order before the model.
  std::vector<OperatorLibrary> libraries;
  bool grids = false;          // all units are tasks of grids: there is no model
  bool compiled_only = false;  // `model` itself can't be run, only `package`
  int32_t dims = 2;
  Index tile{1, 1, 1};
  Scale scale;
  int32_t model_in = 3, model_out = 3;
  int64_t batch = 1;
  std::string slots = "all";  // of a batch (pipeline/batch_slots.h)
  std::string precision = "fp32", layout = "nchw";
  std::string package, package_hash;  // absolute path of the compiled model; empty: none
  std::string numerics_key;
  std::string device_kind, torch;  // of the record: the worker refuses to start if its own differ
  int lanes = 1;                   // per worker
  bool graph = true;               // a GPU replays CUDA graphs where it can
  int64_t device_memory = 0;       // bytes that a worker may take of its GPU; 0: what is free
  bool shared = false;             // other hosts may take part, whose files may be seen late
  int64_t model_bytes = 0;         // of the file that runs
  bool pass_model = false;         // workers ask whether another one passes it on to them
  std::vector<ItemParams> params;

  // The file that runs.
  const std::string& runs() const { return package.empty() ? model : package; }
  const std::string& runs_hash() const { return package.empty() ? model_hash : package_hash; }

  // A worker's own, and not sent: where the bytes of that file are; empty: in it.
  std::string model_at;
};

// One leased unit, complete in itself given the context.
struct Brick {  // of an infer unit that an assemble unit needs
  int64_t block = 0;
  std::string file, key;  // file: relative to scratch
};
struct UnitWork {
  UnitKind kind = UnitKind::kInfer;
  int64_t item = 0;
  std::string input, output, item_key;
  FileStamp stamp;
  Header header;
  int32_t params = 0;
  UnitSizing sizing;
  std::string grid;        // label of the grid, of which the worker itself finds the tiles
  int64_t tiles = 0;       // infer of a grid: model runs
  int64_t block = 0;       // infer
  bool whole = false;      // infer: the item's only unit, writes the output itself
  std::string stage_file;  // stage: to be written; infer of a staged item: to be read
  std::string brick_key;   // infer with brick
  // assemble: bricks of the blocks in order. More than 1,000 are named in `bricks_file` instead, to
  // keep messages small: a file written by the scheduler, absolute, read by BricksFromText.
  std::vector<Brick> bricks;
  std::string bricks_file;
  int64_t bricks_missing = 0;  // of the blocks: not there yet, announced by messages
};

Json ToJson(const WorkerContext& context);
WorkerContext ContextFromJson(const Json& json);
Json ToJson(const UnitWork& work);
UnitWork UnitWorkFromJson(const Json& json);
Json ToJson(const std::vector<Brick>& bricks);
std::vector<Brick> BricksFromJson(const Json& json);
Json ToJson(const Outcome& outcome);
Outcome OutcomeFromJson(const Json& json);
Json ToJson(const ItemParams& params);
ItemParams ItemParamsFromJson(const Json& json);
Json ToJson(const FileStamp& stamp);
FileStamp StampFromJson(const Json& json);
Json ToJson(const Header& header);
Header HeaderFromJson(const Json& json);

std::string BricksToText(const std::vector<Brick>& bricks);
std::vector<Brick> BricksFromText(const std::string& text);

}  // namespace tilery
