// The second half of a unit's way: blending, finishing, and the result on the host.
#include <cuda_runtime_api.h>

#include <cstring>
#include <utility>

#include "io/error.h"
#include "pipeline/cuda/cuda_unit.h"
#include "pipeline/profile.h"
#include "pipeline/profile_switch.h"

namespace tilery::cuda {

// ---- Who blends ----

void UnitState::Blend(int64_t run, int64_t count, const CudaOutput* output, int64_t slot) {
  const std::lock_guard lock(*context_.blending);
  if (!begun_) {
    WaitLoaded();
    slot_->loaded.MakeWait(context_.finish);
    begun_ = true;
  }
  output->ReadBegins(context_.finish);
  if (tables_->tiled() && !restores_) {
    BlendTogether(run, count, *output, slot);
  } else {
    ClearSums();
    for (int64_t k = 0; k < count; ++k) BlendOne(run + k, *output, slot + k);
  }
  output->ReadOn(context_.finish);
}

void UnitState::BlendTogether(int64_t run, int64_t count, const CudaOutput& output, int64_t slot) {
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
  task.sums = reinterpret_cast<float*>(slot_->sums);
  task.keep = !tables_->fused();
  if (!task.keep) {
    task.finalize = tables_->Finish();
    task.finalize.out = slot_->result + kFlagBytes;
    task.finalize.overflow = reinterpret_cast<int32_t*>(slot_->result);
  }
  const TileRun tiles{run, static_cast<int32_t>(count), static_cast<int32_t>(slot), 1};
  task.region = CoverOf(covers, tiles);
  BlendTiles(task, tiles, context_.finish);
}

void UnitState::ClearSums() {
  if (cleared_) return;
  cleared_ = true;
  Check(cudaMemsetAsync(slot_->sums, 0, static_cast<size_t>(sums_bytes()), context_.finish),
        "cudaMemsetAsync of sums", sums_bytes());
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
  task.sums = reinterpret_cast<float*>(slot_->sums);
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
  DirectTile(input_.source, tile, pass, scratch_, direct_.data());
  const auto bytes = static_cast<int64_t>(direct_.size() * sizeof(float));
  std::byte* const to = slot_->direct.Reserve(bytes);
  Check(cudaMemcpyAsync(to, direct_.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                        context_.finish),
        "cudaMemcpyAsync of a tile without model", bytes);
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
  const auto* const sums = reinterpret_cast<const float*>(slot_->sums);
  if (!restores_ && !tables_->fused() && !interior_.empty()) {
    FinalizeTask task = tables_->Finish();
    task.sums = sums;
    for (int a = 0; a < 3; ++a) {
      task.sums_begin[a] = cover_.begin[a];
      task.sums_shape[a] = cover_.extent(a);
      task.begin[a] = interior_.begin[a];
      task.shape[a] = interior_.extent(a);
    }
    task.out = slot_->result + kFlagBytes;
    task.overflow = reinterpret_cast<int32_t*>(slot_->result);
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
               reinterpret_cast<float*>(slot_->seams) + seam_values, context_.finish);
    seam_values += cell.box.voxels() * t.accumulators;
  }
  slot_->finished.Record(context_.finish);
  slot_->finished.MakeWait(context_.copy_out);
  slot_->copy_begin.Record(context_.copy_out);
  const auto copy = [&](std::shared_ptr<std::byte>& host, const std::byte* from, int64_t bytes) {
    host = context_.pinned->Take(bytes);
    Check(cudaMemcpyAsync(host.get(), from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                          context_.copy_out),
          "cudaMemcpyAsync of a result", bytes);
  };
  if (restores_) {
    copy(host_sums_, slot_->sums, sums_bytes());
  } else {
    copy(host_result_, slot_->result, kFlagBytes + result_bytes());
    if (seam_bytes() > 0) copy(host_seams_, slot_->seams, seam_bytes());
  }
  slot_->copied.Record(context_.copy_out);
}

// ---- The finisher ----

void UnitState::AddTimes() const {
  if (!ProfilesRecord()) return;
  const auto add = [&](Stage stage, const OwnEvent& begin, const OwnEvent& end, int64_t bytes,
                       uint32_t row) {
    context_.profile->Add(stage, work_.unit, bytes, context_.clock->When(begin),
                          context_.clock->When(end), row);
  };
  add(Stage::kH2d, slot_->load_begin, slot_->loaded, work_.input.bytes(), Profile::kCopyInRow);
  const int64_t bytes = restores_ ? sums_bytes() : result_bytes() + seam_bytes();
  add(Stage::kD2h, slot_->copy_begin, slot_->copied, bytes, Profile::kCopyOutRow);
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
    out.interior_samples = SharedBytes({host_result_, host_result_.get() + kFlagBytes},
                                       static_cast<size_t>(result_bytes()));
  }
  // All of them lie in one buffer, which is given back with the last.
  auto* from = reinterpret_cast<float*>(host_seams_.get());
  for (const SeamCell& cell : seam_cells_) {
    out.seams.emplace_back(cell.box, t.accumulators, std::shared_ptr<float[]>(host_seams_, from));
    from += out.seams.back().count;
  }
  return out;
}

// Where stored voxels were not finite, the host finishes: as pipeline/cpu_device.cc does.
InferOutput UnitState::CollectFromSums() {
  const Transfer& t = tables_->transfer;
  const Sums sums{reinterpret_cast<float*>(host_sums_.get()), cover_, t.accumulators};
  RestoreNonFinite(input_.source, t.passes, sums);
  InferOutput out;
  for (const SeamCell& cell : seam_cells_) {
    SeamPartial& seam = out.seams.emplace_back(cell.box, t.accumulators);
    const ConstView all = DenseView(static_cast<const std::byte*>(host_sums_.get()), DType::kF32,
                                    t.accumulators, cover_.shape(), Layout::kPlanar);
    CopyView(all.Crop(Shift(cell.box, {-cover_.begin[0], -cover_.begin[1], -cover_.begin[2]})),
             DenseView(reinterpret_cast<std::byte*>(seam.sums.get()), DType::kF32, t.accumulators,
                       cell.box.shape(), Layout::kInterleaved));
  }
  out.interior = interior_;
  if (!interior_.empty()) {
    out.interior_samples = SharedBytes(static_cast<size_t>(result_bytes()));
    tables_->finalizer.FromSums(sums, interior_,
                                DenseView(out.interior_samples.data(), t.out_dtype, t.out_channels,
                                          interior_.shape(), Layout::kInterleaved));
  }
  return out;
}

}  // namespace tilery::cuda
