// Where the pieces of a .tvdb file stand, grid by grid, and its regions, each on its own.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/error.h"
#include "io/tvdb_file.h"
#include "pipeline/codec/grid_pieces.h"
#include "pipeline/codec/region.h"

namespace tilery {

// While it is handled: throws `error` again, with the path and the piece if it does not name the
// file. Decoders know neither.
[[noreturn]] void ThrowNamed(const TvdbFile& file, const std::string& piece, const Error& error);

template <typename Work>
auto Naming(const TvdbFile& file, const std::string& piece, const Work& work) {
  try {
    return work();
  } catch (const Error& error) {
    ThrowNamed(file, piece, error);
  }
}

// Thread-safe; `file` outlives it. Error(kInput) with the path, and with the piece where one is at
// fault.
class GridIndex {
 public:
  struct Grid {
    const TvdbPiece* about = nullptr;
    std::map<VdbCoord, const TvdbPiece*> regions;  // by the origin of their nodes
    std::vector<const TvdbPiece*> opaque;          // parts of a tree that is passed on, in order
    int64_t bytes = 0;                             // of all its pieces
  };

  // Reads what is said of the file and of the base grid.
  explicit GridIndex(const TvdbFile& file);

  const TvdbFile& file() const { return file_; }
  const FilePiece& about() const { return about_; }
  uint32_t size() const { return static_cast<uint32_t>(grids_.size()); }
  const Grid& grid(uint32_t index) const { return grids_.at(index); }

  GridPiece Read(uint32_t index) const;  // what is said of a grid
  // `coding`: of that grid. The base grid's masks are read beside it where they help.
  Region ReadRegion(uint32_t index, const RegionCoding& coding, const VdbCoord& origin,
                    bool masks_only, const RegionDevices& devices = {}) const;

 private:
  std::vector<std::byte> BytesAt(uint32_t index, const VdbCoord& origin) const;

  const TvdbFile& file_;
  FilePiece about_;
  std::vector<Grid> grids_;
  // The first grid with regions: its masks help the others'.
  std::optional<uint32_t> base_;
  RegionCoding base_coding_;
};

}  // namespace tilery
