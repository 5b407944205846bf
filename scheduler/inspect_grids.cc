#include "scheduler/inspect_grids.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "io/byte_order.h"
#include "io/error.h"
#include "io/vdb_tree.h"

namespace tilery {
namespace {

Json TransformOf(const VdbTransform& transform) {
  Json json = {{"type", transform.type}};
  constexpr size_t kVector = 3 * 8;
  const auto vector = [&](size_t at) {
    Json numbers = Json::array();
    for (size_t axis = 0; axis < 3; ++axis)
      numbers.push_back(LoadLittle<double>(&transform.bytes[at + 8 * axis]));
    return numbers;
  };
  const bool scales = transform.type.find("Scale") != std::string::npos;
  const bool moves = transform.type.find("Translat") != std::string::npos;
  if (moves) json["translation"] = vector(0);
  if (scales) json["scale"] = vector(moves ? kVector : 0);
  return json;
}

// Inclusive, over all that is active.
class Bounds {
 public:
  void Add(const VdbCoord& origin, int64_t edge) {
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t first = origin[axis], last = first + edge - 1;
      least_[axis] = any_ ? std::min(least_[axis], first) : first;
      most_[axis] = any_ ? std::max(most_[axis], last) : last;
    }
    any_ = true;
  }
  void AddPlaces(const VdbNode& node) {
    if (any_ && Holds(node)) return;
    for (int place = node.active.NextOn(0); place >= 0; place = node.active.NextOn(place + 1)) {
      VdbCoord origin = VdbPlaceOffset(node.level, place);
      for (size_t axis = 0; axis < 3; ++axis) origin[axis] += node.origin[axis];
      Add(origin, VdbPlaceEdge(node.level));
    }
  }
  Json ToJson() const { return any_ ? Json{least_, most_} : Json(); }

 private:
  bool Holds(const VdbNode& node) const {
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t first = node.origin[axis];
      if (first < least_[axis] || first + VdbEdge(node.level) - 1 > most_[axis]) return false;
    }
    return true;
  }
  std::array<int64_t, 3> least_{}, most_{};
  bool any_ = false;
};

Json BackgroundOf(const VdbTreeReader& tree) {
  Json numbers = Json::array();
  const std::string& bytes = tree.background();
  for (int c = 0; c < tree.numbers().components; ++c) {
    const auto at = static_cast<size_t>(c) * DTypeSize(tree.numbers().dtype);
    numbers.push_back(
        VdbNumberAt(reinterpret_cast<const std::byte*>(&bytes[at]), tree.numbers().dtype));
  }
  return tree.numbers().components == 1 ? numbers[0] : numbers;
}

void AddTree(const VdbFile& file, const VdbGrid& grid, Json& json) {
  VdbTreeReader tree(file, grid);
  json["background"] = BackgroundOf(tree);
  const auto voxels = [](int64_t edge) { return edge * edge * edge; };
  int64_t active = 0, tiles = 0, leaves = 0;
  Bounds bounds;
  for (const VdbRootTile& tile : tree.root_tiles()) {
    if (!tile.active) continue;
    ++tiles;
    active += voxels(VdbEdge(VdbLevel::kUpper));
    bounds.Add(tile.origin, VdbEdge(VdbLevel::kUpper));
  }
  for (VdbNode node; tree.Next(&node);) {
    const int64_t count = node.active.CountOn();
    (node.level == VdbLevel::kLeaf ? leaves : tiles) += node.level == VdbLevel::kLeaf ? 1 : count;
    active += count * voxels(VdbPlaceEdge(node.level));
    bounds.AddPlaces(node);
  }
  tree.CheckEnd(false);
  json["active_voxels"] = active;
  json["active_tiles"] = tiles;
  json["leaves"] = leaves;
  json["bounds"] = bounds.ToJson();
}

}  // namespace

Json GridHeadJson(const VdbGrid& grid) {
  Json json = {{"name", Printable(grid.label, 200)},
               {"type", VdbValueTypeOf(grid)},
               {"half", grid.half},
               {"class", "unknown"},
               {"transform", TransformOf(grid.transform)}};
  for (const VdbMeta& meta : grid.metadata) {
    if (meta.name == "class" && meta.type == "string") json["class"] = Printable(meta.value, 60);
  }
  return json;
}

namespace {

Json GridJson(const VdbFile& file, const VdbGrid& grid) {
  Json json = GridHeadJson(grid);
  if (!grid.twin_of.empty()) {
    json["tree_of"] = Printable(grid.twin_of, 200);
  } else if (VdbNumbersOf(grid.type)) {
    AddTree(file, grid, json);
  } else {
    json["bytes"] = grid.end - grid.tree;
  }
  return json;
}

}  // namespace

Json GridsJson(const std::filesystem::path& path) {
  const VdbFile file(path);
  Json metadata = Json::array(), grids = Json::array();
  for (const VdbMeta& meta : file.metadata()) metadata.push_back(Printable(meta.name, 200));
  for (const VdbGrid& grid : file.grids()) grids.push_back(GridJson(file, grid));
  return {{"kind", "grids"},
          {"format", "vdb"},
          {"file", Printable(path.string(), 4096)},
          {"metadata", std::move(metadata)},
          {"grids", std::move(grids)}};
}

}  // namespace tilery
