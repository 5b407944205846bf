// Writes an OpenVDB file as a stream: memory stays bounded by one node of each level.
//
//   VdbWriter writer(out, version, metadata, 2);
//   writer.Begin(grid);                       // name, type, half, packing, metadata, transform
//   writer.Root(background, tiles, nodes);    // nodes: upper ones that follow
//   writer.Node(node); ...                    // as VdbTreeReader::Next gives them
//   writer.Leaf(node, values); ...            // the same leaves again, after the last node
//   writer.End();
//   writer.Copy(file, other);                 // of any type, as it is
//   writer.Finish();
//
// The same content gives the same bytes: the identity that OpenVDB draws at random is a hash of
// what was written. Format: io/vdb_file.h.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/vdb_tree.h"

namespace tilery {

// Not thread-safe; `out` outlives it, and is not published. Error(kOutput) as OutputFile;
// Error(kInternal) for calls out of order.
class VdbWriter {
 public:
  // `version`: of the file format, as VdbFile says it: what Copy takes over must fit it.
  VdbWriter(OutputFile& out, uint32_t version, const std::vector<VdbMeta>& metadata, int32_t grids);
  ~VdbWriter();

  void Begin(const VdbGrid& grid);
  void Root(std::span<const std::byte> background, const std::vector<VdbRootTile>& tiles,
            uint32_t nodes);
  void Node(const VdbNode& node);
  // 512 values; numbers of a half grid must be ones that 16 bits hold, else they are rounded.
  void Leaf(const VdbNode& leaf, std::span<const std::byte> values);
  void End();
  // A grid of any type whose tree is given as the bytes of a file of the same version; also one
  // that shares the tree of another, and has none. Opaque nodes, then OpaqueValues, then their
  // bytes, End.
  void BeginOpaque(const VdbGrid& grid);
  void Opaque(std::span<const std::byte> bytes);
  void OpaqueValues();
  void Copy(const VdbFile& from, const VdbGrid& grid);  // all of that, from a file
  void Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tilery
