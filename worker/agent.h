// A worker's part in the control protocol (cluster/message.h): joins, loads the model, leases
// units, reports what became of them, and ends when it is told to.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cluster/broadcast.h"
#include "cluster/worker_start.h"
#include "pipeline/engine.h"
#include "scheduler/wire.h"
#include "worker/engine_factory.h"

namespace tilery {

// How a worker ends; also the process's exit code.
enum class AgentEnd : int {
  kDone = 0,                  // it was told to end or to drain, and did
  kFailed = 1,                // it could not start, and another time it might
  kRefused = kRefusedExit,    // nor will it ever: the model can't be loaded or contradicts its
                              // contract, the device is another one
  kLost = 75,                 // the scheduler was not reached for one lease time
  kNoMemory = kNoMemoryExit,  // the device has not the memory, at the start or later
};

struct AgentOptions {
  EngineFactory engine;
  std::function<std::unique_ptr<Broadcaster>()> broadcaster;  // may be empty, or make none
  std::function<std::unique_ptr<CodecDevices>()> codec;       // likewise
  std::function<void()> ready;  // called once, when the model is loaded and units can be taken
  double give_up_s = 15;        // without a scheduler
  double drain_s = 7;           // on `drain`, for the units that are begun; then they are abandoned
};

// Runs until the end. If that takes kStopLimit seconds longer than it should, since a batch does,
// the process is ended where it stands. Messages for people go to standard error.
AgentEnd RunAgent(const WorkerStart& start, const AgentOptions& options = {});

inline constexpr double kStopLimit = 2.5;

}  // namespace tilery
