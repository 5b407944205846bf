// The engine of a job on one device, from what the scheduler says of both.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cluster/worker_start.h"
#include "pipeline/engine.h"
#include "scheduler/wire.h"
#include "worker/backend.h"

namespace tilery {

// `here`: what the backend says of the device.
EngineOptions EngineOptionsOf(const WorkerContext& context, const std::string& device,
                              const Numerics& here);

// Loads them into this process, before any model. Error(kModel) if one can't be loaded, or is not
// the one that was planned with; `exit_code` as in LoadOperatorLibrary.
void LoadLibraries(const std::vector<OperatorLibrary>& libraries, int exit_code);

// Makes the engine for the job; throws what Engine::Create throws, or Error(kModel) if this device
// is not the one that the numerics record was made for, or the model file is not the one that was
// planned with.
using EngineFactory =
    std::function<std::unique_ptr<Engine>(const WorkerContext&, const WorkerStart&, Profile&)>;
// `backend` outlives what is returned. When its device is lost, the process ends at once, with the
// reason as its last words and the code of AgentEnd: what it had under way is given to others.
EngineFactory EnginesOf(const Backend& backend);

}  // namespace tilery
