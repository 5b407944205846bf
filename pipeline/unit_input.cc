#include "pipeline/unit_input.h"

#include <string>

#include "io/error.h"

namespace tilery {
namespace {

// The part of the item that counts as the unit's: from its first tiles' starts to the next block's.
Box OwnVoxels(const TileGrid& grid, const Box& tiles) {
  Box own;
  for (int a = 0; a < 3; ++a) {
    const auto count = static_cast<int64_t>(grid.starts[a].size());
    own.begin[a] = grid.starts[a][tiles.begin[a]];
    own.end[a] = tiles.end[a] < count ? grid.starts[a][tiles.end[a]] : grid.shape[a];
  }
  return Intersect(own, Box::Whole(grid.shape));
}

}  // namespace

UnitInput LookAtInput(const InferWork& work, const InputTables& tables, const RunOrder& order) {
  const TileGrid& grid = work.geometry->grid();
  const Transfer& t = *work.transfer;
  UnitInput input{{work.input, work.input_box, &grid, &tables, false}};
  if (!IsFloat(work.input.dtype)) return input;
  const Box read = work.geometry->unit_input(work.block);
  const int64_t all = CountNonFinite(input.source, t.passes, read);
  if (all == 0) return input;
  if (t.nonfinite == Transfer::NonFinite::kFail) {
    throw Error(Fault::kInput, work.item_name + ": " + std::to_string(all) + " voxels of " +
                                   ToString(read) +
                                   " are not finite; input.nonfinite: keep or fill lets them pass");
  }
  input.source.replace_nonfinite = true;
  input.nonfinite_in = CountNonFinite(input.source, t.passes, OwnVoxels(grid, order.box()));
  return input;
}

}  // namespace tilery
