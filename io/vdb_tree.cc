#include "io/vdb_tree.h"

#include <array>
#include <cstring>
#include <optional>

#include "io/byte_order.h"
#include "io/container.h"
#include "io/vdb_pack.h"

namespace tilery {

VdbCoord VdbPlaceOffset(VdbLevel level, int place) {
  const int bits = level == VdbLevel::kUpper ? 5 : level == VdbLevel::kLower ? 4 : 3;
  const int32_t edge = VdbPlaceEdge(level), most = (1 << bits) - 1;
  return {(place >> 2 * bits) * edge, (place >> bits & most) * edge, (place & most) * edge};
}

double VdbNumberAt(const std::byte* at, DType dtype) {
  return dtype == DType::kF64 ? LoadLittle<double>(at) : LoadLittle<float>(at);
}

int VdbMask::CountOn() const {
  int count = 0;
  for (const uint64_t word : words_) count += std::popcount(word);
  return count;
}

int VdbMask::NextOn(int from) const {
  for (auto word = static_cast<size_t>(from) / 64; word < words_.size(); ++word) {
    uint64_t bits = words_[word];
    if (word == static_cast<size_t>(from) / 64) bits &= ~uint64_t{0} << (from % 64);
    if (bits != 0) return static_cast<int>(word) * 64 + std::countr_zero(bits);
  }
  return -1;
}

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
  ReadValues(nodes_, node->active, node->values);
  for (int place = node->children.NextOn(0); place >= 0; place = node->children.NextOn(place + 1)) {
    std::memset(&node->values[static_cast<size_t>(place) * numbers_.bytes()], 0, numbers_.bytes());
  }
  open_.push_back({level, origin, node->children});
}

void VdbTreeReader::ReadLeaf(const VdbNode& leaf, std::span<std::byte> values) {
  VdbMask again(kVdbLeafVoxels);
  leaves_.Read(std::as_writable_bytes(again.words()));
  if (!(again == leaf.active)) leaves_.Fail("a leaf's mask differs from the one among the nodes");
  ReadValues(leaves_, leaf.active, values);
}

void VdbTreeReader::ReadValues(VdbInput& in, const VdbMask& active, std::span<std::byte> values) {
  const size_t bytes = numbers_.bytes();
  const auto kind = in.Number<uint8_t>();
  if (kind > static_cast<uint8_t>(VdbInactive::kStored))
    in.Fail("an array of the unknown kind " + std::to_string(kind));
  VdbLeftOut out{static_cast<VdbInactive>(kind), {}};
  const std::span<const std::byte> background = std::as_bytes(std::span(background_));
  out.others[1].assign(background.begin(), background.end());
  out.others[0] = out.inactive == VdbInactive::kBackground
                      ? out.others[1]
                      : VdbNegative(background, numbers_.dtype);
  for (size_t i = 0; i < out.stored_values(); ++i) in.Read(out.others[i]);
  VdbMask second(active.places());
  if (out.has_mask()) in.Read(std::as_writable_bytes(second.words()));
  const bool all =
      (grid_.packing & VdbPacking::kActiveMask) == 0 || out.inactive == VdbInactive::kStored;
  if (all) return Unpack(in, values);
  unpacked_.resize(static_cast<size_t>(active.CountOn()) * bytes);
  Unpack(in, unpacked_);
  size_t next = 0;
  for (int place = 0; place < active.places(); ++place) {
    std::byte* const into = &values[static_cast<size_t>(place) * bytes];
    if (active.on(place)) {
      std::memcpy(into, &unpacked_[next], bytes);
      next += bytes;
    } else {
      std::memcpy(into, out.others[second.on(place) ? 1 : 0].data(), bytes);
    }
  }
}

// Numbers, perhaps of 16 bits, perhaps packed.
void VdbTreeReader::Unpack(VdbInput& in, std::span<std::byte> into) {
  const size_t numbers = into.size() / DTypeSize(numbers_.dtype);
  if (grid_.half && numbers == 0) return;  // then not even a size is written
  std::vector<std::byte> halves(grid_.half ? numbers * 2 : 0);
  const std::span<std::byte> stored = grid_.half ? std::span(halves) : into;
  const uint32_t packing = grid_.packing & (VdbPacking::kZip | VdbPacking::kBlosc);
  if (packing == 0) {
    in.Read(stored);
  } else if (const auto size = in.Number<int64_t>(); size <= 0) {
    if (size != -static_cast<int64_t>(stored.size()))
      in.Fail("an array of " + std::to_string(stored.size()) + " bytes is said to have " +
              std::to_string(size));
    in.Read(stored);
  } else {
    // Neither grows what it packs by more than that.
    const auto most = static_cast<int64_t>(stored.size() + stored.size() / 8 + 4096);
    if (size > most || size > in.left())
      in.Fail("a packed array of " + std::to_string(size) + " bytes for " +
              std::to_string(stored.size()));
    packed_.resize(static_cast<size_t>(size));
    in.Read(packed_);
    const bool whole = VdbUnpack(packing, packed_, stored);
    if (!whole) in.Fail("an array that can't be unpacked");
  }
  if (!grid_.half) return;
  for (size_t i = 0; i < numbers; ++i) {
    uint16_t bits;
    std::memcpy(&bits, &halves[2 * i], sizeof bits);
    const float value = HalfToFloat(bits);
    if (numbers_.dtype == DType::kF32) {
      std::memcpy(&into[4 * i], &value, sizeof value);
    } else {
      const double wide = value;
      std::memcpy(&into[8 * i], &wide, sizeof wide);
    }
  }
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
