#include "worker/engine_factory.h"

#include <unistd.h>

#include <cstdio>

#include "io/error.h"
#include "io/file.h"
#include "pipeline/operator_libraries.h"
#include "worker/agent.h"

namespace tilery {

EngineOptions EngineOptionsOf(const WorkerContext& context, const std::string& device,
                              const Numerics& here) {
  EngineOptions options;
  options.model = context.model;
  options.compiled_only = context.compiled_only;
  options.device = device;
  options.lanes = context.lanes;
  options.dims = context.dims;
  options.channels_in = context.model_in;
  options.channels_out = context.model_out;
  options.tile = context.tile;
  options.scale = context.scale;
  options.numerics = here;
  options.numerics.batch = context.batch;
  options.numerics.slots = context.slots;
  options.numerics.precision = context.precision;
  options.numerics.layout = context.layout;
  options.numerics.package = context.package_hash;
  options.package = context.package;
  options.model_at = context.model_at;
  options.graph = context.graph;
  return options;
}

namespace {

void CheckUnchanged(const std::string& file, const std::string& hash) {
  if (HashFile(file) == hash) return;
  throw Error(Fault::kModel,
              Printable(file) + " changed since the job was planned: run again to plan anew");
}

std::unique_ptr<Engine> CreateEngine(const Backend& backend, const WorkerContext& context,
                                     const WorkerStart& start, Profile& profile) {
  const Numerics here = backend.Describe(start.device);
  if (here.device_kind != context.device_kind || here.torch != context.torch) {
    throw Error(Fault::kModel, "this device is '" + here.device_kind + "' with Torch " +
                                   here.torch + ", the job's numerics record was made for '" +
                                   context.device_kind + "' with Torch " + context.torch +
                                   ": use one kind of device, or another work folder");
  }
  // Beside a package the model itself runs what is not finite otherwise.
  if (!context.package.empty() && !context.compiled_only)
    CheckUnchanged(context.model, context.model_hash);
  // What was passed on has been looked at.
  if (context.model_at.empty()) CheckUnchanged(context.runs(), context.runs_hash());
  LoadLibraries(context.libraries, kRefusedExit);
  BackendOptions made;
  made.engine = EngineOptionsOf(context, start.device, here);
  made.device_memory = context.device_memory;
  made.lost = [worker = start.worker](Loss loss, const std::string& why) {
    if (loss == Loss::kMemory) {  // handed on: the reason stands alone
      std::fprintf(stderr, "%s\n", why.c_str());
      _exit(static_cast<int>(AgentEnd::kNoMemory));
    }
    std::fprintf(stderr, "tilery-worker %s: its device is lost: %s\n", worker.c_str(), why.c_str());
    _exit(static_cast<int>(AgentEnd::kFailed));
  };
  return backend.Create(made, profile);
}

}  // namespace

void LoadLibraries(const std::vector<OperatorLibrary>& libraries, int exit_code) {
  for (const OperatorLibrary& library : libraries) {
    CheckUnchanged(library.path, library.hash);
    LoadOperatorLibrary(library.path, exit_code);
  }
}

EngineFactory EnginesOf(const Backend& backend) {
  return [&backend](const WorkerContext& context, const WorkerStart& start, Profile& profile) {
    return CreateEngine(backend, context, start, profile);
  };
}

}  // namespace tilery
