#include "worker/stage_unit.h"

#include <filesystem>

#include "worker/bands.h"
#include "worker/fault_points.h"
#include "worker/publish.h"
#include "worker/stage_file.h"

namespace tilery {
namespace {

constexpr int64_t kBandBytes = 16 << 20;

}  // namespace

Done RunStage(const UnitEnv& env, UnitTask& task) {
  const UnitWork& work = task.work();
  const Header& header = work.header;
  std::unique_ptr<Reader> reader;
  {
    StageScope scope(env, task, Stage::kRead);
    reader = OpenUnchanged(env, task);
  }
  const std::filesystem::path target = std::filesystem::path(env.context->scratch) / work.stage_file;
  StageFileWriter writer(target, task.attempt, header, work.item_key);

  const int64_t voxel_bytes = header.channels * static_cast<int64_t>(DTypeSize(header.dtype));
  const std::vector<Box> bands = CutBands(header.shape, voxel_bytes, kBandBytes);
  const std::shared_ptr<std::byte> buffer =
      env.buffers->Take(static_cast<size_t>(bands.front().voxels() * voxel_bytes));
  for (const Box& band : bands) {
    FaultPoint(FaultPlace::kStage);
    CheckWanted(env, task);
    const View view = DenseView(buffer.get(), header.dtype, header.channels, band.shape(),
                                Layout::kInterleaved);
    {
      StageScope scope(env, task, Stage::kDecode, view.bytes());
      reader->Read(band, view);
    }
    StageScope scope(env, task, Stage::kWrite, view.bytes());
    writer.Write(view);
    ++env.bands;
  }
  {
    StageScope scope(env, task, Stage::kDecode);
    reader->CheckEnd();
  }
  StageScope scope(env, task, Stage::kWrite);
  Done done;
  done.published = writer.Publish(RenameGuard(env, task));
  done.file = work.stage_file;
  return done;
}

}  // namespace tilery
