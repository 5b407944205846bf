#include "worker/geometry_cache.h"

#include <algorithm>

namespace tilery {

std::shared_ptr<const ItemGeometry> GeometryCache::Get(const Index& shape, const Tiling& tiling,
                                                       const UnitSizing& sizing) {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.shape == shape && entry.tiling == tiling && entry.sizing == sizing;
  });
  if (found != entries_.end()) {
    entries_.splice(entries_.begin(), entries_, found);
  } else {
    entries_.push_front(
        {shape, tiling, sizing, std::make_shared<const ItemGeometry>(shape, tiling, sizing)});
    if (entries_.size() > kKept) entries_.pop_back();
  }
  return entries_.front().geometry;
}

}  // namespace tilery
