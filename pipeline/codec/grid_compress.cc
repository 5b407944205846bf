#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "io/byte_packer.h"
#include "io/error.h"
#include "io/ordered_work.h"
#include "pipeline/codec/grid_file.h"

namespace tilery {
namespace {

constexpr int64_t kFittedRegions = 64;  // at most so many decide a grid's weights

LeafMask MaskOf(const VdbNode& leaf) {
  LeafMask mask;
  std::copy(leaf.active.words().begin(), leaf.active.words().end(), mask.begin());
  return mask;
}

// A grid's regions in the order of the file, one at a time.
class RegionReader {
 public:
  // `upper` is called for each upper node before the regions below it.
  RegionReader(const VdbFile& file, const VdbGrid& grid,
               std::function<void(const VdbNode&)> upper = {})
      : tree_(file, grid), upper_(std::move(upper)) {
    more_ = tree_.Next(&node_);
  }
  const VdbTreeReader& tree() const { return tree_; }

  bool Next(Region* region) {
    while (more_ && node_.level == VdbLevel::kUpper) {
      if (upper_) upper_(node_);
      more_ = tree_.Next(&node_);
    }
    if (!more_) {
      tree_.CheckEnd(true);
      return false;
    }
    region->node = node_;
    region->masks.clear();
    region->values.clear();
    const size_t leaf_bytes = kVdbLeafVoxels * tree_.numbers().bytes();
    for (more_ = tree_.Next(&node_); more_ && node_.level == VdbLevel::kLeaf;
         more_ = tree_.Next(&node_)) {
      region->masks.push_back(MaskOf(node_));
      region->values.resize(region->values.size() + leaf_bytes);
      tree_.ReadLeaf(node_, std::span(region->values).last(leaf_bytes));
    }
    return true;
  }

 private:
  VdbTreeReader tree_;
  const std::function<void(const VdbNode&)> upper_;
  VdbNode node_;
  bool more_ = false;
};

// The regions of the base grid beside those of another, both in the order of their files.
class BaseRegions {
 public:
  BaseRegions(const VdbFile& file, const VdbGrid& grid) : reader_(file, grid) { Advance(); }
  // Null if there is none, or none in a place that the order of trees allows.
  std::shared_ptr<const Region> At(const VdbCoord& origin) {
    while (region_ && Before(region_->node.origin, origin)) Advance();
    return region_ && region_->node.origin == origin ? region_ : nullptr;
  }

 private:
  static bool Before(const VdbCoord& a, const VdbCoord& b) {
    const auto upper = [](const VdbCoord& at) {
      constexpr int32_t kEdge = VdbEdge(VdbLevel::kUpper);
      return VdbCoord{at[0] & -kEdge, at[1] & -kEdge, at[2] & -kEdge};
    };
    return std::pair(upper(a), a) < std::pair(upper(b), b);
  }
  void Advance() {
    auto next = std::make_shared<Region>();
    region_ = reader_.Next(next.get()) ? next : nullptr;
  }

