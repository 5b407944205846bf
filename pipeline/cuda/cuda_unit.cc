#include "pipeline/cuda/cuda_unit.h"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>
#include <utility>

#include "io/error.h"

namespace tilery::cuda {
namespace {

// Parts of one buffer, each aligned.
class Layouter {
 public:
  int64_t Add(int64_t bytes) {
    const int64_t at = size_;
    size_ += (bytes + 255) / 256 * 256;
    return at;
  }
  int64_t size() const { return size_; }

 private:
  int64_t size_ = 0;
};

void CopyToDevice(std::byte* to, const std::byte* from, int64_t bytes, cudaStream_t stream,
                  const char* what) {
  Check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream), what,
        bytes);
}

}  // namespace

UnitState::UnitState(const InferWork& work, std::shared_ptr<const TransferTables> tables,
                     const UnitContext& context)
    : work_(work),
      tables_(std::move(tables)),
      context_(context),
      order_(*work.geometry, work.block, tables_->transfer),
      cover_(work.geometry->unit_cover(work.block)),
      interior_(work.geometry->interior(work.block)),
      seam_cells_(work.geometry->seams(work.block)),
      parts_(Lay()),
      input_(LookAtInput(work_, tables_->tables, order_)),
      restores_(input_.source.replace_nonfinite &&
                tables_->transfer.nonfinite == Transfer::NonFinite::kKeep) {
  // The kernels number tiles by their place in the unit's box, and finish voxels by it.
  if (!order_.is_whole()) {
    throw Error(Fault::kUsage, work_.item_name +
                                   ": grids of OpenVDB files are not run on GPUs yet; choose "
                                   "execution.devices: cpu (--devices cpu)");
  }
  MakeTables();
}

int64_t UnitState::result_bytes() const {
  const Transfer& t = tables_->transfer;
  return interior_.voxels() * t.out_channels * static_cast<int64_t>(DTypeSize(t.out_dtype));
}

int64_t UnitState::sums_bytes() const {
  return cover_.voxels() * tables_->transfer.accumulators * static_cast<int64_t>(sizeof(float));
}

int64_t UnitState::seam_bytes() const {
  int64_t voxels = 0;
  for (const SeamCell& cell : seam_cells_) voxels += cell.box.voxels();
  return voxels * tables_->transfer.accumulators * static_cast<int64_t>(sizeof(float));
}

UnitState::Parts UnitState::Lay() const {
  Parts parts;
  const Box& tiles = order_.box();
  const Index out_tile = work_.geometry->grid().output_tile();
  Layouter table;
  for (int a = 0; a < 3; ++a) {
    const int64_t n = tiles.extent(a), extent = cover_.extent(a);
    parts.start[a] = table.Add(n * 8);
    parts.begin[a] = table.Add(n * 8);
    parts.first[a] = table.Add(extent * 4);
    parts.tiles[a] = table.Add(extent * 4);
    parts.weights[a] = table.Add(n * out_tile[a] * 4);
  }
  parts.table_bytes = table.size();
  Layouter slot;
  parts.input = slot.Add(work_.input.bytes());
  parts.tables = slot.Add(parts.table_bytes);
  parts.sums = slot.Add(sums_bytes());
  parts.result = slot.Add(kFlagBytes + result_bytes());
  parts.seams = slot.Add(seam_bytes());
  parts.bytes = slot.size();
  return parts;
}

void UnitState::MakeTables() {
  const ItemGeometry& geometry = *work_.geometry;
  const TileGrid& grid = geometry.grid();
  const Box& tiles = order_.box();
  const Index out_tile = grid.output_tile();
  host_tables_ = context_.pinned->Take(parts_.table_bytes);
  std::byte* const host = host_tables_.get();
  for (int a = 0; a < 3; ++a) {
    const int64_t n = tiles.extent(a), extent = cover_.extent(a);
    auto* const start = reinterpret_cast<int64_t*>(host + parts_.start[a]);
    auto* const begin = reinterpret_cast<int64_t*>(host + parts_.begin[a]);
    auto* const first = reinterpret_cast<int32_t*>(host + parts_.first[a]);
    auto* const count = reinterpret_cast<int32_t*>(host + parts_.tiles[a]);
    auto* const weights = reinterpret_cast<float*>(host + parts_.weights[a]);
    std::fill_n(first, extent, 0);
    std::fill_n(count, extent, 0);
    std::fill_n(weights, n * out_tile[a], 0.0f);
    cover_begin_[a].resize(n);
    cover_end_[a].resize(n);
    for (int64_t k = 0; k < n; ++k) {
      const TileWindow& window = geometry.windows(a)[tiles.begin[a] + k];
      Index tile{};
      for (int b = 0; b < 3; ++b) tile[b] = tiles.begin[b];
      tile[a] = tiles.begin[a] + k;
      const int64_t tile_begin = grid.output_box(tile).begin[a];
      start[k] = grid.starts[a][tiles.begin[a] + k];
      begin[k] = tile_begin - cover_.begin[a];
      cover_begin_[a][k] = window.begin - cover_.begin[a];
      cover_end_[a][k] = window.end() - cover_.begin[a];
      std::copy(window.weights.begin(), window.weights.end(),
                weights + k * out_tile[a] + window.begin - tile_begin);
      for (int64_t o = cover_begin_[a][k]; o < cover_end_[a][k]; ++o) {
        if (count[o]++ == 0) first[o] = static_cast<int32_t>(k);
      }
    }
  }
}

