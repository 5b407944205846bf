#include <zlib.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "io/byte_packer.h"
#include "io/error.h"
#include "io/ordered_work.h"
#include "io/vdb_writer.h"
#include "pipeline/codec/grid_file.h"

namespace tilery {
namespace {

class Decompressor {
 public:
  Decompressor(const TvdbFile& from, const GridWork& work) : from_(from), work_(work) {
    for (const TvdbPiece& piece : from.pieces()) {
      const auto kind = static_cast<PieceKind>(piece.kind);
      if (kind == PieceKind::kFile) {
        file_ = &piece;
        continue;
      }
      Grid& grid = grids_[piece.grid];
      switch (kind) {
        case PieceKind::kGrid:
          grid.about = &piece;
          break;
        case PieceKind::kRegion:
          grid.regions[piece.origin] = &piece;
          break;
        case PieceKind::kOpaque:
          grid.opaque.push_back(&piece);
          break;
        default:
          throw Error(Fault::kInput, "a piece of the unknown kind " + std::to_string(piece.kind));
      }
    }
    if (file_ == nullptr) throw Error(Fault::kInput, "nothing is said of the file");
  }

  void Run(OutputFile& out) {
    const FilePiece file = UnpackFile(from_.Read(*file_));
    if (file.grids != grids_.size()) {
      throw Error(Fault::kInput, std::to_string(grids_.size()) + " grids instead of " +
                                     std::to_string(file.grids));
    }
    VdbWriter writer(out, file.version, file.metadata, static_cast<int32_t>(file.grids));
    for (uint32_t i = 0; i < file.grids; ++i) {
      const auto found = grids_.find(i);
      if (found == grids_.end() || found->second.about == nullptr)
        throw Error(Fault::kInput, "nothing is said of grid " + std::to_string(i));
      const GridPiece piece = UnpackGrid(from_.Read(*found->second.about));
      if (piece.how == GridPiece::How::kCoded) {
        Decode(i, piece, writer);
      } else {
        PassOn(found->second, piece, writer);
      }
    }
    writer.Finish();
  }

 private:
  struct Grid {
    const TvdbPiece* about = nullptr;
    std::map<VdbCoord, const TvdbPiece*> regions;
    std::vector<const TvdbPiece*> opaque;
  };

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
        for (const int32_t at : upper.origin) {
          if (at % VdbEdge(VdbLevel::kUpper) != 0)
            throw Error(Fault::kInput, "an upper node at " + std::to_string(at));
        }
        if (!values) writer.Node(upper);
        for (int place = upper.children.NextOn(0); place >= 0;
             place = upper.children.NextOn(place + 1)) {
          VdbCoord origin = VdbPlaceOffset(VdbLevel::kUpper, place);
          for (size_t axis = 0; axis < 3; ++axis) origin[axis] += upper.origin[axis];
          while (decoded.full()) write(decoded.Take());
          decoded.Add([this, index, &piece, origin, values] {
            return RegionAt(index, piece, origin, !values);
          });
          regions += values ? 0 : 1;
        }
        // An upper node stands before the regions below it and behind those before it.
        while (!decoded.empty()) write(decoded.Take());
      }
    }
    if (regions != grids_[index].regions.size())
      throw Error(Fault::kInput, "regions that no node names");
    writer.End();
    if (!base_ && regions > 0) base_.emplace(index, piece.coding);
  }

  // On any thread.
  Region RegionAt(uint32_t index, const GridPiece& piece, const VdbCoord& origin,
                  bool masks_only) const {
    const std::vector<std::byte> bytes = BytesAt(index, origin);
    Region other;
    const bool helped = bytes[0] != std::byte{0};
    if (helped) {
      if (!base_) throw Error(Fault::kInput, "a region beside a grid that there is not");
      const std::vector<std::byte> beside = BytesAt(base_->first, origin);
      other = DecodeRegion(std::span(beside).subspan(1), origin, nullptr, base_->second, true);
    }
    return DecodeRegion(std::span(bytes).subspan(1), origin, helped ? &other : nullptr,
                        piece.coding, masks_only, work_.devices);
  }

  std::vector<std::byte> BytesAt(uint32_t index, const VdbCoord& origin) const {
    const auto& regions = grids_.at(index).regions;
    const auto found = regions.find(origin);
    if (found == regions.end()) throw Error(Fault::kInput, "a region that is missing");
    std::vector<std::byte> bytes = from_.Read(*found->second);
    if (bytes.empty()) throw Error(Fault::kInput, "a region of no bytes");
    return bytes;
  }

  void PassOn(const Grid& grid, const GridPiece& piece, VdbWriter& writer) {
    writer.BeginOpaque(piece.about);
    uint8_t which = 0;
    for (const TvdbPiece* const part : grid.opaque) {
      const std::vector<std::byte> bytes = from_.Read(*part);
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

  const TvdbFile& from_;
  const GridWork& work_;
  const TvdbPiece* file_ = nullptr;
  std::map<uint32_t, Grid> grids_;
  std::optional<std::pair<uint32_t, RegionCoding>> base_;
};

}  // namespace

void DecompressGrids(const TvdbFile& from, OutputFile& out, const GridWork& work) {
  try {
    Decompressor(from, work).Run(out);
  } catch (const Error& error) {
    const std::string path = Printable(from.file().path().string());
    const std::string what = error.what();
    if (error.fault() != Fault::kInput || what.starts_with(path)) throw;
    throw Error(Fault::kInput, path + ": damaged .tvdb file: " + what);
  }
}

}  // namespace tilery
