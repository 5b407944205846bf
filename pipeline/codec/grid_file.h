// Whole OpenVDB files to .tvdb files and back.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "io/thread_pool.h"
#include "io/tvdb_file.h"
#include "io/vdb_file.h"
#include "pipeline/codec/grid_bounds.h"
#include "pipeline/codec/grid_pieces.h"
#include "pipeline/codec/region.h"

namespace tilery {

// How the work is done; never what comes of it.
struct GridWork {
  // Regions are coded on its threads; null: on the caller's. Outlives the call.
  ThreadPool* pool = nullptr;
  // Outlive the call.
  RegionDevices devices;
  // Called on the caller's thread after each region, with the bytes of values it holds; what it
  // throws ends the work.
  std::function<void(int64_t bytes)> step;

  void Step(const Region& region) const {
    if (step) step(static_cast<int64_t>(region.values.size()));
  }
};

// What became of a grid.
struct GridReport {
  VdbGrid about;  // all but places in a file
  GridPiece::How how = GridPiece::How::kCoded;
  int64_t numbers = 0;         // finite active ones in leaves, each component for itself
  double least = 0, most = 0;  // of finite active values, tiles included
  double bound = 0;
  bool context = false;               // numbers are coded under the context model
  bool codes = false;                 // leaves may be codes
  bool exact = true;                  // else within the bound; or, if that is 0, there is none
  double max_error = 0, squares = 0;  // achieved: of `numbers`
  int64_t bytes = 0;                  // in the compressed file

  double rms() const;
  // Of the range, in dB; nullopt if there is no error.
  std::optional<double> psnr() const;
};

// Memory: the index, and two regions of 128^3 voxels for each that is under way, which are at most
// twice the pool's threads and within kRegionBytes, whatever the file holds. `out` is finished, but
// not published. The same bytes for any number of threads. Error(kInput) for the source,
// Error(kOutput) for the target.
void CompressGrids(const VdbFile& from, OutputFile& out, const GridBounds& bounds,
                   const GridWork& work = {});
void DecompressGrids(const TvdbFile& from, OutputFile& out, const GridWork& work = {});

// Of all grids, in their order, by what the file says of them. Error(kInput).
std::vector<GridReport> ReportsOf(const TvdbFile& file);

// Of all grids whose numbers we know and that have values of their own.
GridRanges MeasureGrids(const VdbFile& file, const GridWork& work = {});

inline constexpr int64_t kRegionBytes = int64_t{256} << 20;
// Regions of a grid that may be under way at a time.
size_t RegionsAhead(const GridWork& work, const VdbNumbers& numbers);

}  // namespace tilery
