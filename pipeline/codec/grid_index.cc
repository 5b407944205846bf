#include "pipeline/codec/grid_index.h"

namespace tilery {
namespace {

std::string RegionName(uint32_t grid, const VdbCoord& origin) {
  std::string name = "the region at ";
  for (size_t axis = 0; axis < 3; ++axis)
    name += std::to_string(origin[axis]) + (axis < 2 ? ", " : "");
  return name + " of grid " + std::to_string(grid);
}

}  // namespace

void ThrowNamed(const TvdbFile& file, const std::string& piece, const Error& error) {
  const std::string path = Printable(file.file().path().string());
  const std::string what = error.what();
  if (error.fault() != Fault::kInput || what.starts_with(path + ": ")) throw;
  throw Error(Fault::kInput, path + ": damaged .tvdb file: " + piece + ": " + what);
}

GridIndex::GridIndex(const TvdbFile& file) : file_(file) {
  Naming(file_, "its index", [&] {
    const TvdbPiece* about = nullptr;
    for (const TvdbPiece& piece : file.pieces()) {
      if (static_cast<PieceKind>(piece.kind) != PieceKind::kFile) continue;
      if (about != nullptr) throw Error(Fault::kInput, "the file is described twice");
      about = &piece;
    }
    if (about == nullptr) throw Error(Fault::kInput, "nothing is said of the file");
    about_ = UnpackFile(file.Read(*about));
    // Each has a piece at least.
    if (about_.grids > file.pieces().size()) {
      throw Error(Fault::kInput,
                  "fewer pieces than grids, of which there are " + std::to_string(about_.grids));
    }
    grids_.resize(about_.grids);
    for (const TvdbPiece& piece : file.pieces()) {
      const auto kind = static_cast<PieceKind>(piece.kind);
      if (kind == PieceKind::kFile) continue;
      if (piece.grid >= about_.grids) {
        throw Error(Fault::kInput, "a piece of grid " + std::to_string(piece.grid) + " of " +
                                       std::to_string(about_.grids));
      }
      Grid& grid = grids_[piece.grid];
      grid.bytes += piece.bytes;
      switch (kind) {
        case PieceKind::kGrid:
          if (grid.about != nullptr)
            throw Error(Fault::kInput,
                        "grid " + std::to_string(piece.grid) + " is described twice");
          grid.about = &piece;
          break;
        case PieceKind::kRegion:
          if (!grid.regions.emplace(piece.origin, &piece).second)
            throw Error(Fault::kInput, RegionName(piece.grid, piece.origin) + " is there twice");
          break;
        case PieceKind::kOpaque:
          grid.opaque.push_back(&piece);
          break;
        default:
          throw Error(Fault::kInput, "a piece of the unknown kind " + std::to_string(piece.kind));
      }
    }
    for (uint32_t i = 0; i < size(); ++i) {
      if (grids_[i].about == nullptr)
        throw Error(Fault::kInput, "nothing is said of grid " + std::to_string(i));
      if (!base_ && !grids_[i].regions.empty()) base_ = i;
    }
  });
  if (base_) base_coding_ = Read(*base_).coding;
}

GridPiece GridIndex::Read(uint32_t index) const {
  return Naming(file_, "what is said of grid " + std::to_string(index), [&] {
    const Grid& grid = grids_.at(index);
    GridPiece piece = UnpackGrid(file_.Read(*grid.about));
    if (piece.how != GridPiece::How::kCoded && !grid.regions.empty())
      throw Error(Fault::kInput, "there are regions of it, but it is not coded");
    return piece;
  });
}

std::vector<std::byte> GridIndex::BytesAt(uint32_t index, const VdbCoord& origin) const {
  const auto& regions = grids_.at(index).regions;
  const auto found = regions.find(origin);
  if (found == regions.end()) throw Error(Fault::kInput, "it is missing");
  std::vector<std::byte> bytes = file_.Read(*found->second);
  if (bytes.empty()) throw Error(Fault::kInput, "it has no bytes");
  return bytes;
}

Region GridIndex::ReadRegion(uint32_t index, const RegionCoding& coding, const VdbCoord& origin,
                             bool masks_only, const RegionDevices& devices) const {
  const std::string name = RegionName(index, origin);
  const std::vector<std::byte> bytes = Naming(file_, name, [&] { return BytesAt(index, origin); });
  Region other;
  const bool helped = bytes[0] != std::byte{0};
  if (helped) {
    Naming(file_, name, [&] {
      if (!base_ || *base_ >= index)
        throw Error(Fault::kInput, "it needs the masks of a grid before it, which there is not");
    });
    Naming(file_, RegionName(*base_, origin), [&] {
      const std::vector<std::byte> beside = BytesAt(*base_, origin);
      if (beside[0] != std::byte{0}) throw Error(Fault::kInput, "nothing is there to help it");
      other = DecodeRegion(std::span(beside).subspan(1), origin, nullptr, base_coding_, true);
    });
  }
  return Naming(file_, name, [&] {
    return DecodeRegion(std::span(bytes).subspan(1), origin, helped ? &other : nullptr, coding,
                        masks_only, devices);
  });
}

}  // namespace tilery
