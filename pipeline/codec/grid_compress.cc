#include <zlib.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "io/byte_packer.h"
#include "io/error.h"
#include "io/ordered_work.h"
#include "pipeline/codec/grid_file.h"
#include "pipeline/codec/grid_fit.h"
#include "pipeline/codec/grid_regions.h"

namespace tilery {
namespace {

class Compressor {
 public:
  Compressor(const VdbFile& from, OutputFile& out, const GridWork& work)
      : from_(from), work_(work), writer_(out) {
    const FilePiece piece{from.version(), static_cast<uint32_t>(from.grids().size()),
                          from.metadata()};
    Add(PieceKind::kFile, 0, {}, PackFile(piece));
  }

  void Grid(uint32_t index, const GridBounds& wanted) {
    const VdbGrid& grid = from_.grids()[index];
    GridPiece piece;
    piece.about = grid;
    if (!grid.twin_of.empty()) {
      piece.how = GridPiece::How::kTwin;
    } else if (VdbNumbersOf(grid.type)) {
      Code(index, wanted, &piece);
    } else {
      piece.how = GridPiece::How::kOpaque;
      PassOn(index, 0, grid.tree, grid.values);
      PassOn(index, 1, grid.values, grid.end);
    }
    Add(PieceKind::kGrid, index, {}, PackGrid(piece));
  }

  void Finish() { writer_.Finish(); }

 private:
  struct Coded {
    VdbCoord origin{};
    std::vector<std::byte> bytes;
    CodingError error;
  };

  void AddRegion(uint32_t index, const Coded& coded, GridPiece* piece) {
    piece->error.Add(coded.error);
    Add(PieceKind::kRegion, index, coded.origin, coded.bytes);
  }

  void Code(uint32_t index, const GridBounds& wanted, GridPiece* piece) {
    const VdbGrid& grid = from_.grids()[index];
    const GridSurvey range = SurveyOf(from_, grid, work_);
    piece->coding = FitGrid(from_, grid, range, wanted, work_);
    const RegionCoding& coding = piece->coding;
    if (range.least <= range.most) {
      piece->least = range.least;
      piece->most = range.most;
    }

    std::optional<BaseRegions> base;
    if (base_) base.emplace(from_, from_.grids()[*base_]);
    std::optional<UpperWriter> uppers;
    RegionReader reader(from_, grid, [&](const VdbNode& upper) { uppers->Add(upper); });
    piece->root_tiles = reader.tree().root_tiles();
    uppers.emplace(coding, piece);
    OrderedWork<Coded> coded(work_.pool, RegionsAhead(work_, coding.numbers));
    for (auto region = std::make_shared<Region>(); reader.Next(region.get());
         region = std::make_shared<Region>()) {
      while (coded.full()) AddRegion(index, coded.Take(), piece);
      coded.Add([region, other = base ? base->At(region->node.origin) : nullptr, &coding,
                 devices = work_.devices] {
        Coded result;
        result.origin = region->node.origin;
        result.bytes = EncodeRegion(*region, other.get(), coding, &result.error, devices);
        result.bytes.insert(result.bytes.begin(), static_cast<std::byte>(other ? 1 : 0));
        return result;
      });
      work_.Step(*region);
    }
    while (!coded.empty()) AddRegion(index, coded.Take(), piece);
    uppers->Finish();
    if (!base_ && range.regions > 0) base_ = index;
  }

  // Bytes of a tree that we do not know, packed part by part.
  void PassOn(uint32_t index, uint8_t which, int64_t begin, int64_t end) {
    for (; begin < end; begin += kOpaquePart) {
      std::vector<std::byte> part(static_cast<size_t>(std::min(end - begin, kOpaquePart)));
      from_.file().ReadAt(begin, part);
      auto size = compressBound(static_cast<uLong>(part.size()));
      std::vector<std::byte> packed(size);
      if (compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                    reinterpret_cast<const Bytef*>(part.data()), static_cast<uLong>(part.size()),
                    Z_BEST_COMPRESSION) != Z_OK)
        throw Error(Fault::kTransient, "zlib has no memory");
      BytePacker out;
      out.Put(which);
      out.Put(static_cast<uint64_t>(part.size()));
      out.PutBytes(packed.data(), size);
      Add(PieceKind::kOpaque, index, {}, out.bytes());
    }
  }

  void Add(PieceKind kind, uint32_t grid, const VdbCoord& origin,
           std::span<const std::byte> bytes) {
    writer_.Add(static_cast<uint32_t>(kind), grid, origin, bytes);
  }

  const VdbFile& from_;
  const GridWork& work_;
  TvdbWriter writer_;
  std::optional<uint32_t> base_;  // the first coded grid with leaves: its masks help the others'
};

}  // namespace

size_t RegionsAhead(const GridWork& work, const VdbNumbers& numbers) {
  if (work.pool == nullptr) return 1;
  constexpr int64_t kVoxels =
      int64_t{VdbEdge(VdbLevel::kLower)} * VdbEdge(VdbLevel::kLower) * VdbEdge(VdbLevel::kLower);
  const int64_t most = kRegionBytes / (kVoxels * static_cast<int64_t>(numbers.bytes()));
  return static_cast<size_t>(std::clamp<int64_t>(most, 2, 2 * work.pool->threads()));
}

void CompressGrids(const VdbFile& from, OutputFile& out, const GridBounds& bounds,
                   const GridWork& work) {
  Compressor compressor(from, out, work);
  for (uint32_t i = 0; i < from.grids().size(); ++i) compressor.Grid(i, bounds);
  compressor.Finish();
}

GridRanges MeasureGrids(const VdbFile& file, const GridWork& work) {
  GridRanges ranges;
  for (const VdbGrid& grid : file.grids()) {
    if (!grid.twin_of.empty() || !VdbNumbersOf(grid.type)) continue;
    const GridSurvey range = SurveyOf(file, grid, work);
    ranges[grid.label] = {range.least, range.most};
  }
  return ranges;
}

}  // namespace tilery
