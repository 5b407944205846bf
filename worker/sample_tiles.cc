#include "worker/sample_tiles.h"

#include <algorithm>
#include <memory>

#include "io/error.h"
#include "pipeline/ops.h"
#include "pipeline/run_order.h"
#include "worker/publish.h"

namespace tilery {
namespace {

// Item voxels that a tile is gathered from, sources of its padding included.
Box SourcesOf(const TileGrid& grid, const Index& tile) {
  const Box box = grid.input_box(tile);
  Box sources;
  for (int a = 0; a < 3; ++a) {
    int64_t lowest = grid.shape[a], highest = -1;
    for (int64_t i = box.begin[a]; i < box.end[a]; ++i) {
      const int64_t from = PadSource(i, grid.shape[a], grid.tiling.pad);
      if (from < 0) continue;
      lowest = std::min(lowest, from);
      highest = std::max(highest, from);
    }
    sources.begin[a] = lowest;
    sources.end[a] = highest + 1;
  }
  return sources;
}

// `out`: interleaved, shape of `box`. Inputs whose rows come in order only are read row by row, in
// full width.
void ReadBox(Reader& reader, const Box& box, const View& out) {
  const Header& header = reader.header();
  if (header.access == Access::kRandom) return reader.Read(box, out);
  Box rows = box;
  rows.begin[2] = 0;
  rows.end[2] = header.shape[2];
  rows.end[0] = rows.begin[0] + 1;
  const int64_t voxel_bytes = header.channels * static_cast<int64_t>(DTypeSize(header.dtype));
  std::vector<std::byte> plane(static_cast<size_t>(rows.voxels() * voxel_bytes));
  const View all =
      DenseView(plane.data(), header.dtype, header.channels, rows.shape(), Layout::kInterleaved);
  const Box part{{0, 0, box.begin[2]}, {1, box.extent(1), box.end[2]}};
  for (int64_t z = box.begin[0]; z < box.end[0]; ++z) {
    rows.begin[0] = z;
    rows.end[0] = z + 1;
    reader.Read(rows, all);
    const int64_t at = z - box.begin[0];
    CopyView(all.Crop(part), out.Crop({{at, 0, 0}, {at + 1, box.extent(1), box.extent(2)}}));
  }
}

}  // namespace

std::vector<float> SampleTiles(const UnitWork& work, const ItemParams& params, int64_t most) {
  std::shared_ptr<const SparseItem> sparse;
  if (!work.grid.empty()) sparse = std::make_shared<const SparseItem>(work, params.tiling);
  const ItemGeometry geometry(work.header.shape, params.tiling, work.sizing,
                              sparse ? sparse->tiles().tiles : nullptr);
  if (work.block < 0 || work.block >= geometry.units()) {
    throw Error(Fault::kInternal,
                Printable(work.input) + " has no block " + std::to_string(work.block));
  }
  const TileGrid& grid = geometry.grid();
  const Transfer& transfer = params.transfer;
  const RunOrder order(geometry, work.block, transfer);
  const int64_t runs = std::min(most, order.runs());
  if (runs <= 0) return {};

  auto context = std::make_shared<WorkerContext>();
  context->params = {params};
  UnitEnv env;
  env.context = std::move(context);
  UnitTask task;
  task.lease.work = work;
  task.lease.work.params = 0;

  Box box;
  for (int64_t run = 0; run < runs; ++run) box = Hull(box, SourcesOf(grid, order.At(run).tile));
  const Header& header = work.header;
  const int64_t voxel_bytes = header.channels * static_cast<int64_t>(DTypeSize(header.dtype));
  std::vector<std::byte> samples(static_cast<size_t>(box.voxels() * voxel_bytes));
  const View view =
      DenseView(samples.data(), header.dtype, header.channels, box.shape(), Layout::kInterleaved);
  if (sparse) {
    sparse->Read(box, view);
  } else {
    ReadBox(*OpenUnchanged(env, task), box, view);
  }

  const InputTables tables(transfer);
  GatherSource source{view, box, &grid, &tables, false};
  const int64_t nonfinite = CountNonFinite(source, transfer.passes, box);
  if (nonfinite > 0 && transfer.nonfinite == Transfer::NonFinite::kFail) {
    throw Error(Fault::kInput, Printable(work.input) + ": " + std::to_string(nonfinite) +
                                   " voxels of " + ToString(box) + " are not finite");
  }
  source.replace_nonfinite = nonfinite > 0;
  const int64_t values = Product(params.tiling.tile) * transfer.model_in;
  std::vector<float> tiles(static_cast<size_t>(runs * values));
  for (int64_t run = 0; run < runs; ++run) {
    const RunOrder::Position at = order.At(run);
    GatherTile(source, at.tile, transfer.passes[at.pass], tiles.data() + run * values);
  }
  return tiles;
}

}  // namespace tilery
