// Reads boxes of voxels and leaves of a .tvdb file, decoding only the regions that they touch.
//
// Coordinates are x, y, z, in voxels of the grid's index space, and may be negative.
#pragma once

#include <cstdint>
#include <filesystem>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "pipeline/codec/dense_box.h"
#include "pipeline/codec/grid_file.h"
#include "pipeline/codec/grid_index.h"

namespace tilery {

// Thread-safe. Memory: the index, up to kRegionBytes of decoded regions that are kept for the next
// reads, up to kKeptUppers of upper nodes, and a region of 128^3 voxels for each call.
// Error(kInput) with path and piece; what is damaged elsewhere in the file does not matter.
class GridReader {
 public:
  static constexpr size_t kKeptUppers = size_t{64} << 20;

  explicit GridReader(const std::filesystem::path& path);

  const FilePiece& about() const { return index_.about(); }
  // Of all grids, in their order.
  const std::vector<GridReport>& reports() const { return reports_; }
  const GridIndex::Grid& pieces(size_t grid) const {
    return index_.grid(static_cast<uint32_t>(grid));
  }
  // The one whose tree a grid has: itself, unless it shares another's.
  size_t TreeOf(size_t grid) const { return trees_.at(grid); }
  const GridPiece& piece(size_t grid) const { return grids_.at(grid); }
  // Of its tree. Error(kInput) if that is passed on, and no codec knows its values.
  const GridPiece& CodedTree(size_t grid) const;

  // The value of each voxel of `box`, active or not, as Number (float or double, rounded to it):
  // values[((x * ny + y) * nz + z) * components + component] with x, y, z counted from its begin.
  // `active`, if not null: 1 for each voxel that is active, else 0, in the same order.
  template <typename Number>
  void Read(size_t grid, const VdbBox& box, Number* values, uint8_t* active) const;

  // Of a coded tree.
  Region ReadRegion(size_t tree, const VdbCoord& origin) const;  // it is not kept
  const TvdbFile& file() const { return file_; }

 private:
  using Uppers = std::vector<VdbNode>;
  struct Kept {
    size_t tree;
    std::shared_ptr<const Region> region;
    size_t bytes;
  };

  std::shared_ptr<const Region> RegionAt(size_t tree, const VdbCoord& origin) const;
  std::shared_ptr<const Uppers> UppersOf(size_t tree) const;  // null: too many to be kept
  template <typename Use>
  void ForUppers(size_t tree, const Use& use) const;
  std::string NameOf(size_t grid) const;  // with the path before it

  const TvdbFile file_;
  const GridIndex index_;
  std::vector<GridPiece> grids_;
  std::vector<GridReport> reports_;
  std::vector<size_t> trees_;

  mutable std::mutex mutex_;         // guards what follows
  mutable std::list<Kept> regions_;  // the one used last comes first
  mutable size_t region_bytes_ = 0, upper_bytes_ = 0;
  mutable std::vector<std::shared_ptr<const Uppers>> uppers_;
};

// The leaves of a grid one after the other, in the order of the OpenVDB file. Memory: an upper node
// and a region. Not thread-safe; `reader` outlives it. Error as GridReader's; the next call then
// goes on with the next region.
class LeafReader {
 public:
  struct Leaf {
    VdbCoord origin{};
    LeafMask active{};
    std::span<const std::byte> values;  // 512, of the grid's numbers; until the next call
  };
  LeafReader(const GridReader& reader, size_t grid);
  bool Next(Leaf* leaf);  // false after the last one

 private:
  const GridReader& reader_;
  const size_t tree_;
  const VdbNumbers numbers_;
  UpperReader uppers_;
  VdbNode upper_;
  int upper_place_ = -1;  // of the region
  Region region_;
  int place_ = -1;  // of the next leaf in it
  size_t leaf_ = 0;
};

}  // namespace tilery
