// The tree of one grid of an OpenVDB file, node by node in the order of the file.
//
// A tree has a root, which is a list of tiles and of upper nodes of 4096^3 voxels; an upper node
// has 32^3 places for tiles of 128^3 voxels or lower nodes, a lower node 16^3 places for tiles of
// 8^3 voxels or leaves, and a leaf 8^3 voxels. Coordinates are x, y, z; within a node, place
// (x * n + y) * n + z, so z is the fastest. A file holds first all nodes (a node before what is
// below it, in ascending places), then the numbers of all leaves in the same order.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/vdb_file.h"

namespace tilery {

class VdbArrays;  // io/vdb_pack.h

using VdbCoord = std::array<int32_t, 3>;  // x, y, z

enum class VdbLevel : uint8_t { kUpper, kLower, kLeaf };
inline constexpr int kVdbLeafVoxels = 512;
inline constexpr int VdbPlaces(VdbLevel level) {
  return level == VdbLevel::kUpper ? 32 * 32 * 32 : level == VdbLevel::kLower ? 16 * 16 * 16 : 512;
}
// Voxels along an edge of a node, and of one of its places.
inline constexpr int32_t VdbEdge(VdbLevel level) {
  return level == VdbLevel::kUpper ? 4096 : level == VdbLevel::kLower ? 128 : 8;
}
inline constexpr int32_t VdbPlaceEdge(VdbLevel level) {
  return level == VdbLevel::kUpper ? 128 : level == VdbLevel::kLower ? 8 : 1;
}
// Where a place of a node begins, counted from the node.
VdbCoord VdbPlaceOffset(VdbLevel level, int place);

// The number that lies there, of dtype kF32 or kF64.
double VdbNumberAt(const std::byte* at, DType dtype);

// One bit for each place.
class VdbMask {
 public:
  explicit VdbMask(int places) : words_(static_cast<size_t>(places) / 64) {}
  bool on(int place) const { return words_[static_cast<size_t>(place) / 64] >> (place % 64) & 1; }
  void SetOn(int place) { words_[static_cast<size_t>(place) / 64] |= uint64_t{1} << (place % 64); }
  int CountOn() const;
  int NextOn(int from) const;  // the first one at or after `from`; -1 if none
  int places() const { return static_cast<int>(words_.size()) * 64; }
  std::span<uint64_t> words() { return words_; }
  std::span<const uint64_t> words() const { return words_; }
  bool operator==(const VdbMask&) const = default;

 private:
  std::vector<uint64_t> words_;
};

// Of the root: a cube of 4096^3 voxels of one value.
struct VdbRootTile {
  VdbCoord origin{};
  std::string value;  // VdbNumbers::bytes()
  bool active = false;
  bool operator==(const VdbRootTile&) const = default;
};

struct VdbNode {
  VdbLevel level = VdbLevel::kUpper;
  VdbCoord origin{};
  VdbMask children{0};  // places with a node below; empty for leaves
  VdbMask active{0};    // places with an active value
  // The values of the places of inner nodes, those of children 0. Leaves have theirs elsewhere.
  std::vector<std::byte> values;
  bool operator==(const VdbNode&) const = default;
};

// Reads a tree whose type VdbNumbersOf knows. Memory: one node of each level and what a packed
// array takes. Not thread-safe; `file` outlives it. Error(kInput) as VdbFile's, also if something
// is left at the end.
class VdbTreeReader {
 public:
  VdbTreeReader(const VdbFile& file, const VdbGrid& grid);
  ~VdbTreeReader();

  VdbNumbers numbers() const { return numbers_; }
  const std::string& background() const { return background_; }
  const std::vector<VdbRootTile>& root_tiles() const { return root_tiles_; }
  uint32_t upper_nodes() const { return upper_nodes_; }

  // The next node; false after the last one.
  bool Next(VdbNode* node);
  // The values of the next leaf in the order of Next, whose mask that call gave: 512 of them. To be
  // called after it for each leaf or for none.
  void ReadLeaf(const VdbNode& leaf, std::span<std::byte> values);
  void SkipLeaf(const VdbNode& leaf);  // instead of it
  // Byte of the file where the values of the next leaf stand.
  int64_t leaf_position() const { return leaves_.position(); }
  // After the last node (and leaf, if `with_leaves`): nothing may be left.
  void CheckEnd(bool with_leaves);

 private:
  struct Open {
    VdbLevel level;
    VdbCoord origin;
    VdbMask children;
    int next = 0;
  };

  void ReadRoot();
  void ReadNode(VdbLevel level, const VdbCoord& origin, VdbNode* node);

  const VdbGrid& grid_;
  const VdbNumbers numbers_;
  VdbInput nodes_, leaves_;
  std::string background_;
  std::vector<VdbRootTile> root_tiles_;
  uint32_t upper_nodes_ = 0, uppers_left_ = 0;  // of the root; those to come
  std::vector<Open> open_;                      // from the upper node down
  std::unique_ptr<VdbArrays> arrays_;
};

}  // namespace tilery
