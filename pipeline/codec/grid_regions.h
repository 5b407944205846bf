// The regions of a grid of an OpenVDB file, in the order of the file.
#pragma once

#include <functional>
#include <memory>

#include "io/vdb_file.h"
#include "io/vdb_tree.h"
#include "pipeline/codec/region.h"

namespace tilery {

// One at a time. Not thread-safe; `file` outlives it. Error(kInput).
class RegionReader {
 public:
  // `upper` is called for each upper node before the regions below it.
  RegionReader(const VdbFile& file, const VdbGrid& grid,
               std::function<void(const VdbNode&)> upper = {});
  const VdbTreeReader& tree() const { return tree_; }
  bool Next(Region* region);  // false after the last one

 private:
  VdbTreeReader tree_;
  const std::function<void(const VdbNode&)> upper_;
  VdbNode node_;
  bool more_ = false;
};

// The regions of the base grid beside those of another, both in the order of their files.
class BaseRegions {
 public:
  BaseRegions(const VdbFile& file, const VdbGrid& grid);
  // Null if there is none, or none in a place that the order of trees allows. `origin` of one
  // region after the other.
  std::shared_ptr<const Region> At(const VdbCoord& origin);

 private:
  void Advance();

  RegionReader reader_;
  std::shared_ptr<const Region> region_;
};

}  // namespace tilery
