// The plan: ordered units and their dependencies, a pure function of the job and the headers of the
// inputs. It knows no device, no batch, no worker count and no clock.
//
// Memory: about 400 bytes per item and nothing per unit; units are numbered, not stored.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/format.h"
#include "pipeline/blocks.h"
#include "pipeline/codec/grid_bounds.h"
#include "pipeline/transfer.h"

namespace tilery {

// Bytes of an output that are put together at a time. Small, since an item may be assembled beside
// its inference: this memory comes on top of that.
inline constexpr int64_t kAssembleBand = 8 << 20;

// measure and finish units belong to statistics and to containers of several items; jobs that need
// them are refused as not supported yet.
enum class UnitKind : uint8_t { kStage, kMeasure, kInfer, kAssemble, kFinish };
inline constexpr size_t kUnitKinds = 5;
const char* UnitKindName(UnitKind kind);

// Model runs over one tile position.
int32_t ModelPasses(const Transfer& transfer);

// What is done with an item that is a file of grids as a whole; kNone: its tiles are inferred.
struct GridTask {
  enum class Kind : uint8_t { kNone, kMeasure, kCompress, kDecompress } kind = Kind::kNone;
  GridBounds bounds;  // kCompress
  bool operator==(const GridTask&) const = default;
  explicit operator bool() const { return kind != Kind::kNone; }
};

// Effective parameters, shared by all items that agree in them. Of a GridTask only `output.format`
// is needed beside it.
struct ItemParams {
  int32_t dims = 2;
  Tiling tiling;
  Transfer transfer;
  Header output;  // format, dtype, dims, channels, alpha; shape unset
  std::optional<RawLayout> raw;
  bool allow_losses = false;
  GridTask grids;
  bool operator==(const ItemParams& other) const;
};

// Box, mask and chunks are not supported yet.
enum class Support : uint8_t {
  kAll,
  kTopology,  // the active voxels of a sparse grid
};

// One grid of an OpenVDB file, as an item of its own.
struct SparseGrid {
  std::string label;                     // VdbGrid::label; "": the item is no grid
  std::shared_ptr<const TileSet> tiles;  // of its item (pipeline/sparse_tiles.h)
};

// One selection of one input with its outputs. `input` and the paths are bytes, never checked for
// UTF-8.
struct Item {
  std::string input;
  std::string output;  // final path
  FileStamp stamp;     // identity when its header was read
  Header header;       // stored samples
  int32_t params = 0;  // into Plan::params
  Support support = Support::kAll;
  SparseGrid grid;  // then `header.shape` is that of the box of its tiles
  UnitSizing sizing;
  std::string refused;  // why it takes no part ("" = it does); counts as failed
  std::string key;  // compute key: 32 hex digits; decides bytes together with the numerics record
  // Filled by MakePlan:
  int64_t tiles = 0;  // model runs
  int64_t first_unit = 0;
  int32_t infer_units = 0;    // 1: the unit writes the output itself, no brick, no assemble unit
  bool staged = false;        // input without random access that several units read
  int64_t scratch_bytes = 0;  // peak: stage file + bricks
  int64_t seam_bytes = 0;     // of it, partial sums
  int64_t output_bytes = 0;   // uncompressed samples

  int32_t units() const {
    return refused.empty() ? (staged ? 1 : 0) + infer_units + (infer_units > 1 ? 1 : 0) : 0;
  }
};

struct UnitRef {
  int64_t item = 0;
  UnitKind kind = UnitKind::kInfer;
  int64_t block = 0;  // of an infer unit: index into ItemGeometry
};

// Order within an item: stage, infer 0..n-1, assemble. Infer units wait for the stage unit,
// assemble for all infer units of the item, though it may be begun before (scheduler/queue.h).
struct Plan {
  std::vector<ItemParams> params;
  std::vector<Item> items;
  int64_t units = 0;
  int64_t tiles = 0;

  UnitRef Find(int64_t unit) const;  // binary search over items
  int64_t UnitOf(int64_t item, UnitKind kind, int64_t block = 0) const;
  std::shared_ptr<const ItemGeometry> Geometry(int64_t item) const;  // computed, not cached
  int64_t TilesOf(int64_t unit) const;  // model runs; 0 for stage and assemble
};

// Key of a unit's brick: hash of item key, numerics key and block.
std::string UnitKey(const std::string& item_key, const std::string& numerics_key, int64_t block);

}  // namespace tilery
