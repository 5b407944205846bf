#include "worker/grid_unit.h"

#include "io/error.h"
#include "io/tvdb_file.h"
#include "io/vdb_file.h"
#include "pipeline/codec/grid_file.h"
#include "scheduler/grid_ranges.h"
#include "worker/fault_points.h"
#include "worker/publish.h"

namespace tilery {

Done RunGrids(const UnitEnv& env, UnitTask& task) {
  const UnitWork& work = task.work();
  const GridTask& grids = env.params(work).grids;
  CheckWanted(env, task);
  Done done;
  done.tiles = task.tiles;
  done.file = work.output;
  OutputFile out(work.output, task.attempt);
  {
    StageScope scope(env, task, Stage::kCompute);
    const GridWork how{env.encoders, env.codec, [&](int64_t bytes) {
                         FaultPoint(FaultPlace::kGrids);
                         CheckWanted(env, task);
                         scope.AddBytes(bytes);
                         ++env.bands;
                       }};
    const auto open_vdb = [&] { return OpenGridsUnchanged<VdbFile>(work.input, work.stamp); };
    switch (grids.kind) {
      case GridTask::Kind::kMeasure: {
        const std::string ranges = RangesToBytes(MeasureGrids(open_vdb(), how));
        out.Write(std::as_bytes(std::span(ranges)));
        break;
      }
      case GridTask::Kind::kCompress:
        CompressGrids(open_vdb(), out, grids.bounds, how);
        break;
      case GridTask::Kind::kDecompress:
        DecompressGrids(OpenGridsUnchanged<TvdbFile>(work.input, work.stamp), out, how);
        break;
      case GridTask::Kind::kNone:
        throw Error(Fault::kInternal, "a unit of grids without a task");
    }
  }
  {
    StageScope scope(env, task, Stage::kWrite, out.size());
    FaultPoint(FaultPlace::kWrite);
    done.published = out.Publish(Durability::kFsync, RenameGuard(env, task));
  }
  FaultPoint(FaultPlace::kPublish);
  return done;
}

}  // namespace tilery
