#include "pipeline/codec/grid_reader.h"

#include <algorithm>
#include <map>
#include <utility>

#include "io/error.h"

namespace tilery {
namespace {

VdbCoord Corner(const VdbNode& node, int place) {
  VdbCoord at = VdbPlaceOffset(node.level, place);
  for (size_t axis = 0; axis < 3; ++axis) at[axis] += node.origin[axis];
  return at;
}

size_t BytesOf(const Region& region) {
  return region.values.size() + region.masks.size() * sizeof(LeafMask) + region.node.values.size();
}

// Which leaf, in ascending order, has a place.
std::vector<size_t> LeavesByPlace(const VdbNode& node) {
  std::vector<size_t> leaves(VdbPlaces(VdbLevel::kLower));
  size_t leaf = 0;
  for (int place = node.children.NextOn(0); place >= 0; place = node.children.NextOn(place + 1))
    leaves[static_cast<size_t>(place)] = leaf++;
  return leaves;
}

}  // namespace

GridReader::GridReader(const std::filesystem::path& path)
    : file_(path), index_(file_), reports_(ReportsOf(file_)), uppers_(index_.size()) {
  std::map<std::string, size_t> trees;
  for (uint32_t i = 0; i < index_.size(); ++i) {
    grids_.push_back(index_.Read(i));
    if (grids_.back().how != GridPiece::How::kTwin) trees.emplace(grids_.back().about.stored, i);
  }
  for (size_t i = 0; i < grids_.size(); ++i) {
    trees_.push_back(i);
    if (grids_[i].how != GridPiece::How::kTwin) continue;
    const auto found = trees.find(grids_[i].about.twin_of);
    if (found == trees.end()) {
      throw Error(Fault::kInput, NameOf(i) + " shares the tree of '" +
                                     Printable(grids_[i].about.twin_of) + "', which there is not");
    }
    trees_.back() = found->second;
  }
}

std::string GridReader::NameOf(size_t grid) const {
  return Printable(file_.file().path().string()) + ": grid '" +
         Printable(reports_.at(grid).about.label) + "'";
}

const GridPiece& GridReader::CodedTree(size_t grid) const {
  const GridPiece& piece = grids_[TreeOf(grid)];
  if (piece.how == GridPiece::How::kCoded) return piece;
  throw Error(Fault::kInput, NameOf(grid) + " of type " + VdbValueTypeOf(piece.about) +
                                 " is passed on as it was: decompress the file to read it");
}

Region GridReader::ReadRegion(size_t tree, const VdbCoord& origin) const {
  return index_.ReadRegion(static_cast<uint32_t>(tree), grids_.at(tree).coding, origin, false);
}

std::shared_ptr<const Region> GridReader::RegionAt(size_t tree, const VdbCoord& origin) const {
  {
    const std::lock_guard lock(mutex_);
    for (auto at = regions_.begin(); at != regions_.end(); ++at) {
      if (at->tree != tree || at->region->node.origin != origin) continue;
      regions_.splice(regions_.begin(), regions_, at);
      return at->region;
    }
  }
  auto region = std::make_shared<const Region>(ReadRegion(tree, origin));
  const size_t bytes = BytesOf(*region);
  const std::lock_guard lock(mutex_);
  regions_.push_front({tree, region, bytes});
  region_bytes_ += bytes;
  while (region_bytes_ > static_cast<size_t>(kRegionBytes)) {
    region_bytes_ -= regions_.back().bytes;
    regions_.pop_back();
  }
  return region;
}

std::shared_ptr<const GridReader::Uppers> GridReader::UppersOf(size_t tree) const {
  const GridPiece& piece = grids_[tree];
  constexpr size_t kPlaces = VdbPlaces(VdbLevel::kUpper);
  const size_t each = kPlaces * piece.coding.numbers.bytes() + 2 * kPlaces / 8;
  const std::lock_guard lock(mutex_);
  if (uppers_[tree]) return uppers_[tree];
  if (piece.uppers > (kKeptUppers - upper_bytes_) / each) return nullptr;
  auto all = std::make_shared<Uppers>();
  UpperReader uppers(piece);
  for (VdbNode upper; uppers.Next(&upper);) all->push_back(upper);
  upper_bytes_ += piece.uppers * each;
  uppers_[tree] = all;
  return all;
}

template <typename Use>
void GridReader::ForUppers(size_t tree, const Use& use) const {
  if (const auto kept = UppersOf(tree)) {
    for (const VdbNode& upper : *kept) use(upper);
    return;
  }
  UpperReader uppers(grids_[tree]);
  for (VdbNode upper; uppers.Next(&upper);) use(upper);
}

template <typename Number>
void GridReader::Read(size_t grid, const VdbBox& box, Number* values, uint8_t* active) const {
  const GridPiece& piece = CodedTree(grid);
  const size_t tree = TreeOf(grid);
  const VdbNumbers& numbers = piece.coding.numbers;
  const auto background = std::as_bytes(std::span(piece.coding.background));
  DenseBox<Number> out(box, numbers, values, active);
  out.Fill(box, background.data(), false);
  for (const VdbRootTile& tile : piece.root_tiles) {
    out.Fill(CubeAt(tile.origin, VdbEdge(VdbLevel::kUpper)),
             std::as_bytes(std::span(tile.value)).data(), tile.active);
  }
  // The tiles of a node; below(place, corner) for the nodes below it.
  const auto add = [&](const VdbNode& node, const auto& below) {
    ForPlaces(node, box, [&](int place) {
      const VdbCoord corner = Corner(node, place);
      if (node.children.on(place)) return below(place, corner);
      const auto value =
          std::span(node.values)
              .subspan(static_cast<size_t>(place) * numbers.bytes(), numbers.bytes());
      const bool on = node.active.on(place);
      if (on || !std::equal(value.begin(), value.end(), background.begin()))
        out.Fill(CubeAt(corner, VdbPlaceEdge(node.level)), value.data(), on);
    });
  };
  Naming(file_, "the tree of grid " + std::to_string(tree), [&] {
    ForUppers(tree, [&](const VdbNode& upper) {
      add(upper, [&](int, const VdbCoord& origin) {
        const std::shared_ptr<const Region> region = RegionAt(tree, origin);
        const std::vector<size_t> leaves = LeavesByPlace(region->node);
        add(region->node, [&](int place, const VdbCoord& corner) {
          const size_t leaf = leaves[static_cast<size_t>(place)];
          out.AddLeaf(corner, region->masks[leaf], region->LeafValues(leaf, numbers));
        });
      });
    });
  });
}
template void GridReader::Read(size_t, const VdbBox&, float*, uint8_t*) const;
template void GridReader::Read(size_t, const VdbBox&, double*, uint8_t*) const;

// ---- leaves ----

LeafReader::LeafReader(const GridReader& reader, size_t grid)
    : reader_(reader),
      tree_(reader.TreeOf(grid)),
      numbers_(reader.CodedTree(grid).coding.numbers),
      uppers_(reader.CodedTree(grid)) {}

bool LeafReader::Next(Leaf* leaf) {
  while (place_ < 0) {
    if (upper_place_ >= 0) upper_place_ = upper_.children.NextOn(upper_place_ + 1);
    while (upper_place_ < 0) {
      const bool more = Naming(reader_.file(), "the tree of grid " + std::to_string(tree_),
                               [&] { return uppers_.Next(&upper_); });
      if (!more) return false;
      upper_place_ = upper_.children.NextOn(0);
    }
    region_ = reader_.ReadRegion(tree_, Corner(upper_, upper_place_));
    place_ = region_.node.children.NextOn(0);
    leaf_ = 0;
  }
  leaf->origin = Corner(region_.node, place_);
  leaf->active = region_.masks[leaf_];
  leaf->values = region_.LeafValues(leaf_, numbers_);
  place_ = region_.node.children.NextOn(place_ + 1);
  ++leaf_;
  return true;
}

}  // namespace tilery
