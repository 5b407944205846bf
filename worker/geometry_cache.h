// The geometries of the last few items: units of one item, and pictures of one size, come together.
#pragma once

#include <list>
#include <memory>

#include "pipeline/blocks.h"

namespace tilery {

// Not thread-safe.
class GeometryCache {
 public:
  static constexpr size_t kKept = 8;

  // Throws what the constructor of ItemGeometry throws.
  std::shared_ptr<const ItemGeometry> Get(const Index& shape, const Tiling& tiling,
                                          const UnitSizing& sizing);

 private:
  struct Entry {
    Index shape;
    Tiling tiling;
    UnitSizing sizing;
    std::shared_ptr<const ItemGeometry> geometry;
  };
  std::list<Entry> entries_;  // the latest in front
};

}  // namespace tilery
