// What a job's context means for an engine on one device.
#pragma once

#include <string>

#include "pipeline/engine.h"
#include "scheduler/wire.h"

namespace tilery {

// `here`: what the backend says of the device.
EngineOptions EngineOptionsOf(const WorkerContext& context, const std::string& device,
                              const Numerics& here);

}  // namespace tilery
