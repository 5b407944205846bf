#include "worker/assemble_unit.h"

#include <array>
#include <future>
#include <optional>

#include "io/ordered_work.h"
#include "pipeline/engine.h"
#include "worker/bands.h"
#include "worker/brick_set.h"
#include "worker/fault_points.h"
#include "worker/publish.h"

namespace tilery {
namespace {

constexpr int64_t kSumBytes = 2 << 20;

class Assembler {
 public:
  Assembler(const UnitEnv& env, UnitTask& task)
      : env_(env), task_(task), transfer_(env.params(task.work()).transfer), bricks_(env, task) {}

  int64_t voxel_bytes() const {
    return transfer_.out_channels * static_cast<int64_t>(DTypeSize(transfer_.out_dtype));
  }
  View ViewOf(std::byte* data, const Index& shape) const {
    return DenseView(data, transfer_.out_dtype, transfer_.out_channels, shape,
                     Layout::kInterleaved);
  }

  // Fills the band of the output, by the threads that encode, once its bricks are there. Runs
  // beside the encoding, so the task's stage is left alone.
  void Fill(const Box& band, const View& out) {
    const std::vector<SeamCell> cells = task_.geometry->cells(band);  // outlives the pieces
    bricks_.Await(cells);
    OrderedWork<void> pieces(env_.encoders, PiecesAhead(env_.encoders, 2 * kSumBytes));
    const auto add = [&](auto piece) {
      while (pieces.full()) pieces.Take();
      pieces.Add([this, piece] {
        CheckWanted(env_, task_);
        piece();
      });
    };
    for (const SeamCell& cell : cells) {
      if (cell.units.empty()) continue;  // of a sparse item: nothing that counts
      const View part = out.Crop(Shift(cell.box, Negative(band.begin)));
      if (cell.interior) {
        add([this, &cell, part] { FillInterior(cell, part); });
        continue;
      }
      // In pieces, so that the sums stay in the caches and their memory is bounded. A brick is read
      // by whole rows anyway.
      const int64_t voxel_bytes = transfer_.accumulators * static_cast<int64_t>(sizeof(float));
      for (const Box& piece : CutBands(cell.box.shape(), voxel_bytes, kSumBytes)) {
        add([this, &cell, piece, part] { FillSeam(cell, piece, part.Crop(piece)); });
      }
    }
    while (!pieces.empty()) pieces.Take();
  }
  void GiveUp() { bricks_.GiveUp(); }  // ends a Fill that waits

 private:
  static Index Negative(const Index& by) { return {-by[0], -by[1], -by[2]}; }

  void FillInterior(const SeamCell& cell, const View& out) {
    Profile::Scope scope(*env_.profile, Stage::kRead, task_.lease.unit, out.bytes());
    bricks_.ReadInterior(cell.units.front(), cell.box, out);
  }

  // `piece`: of the cell, counted from its corner.
  void FillSeam(const SeamCell& cell, const Box& piece, const View& out) {
    const auto count = static_cast<size_t>(piece.voxels() * transfer_.accumulators);
    std::array<std::shared_ptr<std::byte>, 2> buffers;
    for (auto& buffer : buffers) buffer = env_.buffers->Take(count * sizeof(float));
    auto* const sums = reinterpret_cast<float*>(buffers[0].get());
    const auto* const more = reinterpret_cast<const float*>(buffers[1].get());
    const Box region = Shift(piece, cell.box.begin);
    for (size_t i = 0; i < cell.units.size(); ++i) {
      const View into = DenseView(buffers[i == 0 ? 0 : 1].get(), DType::kF32,
                                  transfer_.accumulators, piece.shape(), Layout::kInterleaved);
      {
        Profile::Scope scope(*env_.profile, Stage::kRead, task_.lease.unit, into.bytes());
        bricks_.ReadSeam(cell.units[i], region, into);
      }
      if (i == 0) continue;
      Profile::Scope scope(*env_.profile, Stage::kBlend, task_.lease.unit, into.bytes());
      for (size_t k = 0; k < count; ++k) sums[k] += more[k];
    }
    Profile::Scope scope(*env_.profile, Stage::kBlend, task_.lease.unit);
    FinalizeSums(sums, piece.shape(), transfer_, out);
  }

  const UnitEnv& env_;
  UnitTask& task_;
  const Transfer& transfer_;
  BrickSet bricks_;
};

WriteSpec SpecOf(const UnitEnv& env, UnitTask& task, const Index& shape) {
  const ItemParams& params = env.params(task.work());
  StageScope scope(env, task, Stage::kRead);
  const std::unique_ptr<Reader> reader = OpenUnchanged(env, task);
  WriteSpec spec;
  spec.header = params.output;
  spec.header.shape = shape;
  spec.metadata = ScaleMetadata(reader->metadata(), params.tiling.scale, shape);
  spec.pool = env.encoders;
  return spec;
}

Done Publish(const UnitEnv& env, UnitTask& task, OutputFile& file) {
  StageScope scope(env, task, Stage::kWrite, file.size());
  Done done;
  done.file = task.work().output;
  done.published = file.Publish(Durability::kFsync, RenameGuard(env, task));
  FaultPoint(FaultPlace::kPublish);
  return done;
}

Done AssembleSparse(const UnitEnv& env, UnitTask& task) {
  OpenSparse(env, task);
  Assembler assembler(env, task);
  OutputFile file(task.work().output, task.attempt);
  WriteSparse(env, task, file, [&](const Box& box, const View& out) { assembler.Fill(box, out); });
  return Publish(env, task, file);
}

}  // namespace

Done RunAssemble(const UnitEnv& env, UnitTask& task) {
  if (!task.work().grid.empty()) return AssembleSparse(env, task);
  const Index& shape = task.geometry->grid().output_shape;
  Assembler assembler(env, task);
  const WriteSpec spec = SpecOf(env, task, shape);
  OutputFile file(task.work().output, task.attempt);
  const std::unique_ptr<Writer> writer = CreateWriter(file, spec);

  const std::vector<Box> bands =
      CutBands(shape, assembler.voxel_bytes(), kAssembleBand, writer->RowGranularity());
  std::array<std::shared_ptr<std::byte>, 2> buffers;
  for (auto& buffer : buffers) {  // no band is larger than the first
    buffer = env.buffers->Take(static_cast<size_t>(bands[0].voxels() * assembler.voxel_bytes()));
  }
  const auto view_of = [&](size_t i) {
    return assembler.ViewOf(buffers[i % 2].get(), bands[i].shape());
  };
  const auto start_filling = [&](size_t i) {
    return std::async(std::launch::async, [&, i] { assembler.Fill(bands[i], view_of(i)); });
  };

  std::future<void> filled = start_filling(0);
  // Else what fails here would wait at its end for bricks of the next band.
  struct AtEnd {
    Assembler& assembler;
    ~AtEnd() { assembler.GiveUp(); }
  } at_end{assembler};
  for (size_t i = 0; i < bands.size(); ++i) {
    filled.get();
    if (i + 1 < bands.size()) filled = start_filling(i + 1);
    FaultPoint(FaultPlace::kAssemble);
    CheckWanted(env, task);
    StageScope scope(env, task, Stage::kEncode, view_of(i).bytes());
    writer->Write(bands[i], view_of(i));
    ++env.bands;
  }
  {
    StageScope scope(env, task, Stage::kEncode);
    writer->Finish();
  }
  return Publish(env, task, file);
}

}  // namespace tilery
