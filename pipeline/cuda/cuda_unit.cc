#include "pipeline/cuda/cuda_unit.h"

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "io/error.h"
#include "pipeline/profile.h"

namespace tilery::cuda {
namespace {

constexpr int64_t kFlagBytes = 256;  // keeps what follows aligned

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
      seam_cells_(work.geometry->seams(work.block)) {
  source_ = {work_.input, work_.input_box, &work_.geometry->grid(), &tables_->tables, false};
}

// ---- The loader ----

int64_t UnitState::bytes() const {
  const Transfer& t = tables_->transfer;
  int64_t seam_voxels = 0;
  for (const SeamCell& cell : seam_cells_) seam_voxels += cell.box.voxels();
  return work_.input.bytes() + t.accumulators * 4 * (cover_.voxels() + seam_voxels) +
         interior_.voxels() * t.out_channels * static_cast<int64_t>(DTypeSize(t.out_dtype));
}

void UnitState::Load(std::unique_ptr<UnitSlot> slot) {
  slot_ = std::move(slot);
  CountNonFinites();
  slot_->load_begin.Record(context_.copy_in);
  CopyInput();
  MakeTables();
  const Transfer& t = tables_->transfer;
  slot_->sums.Reserve(t.accumulators * cover_.voxels() * 4);
  slot_->result.Reserve(kFlagBytes + interior_.voxels() * t.out_channels *
                                         static_cast<int64_t>(DTypeSize(t.out_dtype)));
  int64_t seam_voxels = 0;
  for (const SeamCell& cell : seam_cells_) seam_voxels += cell.box.voxels();
  slot_->seams.Reserve(seam_voxels * t.accumulators * 4);
  Check(cudaMemsetAsync(slot_->result.data(), 0, kFlagBytes, context_.copy_in), "cudaMemsetAsync");
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

void UnitState::CountNonFinites() {
  if (!IsFloat(work_.input.dtype)) return;
  const Transfer& t = tables_->transfer;
  const Box all_of_it = work_.geometry->unit_input(work_.block);
  const int64_t all = CountNonFinite(source_, t.passes, all_of_it);
  source_.replace_nonfinite = all > 0;
  if (all == 0) return;
  nonfinite_in_ = CountNonFinite(source_, t.passes, OwnVoxels());
  restores_ = t.nonfinite == Transfer::NonFinite::kKeep;
  if (t.nonfinite == Transfer::NonFinite::kFail) {
    throw Error(Fault::kInput, work_.item_name + ": " + std::to_string(all) + " voxels of " +
                                   ToString(all_of_it) +
                                   " are not finite; input.nonfinite: keep or fill lets them pass");
  }
}

// The part of the item that counts as this unit's: from its first tiles' starts to the next
// block's.
Box UnitState::OwnVoxels() const {
  const TileGrid& grid = work_.geometry->grid();
  const Box& tiles = order_.box();
  Box own;
  for (int a = 0; a < 3; ++a) {
    const auto count = static_cast<int64_t>(grid.starts[a].size());
    own.begin[a] = grid.starts[a][tiles.begin[a]];
    own.end[a] = tiles.end[a] < count ? grid.starts[a][tiles.end[a]] : grid.shape[a];
  }
  return Intersect(own, Box::Whole(grid.shape));
}

void UnitState::CopyInput() {
  const ConstView& input = work_.input;
  const int64_t bytes = input.bytes();
  std::byte* const to = slot_->input.Reserve(bytes);
  const std::byte* from = input.data;
  if (!IsDense(input, Layout::kInterleaved) || !IsPinned(input.data)) {
    host_input_ = context_.pinned->Take(bytes);
    CopyView(input, DenseView(host_input_.get(), input.dtype, input.channels, input.shape,
                              Layout::kInterleaved));
    from = host_input_.get();
  }
  CopyToDevice(to, from, bytes, context_.copy_in, "cudaMemcpyAsync of a unit's input");
}

void UnitState::MakeTables() {
  const ItemGeometry& geometry = *work_.geometry;
  const TileGrid& grid = geometry.grid();
  const Box& tiles = order_.box();
  const Index out_tile = grid.output_tile();
  Layouter layout;
  int64_t at_start[3], at_first[3], at_tiles[3], at_begin[3], at_weights[3];
  for (int a = 0; a < 3; ++a) {
    const int64_t n = tiles.extent(a), extent = cover_.extent(a);
    at_start[a] = layout.Add(n * 8);
    at_begin[a] = layout.Add(n * 8);
    at_first[a] = layout.Add(extent * 4);
    at_tiles[a] = layout.Add(extent * 4);
    at_weights[a] = layout.Add(n * out_tile[a] * 4);
  }
  host_tables_ = context_.pinned->Take(layout.size());
  std::byte* const host = host_tables_.get();
  std::byte* const device = slot_->tables.Reserve(layout.size());
  for (int a = 0; a < 3; ++a) {
    const int64_t n = tiles.extent(a), extent = cover_.extent(a);
    auto* const start = reinterpret_cast<int64_t*>(host + at_start[a]);
    auto* const begin = reinterpret_cast<int64_t*>(host + at_begin[a]);
    auto* const first = reinterpret_cast<int32_t*>(host + at_first[a]);
    auto* const count = reinterpret_cast<int32_t*>(host + at_tiles[a]);
    auto* const weights = reinterpret_cast<float*>(host + at_weights[a]);
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
    starts_.begin[a] = reinterpret_cast<const int64_t*>(device + at_start[a]);
    starts_.count[a] = static_cast<int32_t>(n);
    windows_[a] = {reinterpret_cast<const int32_t*>(device + at_first[a]),
                   reinterpret_cast<const int32_t*>(device + at_tiles[a]),
                   reinterpret_cast<const int64_t*>(device + at_begin[a]),
                   reinterpret_cast<const float*>(device + at_weights[a])};
  }
  CopyToDevice(device, host, layout.size(), context_.copy_in, "cudaMemcpyAsync of a unit's tables");
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
  const ConstView dense =
      DenseView(static_cast<const std::byte*>(slot_->input.data()), work_.input.dtype,
                work_.input.channels, work_.input.shape, Layout::kInterleaved);
  for (int64_t k = 0; k < std::min(passes, count); ++k) {
    const RunOrder::Position at = order_.At(run + k);
    GatherTask task = tables_->Gather(tables_->transfer.passes[at.pass], grid.tiling.pad,
                                      source_.replace_nonfinite);
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

// ---- Who blends ----

void UnitState::Blend(int64_t run, int64_t count, const CudaOutput* output, int64_t slot) {
  const std::lock_guard lock(*context_.blending);
  if (!begun_) {
    WaitLoaded();
    slot_->loaded.MakeWait(context_.finish);
    begun_ = true;
  }
  output->ReadBegins(context_.finish);
  if (tables_->fused() && !restores_) {
    BlendFused(run, count, *output, slot);
  } else {
    ClearSums();
    for (int64_t k = 0; k < count; ++k) BlendOne(run + k, *output, slot + k);
  }
  output->ReadOn(context_.finish);
}

void UnitState::BlendFused(int64_t run, int64_t count, const CudaOutput& output, int64_t slot) {
  const GpuTensor tensor = output.tensor();
  const Pass& pass = tables_->transfer.passes[0];
  const Index out_tile = work_.geometry->grid().output_tile();
  BlendTilesTask task{};
  task.output = tensor.data;
  task.type = tensor.type;
  task.layout = tensor.layout;
  task.channels = context_.channels_out;
  task.mean = pass.reduce == Pass::Reduce::kMean;
  task.out_count = pass.out_count;
  for (size_t c = 0; c < pass.out.size(); ++c) task.out[c] = pass.out[c];
  TileCovers covers{};
  for (int a = 0; a < 3; ++a) {
    task.tile_shape[a] = out_tile[a];
    task.axis[a] = windows_[a];
    task.tile_count[a] = static_cast<int32_t>(order_.box().extent(a));
    task.cover_shape[a] = cover_.extent(a);
    task.interior_begin[a] = interior_.empty() ? 0 : interior_.begin[a] - cover_.begin[a];
    task.interior_shape[a] = interior_.empty() ? 0 : interior_.extent(a);
    covers.begin[a] = cover_begin_[a].data();
    covers.end[a] = cover_end_[a].data();
    covers.count[a] = task.tile_count[a];
  }
  task.sums = reinterpret_cast<float*>(slot_->sums.data());
  task.finalize = tables_->Finish();
  task.finalize.out = slot_->result.data() + kFlagBytes;
  task.finalize.overflow = reinterpret_cast<int32_t*>(slot_->result.data());
  const TileRun tiles{run, static_cast<int32_t>(count), static_cast<int32_t>(slot), 1};
  task.region = CoverOf(covers, tiles);
  BlendTiles(task, tiles, context_.finish);
}

void UnitState::ClearSums() {
  if (cleared_) return;
  cleared_ = true;
  const int64_t bytes = tables_->transfer.accumulators * cover_.voxels() * 4;
  Check(cudaMemsetAsync(slot_->sums.data(), 0, static_cast<size_t>(bytes), context_.finish),
        "cudaMemsetAsync of sums", bytes);
}

// The windows' part of a tile. Without source.
BlendTask UnitState::MakeBlend(const Index& tile, const Pass& pass) const {
  const ItemGeometry& geometry = *work_.geometry;
  const Box box = geometry.grid().output_box(tile);
  const Index out_tile = geometry.grid().output_tile();
  BlendTask task{};
  for (int a = 0; a < 3; ++a) {
    const int64_t k = tile[a] - order_.box().begin[a];
    task.tile_begin[a] = box.begin[a];
    task.tile_shape[a] = out_tile[a];
    task.begin[a] = cover_.begin[a] + cover_begin_[a][k];
    task.shape[a] = cover_end_[a][k] - cover_begin_[a][k];
    task.window[a] = windows_[a].weights + k * out_tile[a] + (task.begin[a] - task.tile_begin[a]);
    task.sums_begin[a] = cover_.begin[a];
    task.sums_shape[a] = cover_.extent(a);
  }
  task.mean = pass.reduce == Pass::Reduce::kMean;
  task.out_begin = pass.out_begin;
  task.out_count = pass.out_count;
  for (size_t c = 0; c < pass.out.size(); ++c) task.out[c] = pass.out[c];
  task.sums = reinterpret_cast<float*>(slot_->sums.data());
  return task;
}

void UnitState::BlendOne(int64_t run, const CudaOutput& output, int64_t slot) {
  const RunOrder::Position at = order_.At(run);
  for (size_t pass : order_.Before(run)) BlendDirect(at.tile, pass);
  const GpuTensor tensor = output.tensor();
  BlendTask task = MakeBlend(at.tile, tables_->transfer.passes[at.pass]);
  task.output = static_cast<const std::byte*>(tensor.data) + slot * tensor.slot_bytes;
  task.type = tensor.type;
  task.layout = tensor.layout;
  task.channels = context_.channels_out;
  cuda::Blend(task, context_.finish);
  for (size_t pass : order_.After(run)) BlendDirect(at.tile, pass);
}

// Passes without a model are rare (alpha as `resize` or `copy`): the host makes their tiles.
void UnitState::BlendDirect(const Index& tile, size_t index) {
  const Pass& pass = tables_->transfer.passes[index];
  const Index out_tile = work_.geometry->grid().output_tile();
  direct_.resize(pass.in.size() * static_cast<size_t>(Product(out_tile)));
  DirectTile(source_, tile, pass, scratch_, direct_.data());
  const auto bytes = static_cast<int64_t>(direct_.size() * sizeof(float));
  std::byte* const to = slot_->direct.Reserve(bytes);
  CopyToDevice(to, reinterpret_cast<const std::byte*>(direct_.data()), bytes, context_.finish,
               "cudaMemcpyAsync of a tile without model");
  BlendTask task = MakeBlend(tile, pass);
  task.output = to;
  task.type = ModelType::kF32;
  task.layout = ModelLayout::kPlanar;
  task.channels = static_cast<int32_t>(pass.in.size());
  task.mean = false;  // DirectTile gives what the pass wants, in order
  for (int32_t k = 0; k < task.out_count; ++k) task.out[k] = k;
  cuda::Blend(task, context_.finish);
  Check(cudaStreamSynchronize(context_.finish), "cudaStreamSynchronize");  // the tile is used again
}

void UnitState::BlendWithoutModel() {
  const std::lock_guard lock(*context_.blending);
  WaitLoaded();
  slot_->loaded.MakeWait(context_.finish);
  begun_ = true;
  ClearSums();
  for (int64_t tile = 0; tile < order_.tiles(); ++tile) {
    for (size_t p = 0; p < tables_->transfer.passes.size(); ++p) {
      BlendDirect(order_.TileAt(tile), p);
    }
  }
}

void UnitState::Finish() {
  const std::lock_guard lock(*context_.blending);
  const Transfer& t = tables_->transfer;
  const auto* const sums = reinterpret_cast<const float*>(slot_->sums.data());
  if (!restores_ && !tables_->fused() && !interior_.empty()) {
    FinalizeTask task = tables_->Finish();
    task.sums = sums;
    for (int a = 0; a < 3; ++a) {
      task.sums_begin[a] = cover_.begin[a];
      task.sums_shape[a] = cover_.extent(a);
      task.begin[a] = interior_.begin[a];
      task.shape[a] = interior_.extent(a);
    }
    task.out = slot_->result.data() + kFlagBytes;
    task.overflow = reinterpret_cast<int32_t*>(slot_->result.data());
    Finalize(task, context_.finish);
  }
  int64_t seam_values = 0;
  for (const SeamCell& cell : seam_cells_) {
    if (restores_) break;
    int64_t begin[3], shape[3], sums_begin[3], sums_shape[3];
    for (int a = 0; a < 3; ++a) {
      begin[a] = cell.box.begin[a];
      shape[a] = cell.box.extent(a);
      sums_begin[a] = cover_.begin[a];
      sums_shape[a] = cover_.extent(a);
    }
    Interleave(sums, sums_begin, sums_shape, t.accumulators, begin, shape,
               reinterpret_cast<float*>(slot_->seams.data()) + seam_values, context_.finish);
    seam_values += cell.box.voxels() * t.accumulators;
  }
  slot_->finished.Record(context_.finish);
  slot_->finished.MakeWait(context_.copy_out);
  slot_->copy_begin.Record(context_.copy_out);
  const auto copy = [&](std::shared_ptr<std::byte[]>& host, const std::byte* from, int64_t bytes) {
    host = context_.pinned->Take(bytes);
    Check(cudaMemcpyAsync(host.get(), from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                          context_.copy_out),
          "cudaMemcpyAsync of a result", bytes);
  };
  if (restores_) {
    copy(host_sums_, slot_->sums.data(), t.accumulators * cover_.voxels() * 4);
  } else {
    copy(host_result_, slot_->result.data(),
         kFlagBytes +
             interior_.voxels() * t.out_channels * static_cast<int64_t>(DTypeSize(t.out_dtype)));
    if (seam_values > 0) copy(host_seams_, slot_->seams.data(), seam_values * 4);
  }
  slot_->copied.Record(context_.copy_out);
}

// ---- The finisher ----

void UnitState::AddTimes() const {
  const auto now = std::chrono::steady_clock::now();
  const auto add = [&](Stage stage, const OwnEvent& begin, const OwnEvent& end, int64_t bytes,
                       uint32_t row) {
    const auto since = [&](const OwnEvent& event) {
      return now - std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                       std::chrono::duration<double>(SecondsBetween(event, slot_->copied)));
    };
    context_.profile->Add(stage, work_.unit, bytes, since(begin), since(end), row);
  };
  add(Stage::kH2d, slot_->load_begin, slot_->loaded, work_.input.bytes(), 1001);
  int64_t bytes = 0;
  if (restores_) {
    bytes = tables_->transfer.accumulators * cover_.voxels() * 4;
  } else {
    const Transfer& t = tables_->transfer;
    bytes = interior_.voxels() * t.out_channels * static_cast<int64_t>(DTypeSize(t.out_dtype));
    for (const SeamCell& cell : seam_cells_) bytes += cell.box.voxels() * t.accumulators * 4;
  }
  add(Stage::kD2h, slot_->copy_begin, slot_->copied, bytes, 1003);
}

InferOutput UnitState::Collect() {
  slot_->copied.Wait();
  AddTimes();
  if (restores_) return CollectFromSums();
  const Transfer& t = tables_->transfer;
  int32_t overflow = 0;
  std::memcpy(&overflow, host_result_.get(), sizeof overflow);
  if (overflow != 0) {
    throw Error(Fault::kModel, work_.item_name +
                                   ": a result does not fit f16, whose limit is 65504: set "
                                   "output.dtype to f32, or scale the result with output.post");
  }
  InferOutput out;
  out.interior = interior_;
  if (!interior_.empty()) {
    const int64_t bytes =
        interior_.voxels() * t.out_channels * static_cast<int64_t>(DTypeSize(t.out_dtype));
    out.interior_samples =
        SharedBytes({host_result_, host_result_.get() + kFlagBytes}, static_cast<size_t>(bytes));
  }
  const auto* from = reinterpret_cast<const float*>(host_seams_.get());
  for (const SeamCell& cell : seam_cells_) {
    const int64_t values = cell.box.voxels() * t.accumulators;
    out.seams.push_back({cell.box, std::vector<float>(from, from + values)});
    from += values;
  }
  return out;
}

// Where stored voxels were not finite, the host finishes: as pipeline/cpu_device.cc does.
InferOutput UnitState::CollectFromSums() {
  const Transfer& t = tables_->transfer;
  const Sums sums{reinterpret_cast<float*>(host_sums_.get()), cover_, t.accumulators};
  RestoreNonFinite(source_, t.passes, sums);
  InferOutput out;
  for (const SeamCell& cell : seam_cells_) {
    std::vector<float> values(cell.box.voxels() * t.accumulators);
    const ConstView all = DenseView(static_cast<const std::byte*>(host_sums_.get()), DType::kF32,
                                    t.accumulators, cover_.shape(), Layout::kPlanar);
    CopyView(all.Crop(Shift(cell.box, {-cover_.begin[0], -cover_.begin[1], -cover_.begin[2]})),
             DenseView(reinterpret_cast<std::byte*>(values.data()), DType::kF32, t.accumulators,
                       cell.box.shape(), Layout::kInterleaved));
    out.seams.push_back({cell.box, std::move(values)});
  }
  out.interior = interior_;
  if (!interior_.empty()) {
    out.interior_samples =
        SharedBytes(interior_.voxels() * t.out_channels * DTypeSize(t.out_dtype));
    tables_->finalizer.FromSums(sums, interior_,
                                DenseView(out.interior_samples.data(), t.out_dtype, t.out_channels,
                                          interior_.shape(), Layout::kInterleaved));
  }
  return out;
}

std::unique_ptr<UnitSlot> UnitState::GiveUp() {
  host_input_.reset();
  host_tables_.reset();
  return std::move(slot_);
}

}  // namespace tilery::cuda
