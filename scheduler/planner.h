// Job + contract + headers -> Plan. Pure: no I/O, no clock.
#pragma once

#include <string>
#include <vector>

#include "scheduler/inputs.h"
#include "scheduler/job.h"
#include "scheduler/plan.h"

namespace tilery {

// What the job resolves to once contract and headers are known; printed by `plan`.
struct Resolved {
  Plan plan;
  Contract contract;
  int dims = 2;
  std::vector<int64_t> tile, overlap, trim;  // axis order without channels, `dims` of them
  bool exact = false;
  std::string inexact_reason;  // "not exact: exact needs overlap 40"
  double redundancy = 1;
  int64_t seam_bytes = 0, host_bytes = 0, scratch_bytes = 0, output_bytes = 0;
  std::vector<std::string> warnings;
};

// `model_hash` goes into the items' keys, together with their effective parameters and the
// program's numerics number. Items whose header failed, or whose output can't hold the result, are
// refused (Item::refused). Error(kUsage): tiling mistakes, two items for one output, an output that
// is an input. `inputs` and `outputs` are taken by value: jobs of many items move them in and so
// hold each path once.
Resolved MakePlan(const Job& job, const Contract& contract, const std::string& model_hash,
                  std::vector<InputHeader> inputs, std::vector<std::string> outputs);

// Finds the tiles of all inputs that are grids of OpenVDB files, and their boxes; whose file is
// damaged or whose grid is too large is refused by its `error`. Error(kUsage) as MakePlan's.
void FindTilesOfGrids(const Job& job, const Contract& contract, std::vector<InputHeader>& inputs,
                      int threads);

// What an item has of its input and output alone; these are moved from.
Item NewItem(InputHeader& input, std::string& output);

// Error(kUsage) if two items have one output, or an output is an input.
void CheckPaths(const std::vector<InputHeader>& inputs, const std::vector<std::string>& outputs);

// Sizes units: tiles of the job / 256 clamped to 16..1024, bounded by `unit_memory`; the last fifth
// of every item's tiles gets quarter-size units (items that are one unit anyway stay whole), so
// that an item's place in the job decides nothing. Fills everything of the items that follows from
// it: units, tiles, bytes; and the plan's totals. Refuses items of more than kMostUnits units, and
// those whose extents alone would fill the memory, with the number and the limit.
void SizeUnits(Plan& plan, int64_t unit_memory);

// Of one item. Planning this many takes seconds, and so does looking for what is done of them; with
// usual tiles they are 10^14 voxels and more.
inline constexpr int64_t kMostUnits = int64_t{1} << 24;

// Tiles of the grid over an item, without making it.
int64_t GridTiles(const Index& shape, const Tiling& tiling);

// Raised only when bytes may change: of inferred items, and of compressed, measured or decompressed
// files of grids.
inline constexpr int kNumericsNumber = 4, kGridCodecNumber = 4;

}  // namespace tilery
