// Items that are grids of OpenVDB files: their tiles, their voxels, and their outputs.
#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "io/file.h"
#include "io/vdb_region.h"
#include "pipeline/sparse_tiles.h"
#include "scheduler/wire.h"

namespace tilery {

struct UnitEnv;
struct UnitTask;

// The open file of an item. Thread-safe.
class SparseItem {
 public:
  // Error(kInput) "changed during the run" if the file is not the one that the plan saw.
  SparseItem(const UnitWork& work, const Tiling& tiling);

  const VdbFile& file() const { return file_; }
  const VdbGrid& grid() const { return grid_; }
  const VdbRegions& regions() const { return regions_; }
  const SparseTiles& tiles() const { return tiles_; }
  // Item voxels.
  void Read(const Box& box, const View& out) const {
    tiles_.VisitParts(box, [&](const Box& part, const Box& in_grid) {
      regions_.Read(in_grid, out.Crop(Shift(part, {-box.begin[0], -box.begin[1], -box.begin[2]})));
    });
  }

 private:
  const VdbFile file_;
  const VdbGrid& grid_;
  const SparseTiles tiles_;
  const VdbRegions regions_;
};

// The last few of them: units of one item come together. Thread-safe.
class SparseItems {
 public:
  std::shared_ptr<const SparseItem> Get(const UnitWork& work, const Tiling& tiling);

 private:
  static constexpr size_t kKept = 4;
  struct Entry {
    std::string key;
    Tiling tiling;
    std::shared_ptr<const SparseItem> item;
  };
  std::mutex mutex_;  // held while a file is looked through: others mostly wait for the same one
  std::list<Entry> entries_;  // the latest in front
};

// Of a task whose work is about a grid: sets what it knows of its item, unless it has it.
void OpenSparse(const UnitEnv& env, UnitTask& task);

// Writes the grid with the input's topology, transform and metadata and the output's values.
// `fill` gives these: of a box of output voxels, into a dense interleaved view of f32. Active tiles
// of inner nodes become leaves, since the output is not the same all over them. Memory: the values
// of one lower node, of 128^3 voxels.
void WriteSparse(const UnitEnv& env, UnitTask& task, OutputFile& file,
                 const std::function<void(const Box& box, const View& out)>& fill);

}  // namespace tilery
