#include "worker/engine_options.h"

namespace tilery {

EngineOptions EngineOptionsOf(const WorkerContext& context, const std::string& device,
                              const Numerics& here) {
  EngineOptions options;
  options.model = context.model;
  options.device = device;
  options.lanes = context.lanes;
  options.dims = context.dims;
  options.channels_in = context.model_in;
  options.channels_out = context.model_out;
  options.tile = context.tile;
  options.scale = context.scale;
  options.numerics = here;
  options.numerics.batch = context.batch;
  options.numerics.precision = context.precision;
  options.numerics.layout = context.layout;
  options.numerics.package = context.package_hash;
  options.package = context.package;
  options.graph = context.graph;
  return options;
}

}  // namespace tilery
