#include "pipeline/codec/grid_regions.h"

#include <algorithm>
#include <utility>

namespace tilery {
namespace {

LeafMask MaskOf(const VdbNode& leaf) {
  LeafMask mask;
  std::copy(leaf.active.words().begin(), leaf.active.words().end(), mask.begin());
  return mask;
}

bool Before(const VdbCoord& a, const VdbCoord& b) {
  const auto upper = [](const VdbCoord& at) {
    constexpr int32_t kEdge = VdbEdge(VdbLevel::kUpper);
    return VdbCoord{at[0] & -kEdge, at[1] & -kEdge, at[2] & -kEdge};
  };
  return std::pair(upper(a), a) < std::pair(upper(b), b);
}

}  // namespace

RegionReader::RegionReader(const VdbFile& file, const VdbGrid& grid,
                           std::function<void(const VdbNode&)> upper)
    : tree_(file, grid), upper_(std::move(upper)) {
  more_ = tree_.Next(&node_);
}

bool RegionReader::Next(Region* region) {
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

BaseRegions::BaseRegions(const VdbFile& file, const VdbGrid& grid) : reader_(file, grid) {
  Advance();
}

std::shared_ptr<const Region> BaseRegions::At(const VdbCoord& origin) {
  while (region_ && Before(region_->node.origin, origin)) Advance();
  return region_ && region_->node.origin == origin ? region_ : nullptr;
}

void BaseRegions::Advance() {
  auto next = std::make_shared<Region>();
  region_ = reader_.Next(next.get()) ? next : nullptr;
}

}  // namespace tilery