  RegionReader reader_;
  std::shared_ptr<const Region> region_;
};

struct Range {
  double least = INFINITY, most = -INFINITY;
  int64_t regions = 0;
  void Add(const std::byte* value, const VdbNumbers& numbers) {
    for (int c = 0; c < numbers.components; ++c) {
      const double number =
          VdbNumberAt(value + static_cast<size_t>(c) * DTypeSize(numbers.dtype), numbers.dtype);
      if (!std::isfinite(number)) continue;
      least = std::min(least, number);
      most = std::max(most, number);
    }
  }
  void AddActive(const VdbNode& node, const VdbNumbers& numbers) {
    for (int place = node.active.NextOn(0); place >= 0; place = node.active.NextOn(place + 1))
      Add(&node.values[static_cast<size_t>(place) * numbers.bytes()], numbers);
  }
};

template <typename Use>
void ForActive(const Region& region, size_t bytes, const Use& use) {
  for (size_t leaf = 0; leaf < region.masks.size(); ++leaf) {
    for (size_t voxel = 0; voxel < kVdbLeafVoxels; ++voxel) {
      if (region.masks[leaf][voxel / 64] >> (voxel % 64) & 1)
        use(&region.values[(leaf * kVdbLeafVoxels + voxel) * bytes]);
    }
  }
}

void Step(const GridWork& work, const Region& region) {
  if (work.step) work.step(static_cast<int64_t>(region.values.size()));
}

Range RangeOf(const VdbFile& file, const VdbGrid& grid, const GridWork& work) {
  Range range;
  const VdbNumbers numbers = *VdbNumbersOf(grid.type);
  RegionReader reader(file, grid, [&](const VdbNode& upper) { range.AddActive(upper, numbers); });
  for (const VdbRootTile& tile : reader.tree().root_tiles()) {
    if (tile.active) range.Add(reinterpret_cast<const std::byte*>(tile.value.data()), numbers);
  }
  for (Region region; reader.Next(&region); ++range.regions) {
    range.AddActive(region.node, numbers);
    ForActive(region, numbers.bytes(), [&](const std::byte* value) { range.Add(value, numbers); });
    Step(work, region);
  }
  return range;
}

// Sets bound and step. A step is a little less than twice the bound, for what rounding to the
// numbers' own type adds.
void SetBound(const Range& range, const GridBound& wanted, RegionCoding* coding) {
  coding->bound = coding->step = 0;
  if (wanted.kind == GridBound::Kind::kExact || !(range.most > range.least)) return;
  const double bound = wanted.kind == GridBound::Kind::kAbsolute
                           ? wanted.value
                           : wanted.value * (range.most - range.least);
  const double largest = std::max(std::abs(range.least), std::abs(range.most));
  const double rounding = coding->half                           ? std::ldexp(largest, -12)
                          : coding->numbers.dtype == DType::kF32 ? std::ldexp(largest, -25)
                                                                 : std::ldexp(largest, -54);
  const double step = 2 * (bound * (1 - 1e-6) - rounding);
  // Where rounding is most of the bound, or numbers would become too large, all is exact.
  if (!(step > bound) || largest / step > kLargestCodedValue) return;
  coding->bound = bound;
  coding->step = step;
}

bool IsLevelSet(const VdbGrid& grid) {
  return std::any_of(grid.metadata.begin(), grid.metadata.end(), [](const VdbMeta& meta) {
    return meta.name == "class" && meta.value == "level set";
  });
}

// The weights that predict best, of regions all over the grid.
void FitWeights(const VdbFile& file, const VdbGrid& grid, int64_t regions, const GridWork& work,
                RegionCoding* coding) {
  const auto components = static_cast<size_t>(coding->numbers.components);
  std::vector<WeightsFit> fits(components);
  const int64_t every = std::max<int64_t>(1, (regions + kFittedRegions - 1) / kFittedRegions);
  RegionReader reader(file, grid);
  int64_t index = 0;
  for (Region region; reader.Next(&region); ++index) {
    Step(work, region);
    if (index % every != 0) continue;
    for (const RegionBlock& block : BlocksOf(region.node)) {
      for (size_t c = 0; c < components; ++c) {
        fits[c].BeginBlock();
        for (size_t i = 0; i < block.leaves.size(); ++i) {
          std::array<int32_t, kVdbLeafVoxels> numbers;
          const size_t leaf = block.leaves[i];
          WholeNumbers(region.masks[leaf], region.LeafValues(leaf, coding->numbers), c, *coding,
                       numbers);
          fits[c].Add(block.places[i], region.masks[leaf], numbers);
        }
      }
    }
  }
  coding->weights.clear();
  for (const WeightsFit& fit : fits) coding->weights.push_back(fit.Weights());
}

class Compressor {
 public:
  Compressor(const VdbFile& from, OutputFile& out, const GridWork& work)
      : from_(from), work_(work), writer_(out) {
    const FilePiece piece{from.version(), static_cast<uint32_t>(from.grids().size()),
                          from.metadata()};
    Add(PieceKind::kFile, 0, {}, PackFile(piece));
  }

  void Grid(uint32_t index, const GridBound& wanted) {
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

  void Code(uint32_t index, const GridBound& wanted, GridPiece* piece) {
    const VdbGrid& grid = from_.grids()[index];
    const Range range = RangeOf(from_, grid, work_);
    RegionCoding& coding = piece->coding;
    coding.numbers = *VdbNumbersOf(grid.type);
    coding.half = grid.half;
    if (range.least <= range.most) {
      piece->least = range.least;
      piece->most = range.most;
    }
    SetBound(range, wanted, &coding);
    coding.background = VdbTreeReader(from_, grid).background();
    if (IsLevelSet(grid) && coding.numbers.components == 1) {
      const double limit = LevelSetLimit(coding);
      // Where values lie beyond the background, it is no narrow band: nothing to keep within.
      if (std::max(std::abs(range.least), std::abs(range.most)) <= limit) coding.limit = limit;
    }
    FitWeights(from_, grid, range.regions, work_, &coding);

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
      coded.Add([region, other = base ? base->At(region->node.origin) : nullptr, &coding] {
        Coded result;
        result.origin = region->node.origin;
        result.bytes = EncodeRegion(*region, other.get(), coding, &result.error);
        result.bytes.insert(result.bytes.begin(), static_cast<std::byte>(other ? 1 : 0));
        return result;
      });
      Step(work_, *region);
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
  for (uint32_t i = 0; i < from.grids().size(); ++i)
    compressor.Grid(i, bounds.For(from.grids()[i]));
  compressor.Finish();
}

GridRanges MeasureGrids(const VdbFile& file, const GridWork& work) {
  GridRanges ranges;
  for (const VdbGrid& grid : file.grids()) {
    if (!grid.twin_of.empty() || !VdbNumbersOf(grid.type)) continue;
    const Range range = RangeOf(file, grid, work);
    ranges[grid.label] = {range.least, range.most};
  }
  return ranges;
}

}  // namespace tilery
