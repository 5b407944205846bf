// What a .tvdb file says of itself and of each grid, as bytes (docs/tvdb-format.md).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/vdb_tree.h"
#include "pipeline/codec/inner_nodes.h"
#include "pipeline/codec/range_coder.h"
#include "pipeline/codec/region.h"

namespace tilery {

// Kinds of pieces in the container (io/tvdb_file.h).
enum class PieceKind : uint32_t {
  kFile = 1,    // FilePiece; one
  kGrid = 2,    // GridPiece; one for each grid
  kRegion = 3,  // u8: 1 if the base grid's masks help; then a region (pipeline/codec/region.h)
  kOpaque = 4,  // u8: 0 nodes, 1 values; u64 bytes; zlib: a part of a tree, in order
};

inline constexpr int64_t kOpaquePart = 1 << 20;  // bytes of a tree in a piece, at most

struct FilePiece {
  uint32_t version = 0;  // of the OpenVDB file format
  uint32_t grids = 0;
  std::vector<VdbMeta> metadata;
};

struct GridPiece {
  enum class How : uint8_t { kCoded = 0, kOpaque = 1, kTwin = 2 };
  How how = How::kCoded;
  VdbGrid about;  // all but places in a file; of kTwin without a tree
  // Of kCoded:
  RegionCoding coding;
  std::vector<VdbRootTile> root_tiles;
  uint32_t uppers = 0;                  // upper nodes in ...
  std::vector<std::byte> upper_stream;  // ... this stream: see UpperWriter
  // Over all finite active values, tiles included; achieved error of those in leaves.
  double least = 0, most = 0;
  CodingError error;
};

// The upper nodes of a grid, one after the other: they may be many, and take much more memory than
// bytes. Not thread-safe; what they are made from outlives them.
class UpperWriter {
 public:
  UpperWriter(const RegionCoding& coding, GridPiece* piece);
  void Add(const VdbNode& node);
  void Finish();

 private:
  GridPiece* const piece_;
  RangeEncoder coder_;
  InnerNodeModel model_;
};
class UpperReader {
 public:
  explicit UpperReader(const GridPiece& piece);
  bool Next(VdbNode* node);  // false after the last one; Error(kInput) for an impossible place

 private:
  uint32_t left_;
  RangeDecoder coder_;
  InnerNodeModel model_;
};

// What a grid tells of how its whole numbers are coded.
size_t CodingBytes(const RegionCoding& coding);

std::vector<std::byte> PackFile(const FilePiece& piece);
std::vector<std::byte> PackGrid(const GridPiece& piece);
// Error(kInput), without a path, for bytes that can be no such piece.
FilePiece UnpackFile(std::span<const std::byte> bytes);
GridPiece UnpackGrid(std::span<const std::byte> bytes);

}  // namespace tilery
