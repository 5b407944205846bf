#include <zlib.h>

#include <algorithm>

#include "io/byte_packer.h"
#include "io/error.h"
#include "io/ordered_work.h"
#include "io/vdb_writer.h"
#include "pipeline/codec/grid_file.h"
#include "pipeline/codec/grid_index.h"

namespace tilery {
namespace {

class Decompressor {
 public:
  Decompressor(const TvdbFile& from, const GridWork& work) : index_(from), work_(work) {}

  void Run(OutputFile& out) {
    const FilePiece& file = index_.about();
    VdbWriter writer(out, file.version, file.metadata, static_cast<int32_t>(file.grids));
    for (uint32_t i = 0; i < index_.size(); ++i) {
      const GridPiece piece = index_.Read(i);
      if (piece.how == GridPiece::How::kCoded) {
        Decode(i, piece, writer);
      } else {
        PassOn(index_.grid(i), piece, writer);
      }
    }
    writer.Finish();
  }

 private:
  void Decode(uint32_t index, const GridPiece& piece, VdbWriter& writer) {
    writer.Begin(piece.about);
    writer.Root(std::as_bytes(std::span(piece.coding.background)), piece.root_tiles, piece.uppers);
    size_t regions = 0;
    VdbNode leaf;
    leaf.level = VdbLevel::kLeaf;
    leaf.active = VdbMask(kVdbLeafVoxels);
    // First all nodes, then the values of the leaves among them.
    for (const bool values : {false, true}) {
      OrderedWork<Region> decoded(work_.pool, RegionsAhead(work_, piece.coding.numbers));
      const auto write = [&](const Region& region) {
        if (!values) writer.Node(region.node);
        for (size_t i = 0; i < region.masks.size(); ++i) {
          std::copy(region.masks[i].begin(), region.masks[i].end(), leaf.active.words().begin());
          if (!values) {
            writer.Node(leaf);
          } else {
            writer.Leaf(leaf, region.LeafValues(i, piece.coding.numbers));
          }
        }
        if (work_.step) work_.step(static_cast<int64_t>(region.values.size()));
      };
      UpperReader uppers(piece);
      for (VdbNode upper; uppers.Next(&upper);) {
        if (!values) writer.Node(upper);
        for (int place = upper.children.NextOn(0); place >= 0;
             place = upper.children.NextOn(place + 1)) {
          VdbCoord origin = VdbPlaceOffset(VdbLevel::kUpper, place);
          for (size_t axis = 0; axis < 3; ++axis) origin[axis] += upper.origin[axis];
          while (decoded.full()) write(decoded.Take());
          decoded.Add([this, index, &piece, origin, values] {
            return index_.ReadRegion(index, piece.coding, origin, !values, work_.devices);
          });
          regions += values ? 0 : 1;
        }
        // An upper node stands before the regions below it and behind those before it.
        while (!decoded.empty()) write(decoded.Take());
      }
    }
    if (regions != index_.grid(index).regions.size())
      throw Error(Fault::kInput, "regions that no node names");
    writer.End();
  }

  void PassOn(const GridIndex::Grid& grid, const GridPiece& piece, VdbWriter& writer) {
    writer.BeginOpaque(piece.about);
    uint8_t which = 0;
    for (const TvdbPiece* const part : grid.opaque) {
      const std::vector<std::byte> bytes = index_.file().Read(*part);
      ByteUnpacker in(bytes);
      const auto of = in.Get<uint8_t>();
      const auto size = in.Get<uint64_t>();
      if (in.failed() || of > 1 || of < which || size > static_cast<uint64_t>(kOpaquePart))
        throw Error(Fault::kInput, "a part of a tree that is none");
      if (of > which) writer.OpaqueValues();
      which = of;
      std::vector<std::byte> raw(size);
      auto length = static_cast<uLongf>(size);
      const std::span<const std::byte> packed = std::span(bytes).last(in.left());
      if (uncompress(reinterpret_cast<Bytef*>(raw.data()), &length,
                     reinterpret_cast<const Bytef*>(packed.data()),
                     static_cast<uLong>(packed.size())) != Z_OK ||
          length != size)
        throw Error(Fault::kInput, "a part of a tree that can't be unpacked");
      writer.Opaque(raw);
    }
    if (which == 0) writer.OpaqueValues();
    writer.End();
  }

  const GridIndex index_;
  const GridWork& work_;
};

}  // namespace

void DecompressGrids(const TvdbFile& from, OutputFile& out, const GridWork& work) {
  Naming(from, "it", [&] { Decompressor(from, work).Run(out); });
}

}  // namespace tilery