// ---- The loader ----

void UnitState::Load(std::unique_ptr<UnitSlot> slot, int64_t capacity) {
  slot_ = std::move(slot);
  if (slot_->memory.capacity() < bytes()) slot_->memory.Reserve(capacity);
  std::byte* const memory = slot_->memory.data();
  slot_->input = memory + parts_.input;
  slot_->tables = memory + parts_.tables;
  slot_->sums = memory + parts_.sums;
  slot_->result = memory + parts_.result;
  slot_->seams = memory + parts_.seams;
  slot_->load_begin.Record(context_.copy_in);
  CopyInput();
  CopyTables();
  Check(cudaMemsetAsync(slot_->result, 0, kFlagBytes, context_.copy_in), "cudaMemsetAsync");
  slot_->loaded.Record(context_.copy_in);
  {
    const std::lock_guard lock(mutex_);
    loading_ = Loading::kLoaded;
  }
  changed_.notify_all();
}

void UnitState::FailLoading(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    load_error_ = std::move(error);
    loading_ = Loading::kFailed;
  }
  changed_.notify_all();
}

void UnitState::CopyInput() {
  const ConstView& input = work_.input;
  const int64_t bytes = input.bytes();
  const std::byte* from = input.data;
  if (!IsDense(input, Layout::kInterleaved) || !IsPinned(input.data)) {
    host_input_ = context_.pinned->Take(bytes);
    CopyView(input, DenseView(host_input_.get(), input.dtype, input.channels, input.shape,
                              Layout::kInterleaved));
    from = host_input_.get();
  }
  CopyToDevice(slot_->input, from, bytes, context_.copy_in, "cudaMemcpyAsync of a unit's input");
}

void UnitState::CopyTables() {
  const std::byte* const device = slot_->tables;
  for (int a = 0; a < 3; ++a) {
    starts_.begin[a] = reinterpret_cast<const int64_t*>(device + parts_.start[a]);
    starts_.count[a] = static_cast<int32_t>(order_.box().extent(a));
    windows_[a] = {reinterpret_cast<const int32_t*>(device + parts_.first[a]),
                   reinterpret_cast<const int32_t*>(device + parts_.tiles[a]),
                   reinterpret_cast<const int64_t*>(device + parts_.begin[a]),
                   reinterpret_cast<const float*>(device + parts_.weights[a])};
  }
  CopyToDevice(slot_->tables, host_tables_.get(), parts_.table_bytes, context_.copy_in,
               "cudaMemcpyAsync of a unit's tables");
}

// ---- Lanes ----

void UnitState::WaitLoaded() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return loading_ != Loading::kWaiting; });
  if (loading_ == Loading::kFailed) std::rethrow_exception(load_error_);
}

bool UnitState::Ready() {
  const std::lock_guard lock(mutex_);
  return loading_ != Loading::kWaiting;
}

void UnitState::StopReading() {
  if (context_.take_back(*this)) {
    return FailLoading(std::make_exception_ptr(Error(Fault::kTransient, "nobody waits for it")));
  }
  try {
    WaitLoaded();
  } catch (...) {
    return;  // the loader has waited for what it had asked for
  }
  if (slot_) slot_->loaded.Wait();
}

void UnitState::Gather(const GpuTensor& out, int64_t slot, int64_t run, int64_t count,
                       cudaStream_t stream) {
  WaitLoaded();
  gathered_ = std::max<int64_t>(gathered_, run + count);
  slot_->loaded.MakeWait(stream);
  const int64_t passes = order_.passes();
  const TileGrid& grid = work_.geometry->grid();
  const ConstView dense = DenseView(static_cast<const std::byte*>(slot_->input), work_.input.dtype,
                                    work_.input.channels, work_.input.shape, Layout::kInterleaved);
  for (int64_t k = 0; k < std::min(passes, count); ++k) {
    const RunOrder::Position at = order_.At(run + k);
    GatherTask task = tables_->Gather(tables_->transfer.passes[at.pass], grid.tiling.pad,
                                      input_.source.replace_nonfinite);
    task.samples = dense.data;
    for (int a = 0; a < 4; ++a) task.stride[a] = dense.stride[a];
    for (int a = 0; a < 3; ++a) {
      task.origin[a] = work_.input_box.begin[a];
      task.item[a] = grid.shape[a];
      task.tile[a] = grid.tiling.tile[a];
    }
    task.out = out.data;
    task.type = out.type;
    task.layout = out.layout;
    const TileRun tiles{(run + k) / passes, static_cast<int32_t>((count - k + passes - 1) / passes),
                        static_cast<int32_t>(slot + k), static_cast<int32_t>(passes)};
    GatherTiles(task, starts_, tiles, stream);
  }
}

std::unique_ptr<UnitSlot> UnitState::GiveUp() {
  host_input_.reset();
  host_tables_.reset();
  return std::move(slot_);
}

}  // namespace tilery::cuda
