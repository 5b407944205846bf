// A region of a grid as bytes: one lower node (128^3 voxels) with its leaves, on its own.
//
//   its bytes, stream: the node (InnerNodeModel), the masks of its leaves (LeafMaskModel), and what
//     of the leaves is not told by whole numbers (LeafRestModel)
//   for each block of 4^3 leaves that has whole numbers, ascending: its bytes, stream
//   for each that has leaves as codes, ascending: its bytes, stream of codes; and, where there is a
//     bound, the same of what these are off by
//   the low bits of exact values, as they are (AppendNoise)
//
// Streams are range coded. Blocks share no state, so they can be decoded side by side.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "io/vdb_tree.h"
#include "pipeline/codec/leaf_masks.h"
#include "pipeline/codec/number_device.h"
#include "pipeline/codec/value_coding.h"

namespace tilery {

struct Region {
  VdbNode node;
  std::vector<LeafMask> masks;    // of the leaves, by ascending place
  std::vector<std::byte> values;  // 512 of each leaf

  std::span<const std::byte> LeafValues(size_t leaf, const VdbNumbers& numbers) const {
    const size_t bytes = kVdbLeafVoxels * numbers.bytes();
    return std::span(values).subspan(leaf * bytes, bytes);
  }
};

// What of a region is told by whole numbers.
struct RegionNumbers {
  std::vector<BlockNumbers> blocks;  // those that have some, ascending
  std::vector<size_t> leaves;        // in the order of the blocks
  std::vector<bool> raw;             // by leaf: its active values are told by none
};
// With RegionCoding::vq `error` counts raw leaves alone: the rest depends on what codes make of it.
RegionNumbers NumbersOf(const Region& region, const RegionCoding& coding, CodingError* error);

// What codes blocks; null: this thread. The same bytes and values either way.
struct RegionDevices {
  NumberDevice* numbers = nullptr;  // under the context model
  VqDevice* codes = nullptr;
};

// `other`: a region at the same place of another grid, null if there is none. `error`: added to, if
// there is one.
std::vector<std::byte> EncodeRegion(const Region& region, const Region* other,
                                    const RegionCoding& coding, CodingError* error,
                                    const RegionDevices& devices = {});
// `origin` of the node. With `masks_only` values stay empty. Error(kInput), without a path, for
// bytes that can be no region; damage is for checksums to find.
Region DecodeRegion(std::span<const std::byte> bytes, const VdbCoord& origin, const Region* other,
                    const RegionCoding& coding, bool masks_only, const RegionDevices& devices = {});

// Blocks of leaves of a region: for each, the leaves' indices in it and their places in the block.
struct RegionBlock {
  std::vector<size_t> leaves;
  std::vector<int> places;
};
std::vector<RegionBlock> BlocksOf(const VdbNode& node);

}  // namespace tilery
