#include "pipeline/work_check.h"

#include <string>

#include "io/error.h"
#include "pipeline/batch_slots.h"

namespace tilery {
namespace {

void CheckPass(const Pass& pass, const InferWork& work, const EngineOptions& options,
               const auto& require) {
  const Transfer& t = *work.transfer;
  for (int32_t c : pass.in) {
    require(c >= 0 && c < work.input.channels, "a pass reads channel " + std::to_string(c) +
                                                   " of " + std::to_string(work.input.channels));
  }
  require(pass.out_begin >= 0 && pass.out_count >= 1 &&
              pass.out_begin + pass.out_count <= t.accumulators,
          "a pass writes beyond the accumulators");
  const auto in = static_cast<int32_t>(pass.in.size()), out = static_cast<int32_t>(pass.out.size());
  if (pass.op != Pass::Op::kModel) {
    require(in == pass.out_count, "a pass without a model must keep its channels");
    if (pass.op == Pass::Op::kCopy) {
      require(options.scale == Scale{}, "a pass that copies needs scale 1");
    }
    return;
  }
  require(in == options.channels_in, "a pass feeds " + std::to_string(in) + " of " +
                                         std::to_string(options.channels_in) + " model channels");
  if (pass.reduce == Pass::Reduce::kMean) {
    require(pass.out_count == 1, "the mean of the outputs is one channel");
    return;
  }
  require(out == pass.out_count, "a pass names " + std::to_string(out) + " outputs for " +
                                     std::to_string(pass.out_count) + " accumulators");
  for (int32_t c : pass.out) {
    require(c >= 0 && c < options.channels_out, "a pass takes output channel " + std::to_string(c));
  }
}

}  // namespace

void CheckOptions(const EngineOptions& o) {
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw Error(Fault::kUsage, "engine: " + what);
  };
  require(o.lanes >= 1, "lanes is " + std::to_string(o.lanes) + ", at least 1 is needed");
  require(o.numerics.batch >= 1,
          "batch is " + std::to_string(o.numerics.batch) + ", at least 1 is needed");
  static_cast<void>(BatchSlots(o.numerics.slots, o.numerics.batch));
  require(o.dims == 2 || o.dims == 3, "dims is " + std::to_string(o.dims) + ", it may be 2 or 3");
  require(o.channels_in >= 1 && o.channels_out >= 1, "a model has at least one channel");
  for (int a = 0; a < 3; ++a) {
    require(o.tile[a] >= 1 && o.tile[a] % o.scale[a].den == 0,
            "the tile's " + std::to_string(o.tile[a]) + " voxels are no multiple of " +
                std::to_string(o.scale[a].den));
  }
  require(o.dims == 3 || (o.tile[0] == 1 && o.scale[0] == Rational{}),
          "a 2-D model needs a tile of 1 voxel and scale 1 along z");
}

void CheckWork(const InferWork& work, const EngineOptions& options) {
  const auto require = [&](bool holds, const std::string& what) {
    if (!holds) throw Error(Fault::kInternal, work.item_name + ": " + what);
  };
  const Transfer& t = *work.transfer;
  const TileGrid& grid = work.geometry->grid();
  require(work.block >= 0 && work.block < work.geometry->units(),
          "there is no block " + std::to_string(work.block));
  require(grid.tiling.tile == options.tile && grid.tiling.scale == options.scale,
          "its tile or scale is not the engine's");
  require(work.input.dtype == t.in_dtype,
          "its samples are no " + std::string(DTypeName(t.in_dtype)));
  require(work.input.shape == work.input_box.shape() &&
              work.input_box.contains(work.geometry->unit_input(work.block)),
          "its samples of " + ToString(work.input_box) + " do not cover " +
              ToString(work.geometry->unit_input(work.block)));
  require(t.model_in == options.channels_in && t.model_out == options.channels_out,
          "its channels are not the model's");
  const auto fits = [&](const std::vector<double>& v) {
    return v.empty() || static_cast<int32_t>(v.size()) == t.model_in;
  };
  require(fits(t.mean) && fits(t.std), "mean and std need a value per model channel");
  require(!t.passes.empty(), "it has no pass");
  for (const Pass& pass : t.passes) CheckPass(pass, work, options, require);
}

}  // namespace tilery
