// Random units of work for the kernels over many tiles, compared bit by bit with pipeline/ops.h:
// one set of cases for the GPU and for its functions on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/blocks.h"
#include "pipeline/cuda/tile_kernels.h"
#include "pipeline/transfer.h"

namespace tilery {

// Memory and kernels. What Copy() gives is aligned to 256 bytes and lives as long as this.
class TileBackend {
 public:
  virtual ~TileBackend() = default;
  virtual void* Copy(const void* bytes, size_t size) = 0;
  virtual void Read(const void* from, void* to, size_t size) = 0;
  virtual void Gather(const cuda::GatherTask& task, const cuda::TileStarts& starts,
                      const cuda::TileRun& run) = 0;
  virtual void Blend(const cuda::BlendTilesTask& task, const cuda::TileRun& run) = 0;
};

// An item and what is made of it. `transfer` has one pass, with the model.
struct TileCase {
  uint32_t seed = 0;
  Index shape{1, 1, 1};
  Tiling tiling;
  UnitSizing sizing;
  Transfer transfer;
  cuda::ModelType type = cuda::ModelType::kF32;
  cuda::ModelLayout layout = cuda::ModelLayout::kPlanar;
  bool tabled = false;      // small integers by tables
  bool interleaved = true;  // samples
  int64_t largest_batch = 8;
  bool keep = false;  // all sums
};
TileCase RandomTileCase(uint32_t seed);

// The tables of tile_kernels.h for one unit along one axis. Weights that no kernel may read are not
// a number.
struct UnitAxis {
  std::vector<int32_t> first, tiles;
  std::vector<int64_t> begin, cover_begin, cover_end;
  std::vector<float> weights;
};
UnitAxis MakeUnitAxis(const ItemGeometry& geometry, int64_t unit, int axis);

// Gathers, or blends and finishes, up to `units` of the item's units in random batches. Empty, or
// what differs from the CPU and where.
std::string CheckGathering(TileBackend& backend, const TileCase& c, int64_t units);
std::string CheckBlending(TileBackend& backend, const TileCase& c, int64_t units);

}  // namespace tilery
