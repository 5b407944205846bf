#include "worker/infer_unit.h"

#include <filesystem>

#include "io/brick.h"
#include "worker/bands.h"
#include "worker/fault_points.h"
#include "worker/publish.h"
#include "worker/stage_file.h"

namespace tilery {
namespace {

constexpr int64_t kBandBytes = 8 << 20;
constexpr int64_t kReadAheadLimit = 64 << 20;  // of whole files
constexpr size_t kReadAheadStep = 1 << 20;

// Brings a compressed file into the page cache, so that time spent waiting for a disk shows as
// reading and not as decoding.
void ReadAhead(const UnitEnv& env, UnitTask& task) {
  if (task.work().stamp.size > kReadAheadLimit) return;
  StageScope scope(env, task, Stage::kRead);
  const InputFile file(task.work().input);
  const std::shared_ptr<std::byte> step = env.buffers->Take(kReadAheadStep);
  for (int64_t at = 0; at < file.size();) {
    const size_t got = file.ReadSome(at, {step.get(), kReadAheadStep});
    if (got == 0) break;
    at += static_cast<int64_t>(got);
    scope.AddBytes(static_cast<int64_t>(got));
  }
}

bool IsCompressed(const Header& header) {
  return header.access == Access::kRows || header.format == "tiff";
}

// `view` covers the whole item.
void ReadInOrder(const UnitEnv& env, UnitTask& task, Reader& reader, const View& view) {
  const int64_t voxel_bytes = view.channels * static_cast<int64_t>(DTypeSize(view.dtype));
  for (const Box& band : CutBands(view.shape, voxel_bytes, kBandBytes)) {
    CheckWanted(env, task);
    const View part = view.Crop(band);
    StageScope scope(env, task, Stage::kDecode, part.bytes());
    reader.Read(band, part);
  }
  StageScope scope(env, task, Stage::kDecode);
  reader.CheckEnd();
}

Published WriteOutput(const UnitEnv& env, UnitTask& task, const Metadata& metadata,
                      const ConstView& samples) {
  const UnitWork& work = task.work();
  const ItemParams& params = env.params(work);
  OutputFile file(work.output, task.attempt);
  if (task.sparse) {
    WriteSparse(env, task, file,
                [&](const Box& box, const View& out) { CopyView(samples.Crop(box), out); });
    StageScope scope(env, task, Stage::kWrite, file.size());
    return file.Publish(Durability::kFsync, RenameGuard(env, task));
  }
  WriteSpec spec;
  spec.header = params.output;
  spec.header.shape = samples.shape;
  spec.metadata = ScaleMetadata(metadata, params.tiling.scale, samples.shape);
  spec.pool = env.encoders;
  {
    StageScope scope(env, task, Stage::kEncode, samples.bytes());
    const std::unique_ptr<Writer> writer = CreateWriter(file, spec);
    writer->Write(Box::Whole(samples.shape), samples);
    writer->Finish();
  }
  StageScope scope(env, task, Stage::kWrite, file.size());
  return file.Publish(Durability::kFsync, RenameGuard(env, task));
}

Published WriteBrick(const UnitEnv& env, UnitTask& task, const std::string& name,
                     const InferOutput& result) {
  const Transfer& transfer = env.params(task.work()).transfer;
  StageScope scope(env, task, Stage::kWrite);
  BrickWriter brick(std::filesystem::path(env.context->scratch) / name, task.attempt,
                    task.work().brick_key);
  if (!result.interior.empty()) {
    brick.Add({"interior", transfer.out_dtype, transfer.out_channels, result.interior},
              DenseView(result.interior_samples.data(), transfer.out_dtype, transfer.out_channels,
                        result.interior.shape(), Layout::kInterleaved));
  }
  for (size_t i = 0; i < result.seams.size(); ++i) {
    const SeamPartial& seam = result.seams[i];
    brick.Add({"seam." + std::to_string(i), DType::kF32, transfer.accumulators, seam.box},
              DenseView(reinterpret_cast<const std::byte*>(seam.sums.get()), DType::kF32,
                        transfer.accumulators, seam.box.shape(), Layout::kInterleaved));
  }
  const Published published = brick.Finish();
  scope.AddBytes(published.size);
  return published;
}

}  // namespace

InferInput ReadInput(const UnitEnv& env, UnitTask& task) {
  FaultPoint(FaultPlace::kRead);
  CheckWanted(env, task);
  const UnitWork& work = task.work();
  if (!work.grid.empty()) OpenSparse(env, task);
  const Header& header = work.header;
  // Rows come in order only, so the whole item is read; a plan lets only small items be read so.
  const bool staged = !work.stage_file.empty();
  const bool in_order = !staged && header.access == Access::kRows;
  const Box box = in_order ? Box::Whole(header.shape) : task.geometry->unit_input(work.block);

  const int64_t voxel_bytes = header.channels * static_cast<int64_t>(DTypeSize(header.dtype));
  const std::shared_ptr<std::byte> buffer =
      env.inputs->Take(static_cast<size_t>(box.voxels() * voxel_bytes));
  const View view =
      DenseView(buffer.get(), header.dtype, header.channels, box.shape(), Layout::kInterleaved);

  InferInput input;
  if (task.sparse) {
    StageScope scope(env, task, Stage::kDecode, view.bytes());
    task.sparse->Read(box, view);
  } else if (staged) {
    StageScope scope(env, task, Stage::kRead, view.bytes());
    // Units are numbered stage, infer 0..n-1 (scheduler/plan.h).
    const int64_t stage_unit = task.lease.unit - 1 - work.block;
    try {
      StageFileReader(std::filesystem::path(env.context->scratch) / work.stage_file, header,
                      work.item_key)
          .Read(box, view);
    } catch (const Error& e) {
      throw LostFile(work.item_key, stage_unit, e.what());
    }
  } else {
    std::unique_ptr<Reader> reader;
    {
      StageScope scope(env, task, Stage::kRead);
      reader = OpenUnchanged(env, task);
    }
    if (in_order) {
      ReadAhead(env, task);
      ReadInOrder(env, task, *reader, view);
    } else {
      StageScope scope(env, task, IsCompressed(header) ? Stage::kDecode : Stage::kRead,
                       view.bytes());
      reader->Read(box, view);
      if (box == Box::Whole(header.shape)) reader->CheckEnd();
    }
    if (work.whole) input.metadata = reader->metadata();
  }

  input.work.unit = task.lease.unit;
  input.work.item = work.item;
  input.work.item_name = Printable(work.input);
  input.work.geometry = task.geometry;
  input.work.block = work.block;
  input.work.transfer = env.transfer(work);
  input.work.input = view;
  input.work.input_box = box;
  input.work.keep = buffer;
  return input;
}

Done WriteResult(const UnitEnv& env, UnitTask& task, const Metadata& metadata,
                 const InferOutput& result) {
  FaultPoint(FaultPlace::kWrite);
  CheckWanted(env, task);
  const UnitWork& work = task.work();
  Done done;
  done.tiles = result.tiles;
  done.repeated = result.repeated;
  done.nonfinite_in = result.nonfinite_in;
  done.careful = result.careful;
  if (work.whole) {
    const Index& shape = task.geometry->grid().output_shape;
    if (result.interior != Box::Whole(shape)) {
      throw Error(Fault::kInternal, "the only unit of " + Printable(work.input) + " made " +
                                        ToString(result.interior) + " of an output of " +
                                        ShapeToString(shape, 3));
    }
    const Transfer& transfer = env.params(work).transfer;
    done.file = work.output;
    done.published = WriteOutput(env, task, metadata,
                                 DenseView(result.interior_samples.data(), transfer.out_dtype,
                                           transfer.out_channels, shape, Layout::kInterleaved));
  } else {
    done.file = work.brick_key + "." + std::to_string(env.epoch) + "." +
                std::to_string(task.lease.attempt) + ".brick";
    done.published = WriteBrick(env, task, done.file, result);
  }
  FaultPoint(FaultPlace::kPublish);
  return done;
}

}  // namespace tilery
