#include "io/vdb_map.h"

#include "io/byte_order.h"

namespace tilery {

// Source: openvdb/math/Maps.h. A scale is followed by numbers that follow from it.
std::optional<VdbMatrix> VdbIndexToWorld(const VdbTransform& transform) {
  const std::string& type = transform.type;
  if (type == "NonlinearFrustumMap" || !VdbIsMap(transform)) return std::nullopt;
  const auto number = [&](size_t index) {
    return LoadLittle<double>(transform.bytes.data() + index * sizeof(double));
  };
  VdbMatrix matrix{};
  matrix[3][3] = 1;
  if (type == "AffineMap" || type == "UnitaryMap") {
    // OpenVDB's vectors stand before its matrices, ours behind.
    for (size_t row = 0; row < 3; ++row) {
      for (size_t column = 0; column < 4; ++column) matrix[row][column] = number(4 * column + row);
    }
    return matrix;
  }
  const bool scales = type.find("Scale") != std::string::npos;
  const bool moves = type.find("Translat") != std::string::npos;
  for (size_t axis = 0; axis < 3; ++axis) {
    matrix[axis][axis] = scales ? number(axis + (moves ? 3 : 0)) : 1;
    if (moves) matrix[axis][3] = number(axis);
  }
  return matrix;
}

}  // namespace tilery
