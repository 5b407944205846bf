// How a grid is coded: by its range, the bound that is wanted, and what predicts it best.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "io/vdb_file.h"
#include "pipeline/codec/context_coder.h"
#include "pipeline/codec/grid_bounds.h"
#include "pipeline/codec/grid_file.h"
#include "pipeline/codec/value_coding.h"

namespace tilery {

struct GridSurvey {
  double least = INFINITY, most = -INFINITY;  // of finite active values, tiles included
  int64_t regions = 0, voxels = 0;            // active ones in leaves
  std::string background;                     // as bytes
};
// Reads the whole grid. Error(kInput).
GridSurvey SurveyOf(const VdbFile& file, const VdbGrid& grid, const GridWork& work);

// Reads the grid, and looks at some of its regions more closely. The same for any number of
// threads. Error(kInput).
RegionCoding FitGrid(const VdbFile& file, const VdbGrid& grid, const GridSurvey& range,
                     const GridBounds& wanted, const GridWork& work);

// What the context network is trained on, of all grids of a file. Not for grids whose range is
// empty, or whose components it does not take.
void ContextSamples(const VdbFile& file, const GridBounds& bounds,
                    const ContextCoder::Sample& sample);

// What the nets of the method vq are trained on, of all grids of a file with a range: a component
// of a leaf, and how many steps the grid's range has.
using LeafSample =
    std::function<void(const LeafMask& mask, const BlockNumbers::Leaf& numbers, double range)>;
void LeafSamples(const VdbFile& file, const GridBounds& bounds, const LeafSample& sample);

}  // namespace tilery
