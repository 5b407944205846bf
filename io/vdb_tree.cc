#include "io/vdb_tree.h"

#include <array>
#include <cstring>
#include <optional>

#include "io/container.h"
#include "io/vdb_pack.h"

namespace tilery {

VdbTreeReader::~VdbTreeReader() = default;

VdbTreeReader::VdbTreeReader(const VdbFile& file, const VdbGrid& grid)
    : grid_(grid),
      numbers_(VdbNumbersOf(grid.type).value()),
      nodes_(file.file(), grid.tree, grid.values),
      leaves_(file.file(), grid.values, grid.end) {
  ReadRoot();
}

void VdbTreeReader::ReadRoot() {
  const auto buffers = nodes_.Number<int32_t>();
  if (buffers != 1) nodes_.Fail("a tree with " + std::to_string(buffers) + " values for a voxel");
  const auto bytes = static_cast<int64_t>(numbers_.bytes());
  background_ = nodes_.Bytes(bytes);
  arrays_ = std::make_unique<VdbArrays>(grid_, background_);
  const auto tiles = nodes_.Number<uint32_t>();
  upper_nodes_ = uppers_left_ = nodes_.Number<uint32_t>();
  constexpr int64_t kCoord = 3 * 4, kMasks = 2 * 32 * 32 * 32 / 8;
  if (tiles > nodes_.left() / (kCoord + bytes + 1) ||
      uppers_left_ > nodes_.left() / (kCoord + kMasks))
    nodes_.Fail(std::to_string(tiles) + " tiles and " + std::to_string(uppers_left_) +
                " nodes are more than the file can hold");
  for (uint32_t i = 0; i < tiles; ++i) {
    VdbRootTile tile;
    tile.origin = nodes_.Number<VdbCoord>();
    tile.value = nodes_.Bytes(bytes);
    tile.active = nodes_.Number<uint8_t>() != 0;
    root_tiles_.push_back(std::move(tile));
  }
}

bool VdbTreeReader::Next(VdbNode* node) {
  while (!open_.empty()) {
    Open& above = open_.back();
    const int place = above.children.NextOn(above.next);
    if (place < 0) {
      open_.pop_back();
      continue;
    }
    above.next = place + 1;
    VdbCoord origin = VdbPlaceOffset(above.level, place);
    for (int axis = 0; axis < 3; ++axis) origin[axis] += above.origin[axis];
    ReadNode(above.level == VdbLevel::kUpper ? VdbLevel::kLower : VdbLevel::kLeaf, origin, node);
    return true;
  }
  if (uppers_left_ == 0) return false;
  --uppers_left_;
  const auto origin = nodes_.Number<VdbCoord>();
  for (const int32_t at : origin) {
    if (at % VdbEdge(VdbLevel::kUpper) != 0)
      nodes_.Fail("an upper node begins at " + std::to_string(at) +
                  ", which is no multiple of 4096");
  }
  ReadNode(VdbLevel::kUpper, origin, node);
  return true;
}

void VdbTreeReader::ReadNode(VdbLevel level, const VdbCoord& origin, VdbNode* node) {
  const int places = VdbPlaces(level);
  node->level = level;
  node->origin = origin;
  node->active = VdbMask(places);
  node->children = VdbMask(level == VdbLevel::kLeaf ? 0 : places);
  nodes_.Read(std::as_writable_bytes(node->children.words()));
  nodes_.Read(std::as_writable_bytes(node->active.words()));
  node->values.clear();
  if (level == VdbLevel::kLeaf) return;
  for (size_t i = 0; i < node->active.words().size(); ++i) {
    if ((node->active.words()[i] & node->children.words()[i]) != 0)
      nodes_.Fail("a place of a node has both a value and a node below it");
  }
  node->values.resize(static_cast<size_t>(places) * numbers_.bytes());
  arrays_->Read(nodes_, node->active, node->values);
  for (int place = node->children.NextOn(0); place >= 0; place = node->children.NextOn(place + 1)) {
    std::memset(&node->values[static_cast<size_t>(place) * numbers_.bytes()], 0, numbers_.bytes());
  }
  open_.push_back({level, origin, node->children});
}

void VdbTreeReader::ReadLeaf(const VdbNode& leaf, std::span<std::byte> values) {
  VdbMask again(kVdbLeafVoxels);
  leaves_.Read(std::as_writable_bytes(again.words()));
  if (!(again == leaf.active)) leaves_.Fail("a leaf's mask differs from the one among the nodes");
  arrays_->Read(leaves_, leaf.active, values);
}

void VdbTreeReader::SkipLeaf(const VdbNode& leaf) {
  leaves_.Skip(static_cast<int64_t>(leaf.active.words().size_bytes()));
  arrays_->Skip(leaves_, leaf.active);
}

void VdbTreeReader::CheckEnd(bool with_leaves) {
  if (nodes_.left() != 0)
    nodes_.Fail(std::to_string(nodes_.left()) + " bytes follow the last node of grid '" +
                Printable(grid_.label, 60) + "'");
  if (with_leaves && leaves_.left() != 0)
    leaves_.Fail(std::to_string(leaves_.left()) + " bytes follow the last leaf of grid '" +
                 Printable(grid_.label, 60) + "'");
}

}  // namespace tilery
