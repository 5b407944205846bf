// Whole OpenVDB files to .tvdb files and back.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/tvdb_file.h"
#include "io/vdb_file.h"
#include "pipeline/codec/grid_pieces.h"

namespace tilery {

// How far active values of a grid may be off. Grids whose numbers we do not know, all masks, tiles,
// inactive values and values that are not finite are exact in any case.
struct GridBound {
  enum class Kind { kExact, kAbsolute, kShare } kind = Kind::kShare;
  double value = 0.01;  // kShare: of the range of the grid's finite active values, tiles included
};

// What became of a grid.
struct GridReport {
  std::string label, type;
  bool coded = false;             // else passed on as bytes
  double least = 0, most = 0;     // of finite active values
  double bound = 0;               // 0: exact
  double max_error = 0, rms = 0;  // achieved
  int64_t bytes = 0;              // in the compressed file
};

// Memory: two regions of 128^3 voxels, whatever the file holds, and the index. `out` is finished,
// but not published. Error(kInput) for the source, Error(kOutput) for the target.
std::vector<GridReport> CompressGrids(const VdbFile& from, OutputFile& out,
                                      const std::function<GridBound(const VdbGrid&)>& bound_of);
void DecompressGrids(const TvdbFile& from, OutputFile& out);

}  // namespace tilery
