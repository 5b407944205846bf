#include "pipeline/sparse_tiles.h"

#include <algorithm>
#include <array>

#include "io/error.h"

namespace tilery {
namespace {

int64_t FloorDiv(int64_t a, int64_t b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

// Tile indices along each axis, counted from the grid's own zero.
class Collector {
 public:
  Collector(const VdbFile& file, const VdbGrid& grid, const Tiling& tiling)
      : file_(file), grid_(grid), tiling_(tiling) {}

  // All tiles with weight in an active box: x, y, z as OpenVDB has them, `last` inclusive.
  void Add(const VdbCoord& first, const VdbCoord& last) {
    Box tiles;
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t stride = tiling_.tile[axis] - tiling_.overlap[axis];
      // Tile k has weight from k * stride + trim to k * stride + tile - trim.
      tiles.begin[axis] =
          FloorDiv(first[2 - axis] - tiling_.tile[axis] + tiling_.trim[axis], stride) + 1;
      tiles.end[axis] = FloorDiv(last[2 - axis] - tiling_.trim[axis], stride) + 1;
    }
    if (tiles == last_) return;  // neighbours mostly need the same
    last_ = tiles;
    if (tiles.voxels() > kMostSparseTiles) TooMany();
    Index at;
    for (at[0] = tiles.begin[0]; at[0] < tiles.end[0]; ++at[0]) {
      for (at[1] = tiles.begin[1]; at[1] < tiles.end[1]; ++at[1]) {
        for (at[2] = tiles.begin[2]; at[2] < tiles.end[2]; ++at[2]) found_.push_back(at);
      }
    }
    if (found_.size() > 2 * unique_ + (1 << 20)) Tidy();
  }

  SparseTiles Finish() {
    Tidy();
    if (found_.empty()) found_.push_back({0, 0, 0});  // no voxel is active: some tile is run
    SparseTiles sparse;
    std::array<std::vector<int64_t>, 3> used;    // tile indices along each axis
    std::array<std::vector<int64_t>, 3> places;  // of these, in the item
    Index counts;
    for (size_t axis = 0; axis < 3; ++axis) {
      for (const Index& tile : found_) {
        if (used[axis].empty() || used[axis].back() != tile[axis]) used[axis].push_back(tile[axis]);
      }
      std::sort(used[axis].begin(), used[axis].end());
      used[axis].erase(std::unique(used[axis].begin(), used[axis].end()), used[axis].end());
      const int64_t tile = tiling_.tile[axis], stride = tile - tiling_.overlap[axis];
      const int64_t apart = (tile + stride - 1) / stride;  // tiles that share no voxel
      int64_t place = 0;
      for (size_t i = 0; i < used[axis].size(); ++i) {
        const int64_t at = used[axis][i], step = i == 0 ? 0 : at - used[axis][i - 1];
        place += std::min(step, apart);
        if (i == 0 || step > apart) sparse.runs[axis].push_back({place * stride, at * stride});
        places[axis].push_back(place);
      }
      counts[axis] = place + 1;
      sparse.shape[axis] = place * stride + tile;
    }
    if (static_cast<double>(sparse.shape[0]) * static_cast<double>(sparse.shape[1]) *
            static_cast<double>(sparse.shape[2]) >
        0x1p62) {
      throw Error(Fault::kInput, Name() + "its active voxels lie in a box of " +
                                     ShapeToString(sparse.shape, 3) +
                                     " voxels, more than 2^62; cut it into parts");
    }
    TileSet tiles;
    tiles.reserve(found_.size());
    for (const Index& tile : found_) {
      Index at;
      for (size_t axis = 0; axis < 3; ++axis) {
        const auto& all = used[axis];
        const auto found = std::lower_bound(all.begin(), all.end(), tile[axis]);
        at[axis] = places[axis][static_cast<size_t>(found - all.begin())];
      }
      tiles.push_back((at[0] * counts[1] + at[1]) * counts[2] + at[2]);
    }
    sparse.tiles = std::make_shared<const TileSet>(std::move(tiles));
    return sparse;
  }

 private:
  std::string Name() const {
    return Printable(file_.file().path().native()) + ": grid '" + Printable(grid_.label, 60) +
           "': ";
  }
  [[noreturn]] void TooMany() const {
    throw Error(Fault::kInput, Name() + "its active voxels need more than " +
                                   std::to_string(kMostSparseTiles) +
                                   " tiles; choose a larger tile");
  }
  void Tidy() {
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    unique_ = found_.size();
    if (static_cast<int64_t>(unique_) > kMostSparseTiles) TooMany();
  }

  const VdbFile& file_;
  const VdbGrid& grid_;
  const Tiling& tiling_;
  std::vector<Index> found_;
  size_t unique_ = 0;  // of them, at the last Tidy
  Box last_;
};

VdbCoord Last(const VdbCoord& origin, int32_t edge) {
  return {origin[0] + (edge - 1), origin[1] + (edge - 1), origin[2] + (edge - 1)};
}

void AddActiveVoxels(const VdbNode& leaf, Collector* collector) {
  VdbCoord least{8, 8, 8}, most{-1, -1, -1};
  for (int voxel = leaf.active.NextOn(0); voxel >= 0; voxel = leaf.active.NextOn(voxel + 1)) {
    const VdbCoord at = VdbPlaceOffset(VdbLevel::kLeaf, voxel);
    for (size_t axis = 0; axis < 3; ++axis) {
      least[axis] = std::min(least[axis], at[axis]);
      most[axis] = std::max(most[axis], at[axis]);
    }
  }
  if (most[0] < 0) return;
  for (size_t axis = 0; axis < 3; ++axis) {
    least[axis] += leaf.origin[axis];
    most[axis] += leaf.origin[axis];
  }
  collector->Add(least, most);
}

}  // namespace

Index SparseTiles::ToItem(const Index& first) const {
  Index more;
  for (size_t axis = 0; axis < 3; ++axis) {
    const auto next = std::partition_point(runs[axis].begin() + 1, runs[axis].end(),
                                           [&](const Run& run) { return run.grid <= first[axis]; });
    more[axis] = std::prev(next)->item - std::prev(next)->grid;
  }
  return more;
}

void SparseTiles::VisitParts(
    const Box& box, const std::function<void(const Box& part, const Box& in_grid)>& visit) const {
  struct Part {
    int64_t begin, end, to_grid;
  };
  std::array<std::vector<Part>, 3> parts;
  for (size_t axis = 0; axis < 3; ++axis) {
    int64_t begin = box.begin[axis];
    auto next = std::partition_point(runs[axis].begin() + 1, runs[axis].end(),
                                     [&](const Run& run) { return run.item <= begin; });
    while (begin < box.end[axis]) {
      const Run& run = *std::prev(next);
      const int64_t end =
          next == runs[axis].end() ? box.end[axis] : std::min(box.end[axis], next++->item);
      parts[axis].push_back({begin, end, run.grid - run.item});
      begin = end;
    }
  }
  for (const Part& z : parts[0]) {
    for (const Part& y : parts[1]) {
      for (const Part& x : parts[2]) {
        const Box part{{z.begin, y.begin, x.begin}, {z.end, y.end, x.end}};
        visit(part, Shift(part, {z.to_grid, y.to_grid, x.to_grid}));
      }
    }
  }
}

SparseTiles FindSparseTiles(const VdbFile& file, const VdbGrid& grid, const Tiling& tiling) {
  VdbTreeReader tree(file, grid);
  Collector collector(file, grid, tiling);
  for (const VdbRootTile& tile : tree.root_tiles()) {
    if (!tile.active) continue;
    throw Error(Fault::kInput, Printable(file.file().path().native()) + ": grid '" +
                                   Printable(grid.label, 60) +
                                   "' has an active tile of 4096^3 voxels, for which the model "
                                   "would run voxel by voxel; make it inactive or smaller");
  }
  for (VdbNode node; tree.Next(&node);) {
    if (node.level == VdbLevel::kLeaf) {
      AddActiveVoxels(node, &collector);
      continue;
    }
    const int32_t edge = VdbPlaceEdge(node.level);
    for (int place = node.active.NextOn(0); place >= 0; place = node.active.NextOn(place + 1)) {
      VdbCoord at = VdbPlaceOffset(node.level, place);
      for (size_t axis = 0; axis < 3; ++axis) at[axis] += node.origin[axis];
      collector.Add(at, Last(at, edge));
    }
  }
  tree.CheckEnd(false);
  return collector.Finish();
}

}  // namespace tilery
