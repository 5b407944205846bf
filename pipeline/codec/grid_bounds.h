// How far the values of compressed grids may be off, grid by grid, and how people write it:
//
//   none                                no bound: as near as codes come (method vq only)
//
//   1%                                  of the range of each grid's finite active values
//   0.01                                in the grid's own units
//   lossless                            not at all
//   density=1%,vel=0.01,flame=lossless  by grid; the others have 1 %
//   5%,vel=0.01                         by grid; the others have 5 %
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "io/vdb_file.h"

namespace tilery {

// How far active values of a grid may be off. Grids whose numbers we do not know, all masks, tiles,
// inactive values and values that are not finite are exact in any case.
struct GridBound {
  enum class Kind : uint8_t { kExact, kAbsolute, kShare, kNone } kind = Kind::kShare;
  double value = 0.01;  // kShare: of the range of the grid's finite active values, tiles included
  bool operator==(const GridBound&) const = default;
};

// Least and most finite active value of a grid, tiles included, components together; least > most
// if there is none.
using GridRange = std::array<double, 2>;
using GridRanges = std::map<std::string, GridRange>;  // by label

// How grids are coded: as whole numbers under models (kBounded), their leaves as codes of a trained
// codebook (kVq), or each block of leaves as what is smaller (kAuto).
enum class GridMethod : uint8_t { kBounded, kVq, kAuto };

struct GridBounds {
  GridMethod method = GridMethod::kBounded;
  GridBound standard;
  std::vector<std::pair<std::string, GridBound>> named;  // by label, or by a name that several have
  bool operator==(const GridBounds&) const = default;

  const GridBound& For(const VdbGrid& grid) const;
  // For whoever says it in words: "1 % of the range, vel 0.01, flame exactly".
  std::string Words() const;
};

// Error(kUsage) with what is wrong and how it is written.
GridBounds ParseGridBounds(const std::string& text);

// The same by label for each of these grids, shares as numbers: of these ranges. Grids whose range
// is not there keep their share.
GridBounds Resolve(const GridBounds& bounds, const std::vector<VdbGrid>& grids,
                   const GridRanges& ranges);

}  // namespace tilery
