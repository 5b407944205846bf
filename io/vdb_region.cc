#include "io/vdb_region.h"

#include <algorithm>
#include <utility>

#include "io/vdb_pack.h"

namespace tilery {
namespace {

// Of the voxels of a cube, in z,y,x.
Box CubeOf(const VdbCoord& origin, int64_t edge) {
  const Index begin{origin[2], origin[1], origin[0]};
  return {begin, {begin[0] + edge, begin[1] + edge, begin[2] + edge}};
}

int64_t Floor(int64_t at, int64_t edge) {
  return (at >= 0 ? at / edge : -((-at + edge - 1) / edge)) * edge;
}

}  // namespace

VdbRegions::VdbRegions(const VdbFile& file, const VdbGrid& grid)
    : file_(file), grid_(grid), numbers_(VdbNumbersOf(grid.type).value()) {
  VdbTreeReader tree(file, grid);
  background_ = tree.background();
  for (const VdbRootTile& tile : tree.root_tiles()) {
    if (tile.value != background_)
      tiles_.push_back({tile.origin, VdbEdge(VdbLevel::kUpper), tile.value});
  }
  Lower* lower = nullptr;
  for (VdbNode node; tree.Next(&node);) {
    switch (node.level) {
      case VdbLevel::kUpper:
        AddTiles(node, &tiles_);
        break;
      case VdbLevel::kLower:
        lower = &lowers_[node.origin];
        lower->leaves = node.children;
        lower->values = tree.leaf_position();
        AddTiles(node, &lower->tiles);
        break;
      case VdbLevel::kLeaf:
        tree.SkipLeaf(node);
        break;
    }
  }
  tree.CheckEnd(true);
}

void VdbRegions::AddTiles(const VdbNode& node, std::vector<Tile>* tiles) const {
  const size_t bytes = numbers_.bytes();
  for (int place = 0; place < VdbPlaces(node.level); ++place) {
    if (node.children.on(place)) continue;
    const auto* const value =
        reinterpret_cast<const char*>(&node.values[static_cast<size_t>(place) * bytes]);
    if (std::equal(value, value + bytes, background_.begin())) continue;
    Tile tile{VdbPlaceOffset(node.level, place), VdbPlaceEdge(node.level),
              std::string(value, bytes)};
    for (size_t axis = 0; axis < 3; ++axis) tile.origin[axis] += node.origin[axis];
    tiles->push_back(std::move(tile));
  }
}

void VdbRegions::Fill(const Box& cube, const std::string& value_bytes, const Box& box,
                      const View& out) const {
  const Box part = Intersect(cube, box);
  if (part.empty()) return;
  for (int c = 0; c < numbers_.components; ++c) {
    const auto value =
        static_cast<float>(VdbNumberAt(reinterpret_cast<const std::byte*>(value_bytes.data()) +
                                           static_cast<size_t>(c) * DTypeSize(numbers_.dtype),
                                       numbers_.dtype));
    for (int64_t z = part.begin[0]; z < part.end[0]; ++z) {
      for (int64_t y = part.begin[1]; y < part.end[1]; ++y) {
        for (int64_t x = part.begin[2]; x < part.end[2]; ++x) {
          *reinterpret_cast<float*>(
              out.at(c, z - box.begin[0], y - box.begin[1], x - box.begin[2])) = value;
        }
      }
    }
  }
}

void VdbRegions::ReadLower(const VdbCoord& origin, const Lower& lower, const Box& box,
                           const View& out) const {
  for (const Tile& tile : lower.tiles) Fill(CubeOf(tile.origin, tile.edge), tile.value, box, out);
  VdbInput in(file_.file(), lower.values, grid_.end);
  VdbArrays arrays(grid_, background_);
  VdbMask active(kVdbLeafVoxels);
  std::vector<std::byte> values(kVdbLeafVoxels * numbers_.bytes());
  for (int place = lower.leaves.NextOn(0); place >= 0; place = lower.leaves.NextOn(place + 1)) {
    VdbCoord at = VdbPlaceOffset(VdbLevel::kLower, place);
    for (size_t axis = 0; axis < 3; ++axis) at[axis] += origin[axis];
    const Box leaf = CubeOf(at, VdbEdge(VdbLevel::kLeaf));
    const Box part = Intersect(leaf, box);
    in.Read(std::as_writable_bytes(active.words()));
    if (part.empty()) {
      arrays.Skip(in, active);
      continue;
    }
    arrays.Read(in, active, values);
    const size_t number = DTypeSize(numbers_.dtype);
    for (int64_t z = part.begin[0]; z < part.end[0]; ++z) {
      for (int64_t y = part.begin[1]; y < part.end[1]; ++y) {
        for (int64_t x = part.begin[2]; x < part.end[2]; ++x) {
          const auto voxel = static_cast<size_t>(((x - leaf.begin[2]) * 8 + y - leaf.begin[1]) * 8 +
                                                 z - leaf.begin[0]);
          for (int c = 0; c < numbers_.components; ++c) {
            const std::byte* const from =
                &values[voxel * numbers_.bytes() + static_cast<size_t>(c) * number];
            *reinterpret_cast<float*>(
                out.at(c, z - box.begin[0], y - box.begin[1], x - box.begin[2])) =
                static_cast<float>(VdbNumberAt(from, numbers_.dtype));
          }
        }
      }
    }
  }
}

void VdbRegions::Read(const Box& box, const View& out) const {
  if (box.empty()) return;
  Fill(box, background_, box, out);
  for (const Tile& tile : tiles_) Fill(CubeOf(tile.origin, tile.edge), tile.value, box, out);
  constexpr int32_t kEdge = VdbEdge(VdbLevel::kLower);
  for (int64_t x = Floor(box.begin[2], kEdge); x < box.end[2]; x += kEdge) {
    for (int64_t y = Floor(box.begin[1], kEdge); y < box.end[1]; y += kEdge) {
      for (int64_t z = Floor(box.begin[0], kEdge); z < box.end[0]; z += kEdge) {
        const VdbCoord origin{static_cast<int32_t>(x), static_cast<int32_t>(y),
                              static_cast<int32_t>(z)};
        const auto found = lowers_.find(origin);
        if (found != lowers_.end()) ReadLower(origin, found->second, box, out);
      }
    }
  }
}

}  // namespace tilery
