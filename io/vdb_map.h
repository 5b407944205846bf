// What the map of a grid's transform says.
#pragma once

#include <array>
#include <optional>

#include "io/vdb_file.h"

namespace tilery {

// Rows of a matrix that takes index coordinates (i, j, k, 1), x, y, z, to the world's; the last row
// is 0 0 0 1. nullopt for a frustum, and for what is no map (VdbIsMap).
using VdbMatrix = std::array<std::array<double, 4>, 4>;
std::optional<VdbMatrix> VdbIndexToWorld(const VdbTransform& transform);

}  // namespace tilery
