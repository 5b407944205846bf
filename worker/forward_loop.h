// The model alone, run again and again on inputs that stay in place: the ceiling that an engine is
// measured against. It runs in the form in which the engine of the same backend runs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "pipeline/engine.h"

namespace tilery {

// One stream of batches. Used by one thread, the one that made it.
class ForwardLoop {
 public:
  virtual ~ForwardLoop() = default;
  // Asks for one batch of trial values (pipeline/model.h). Waits only where as many batches are
  // under way as an engine would have. Errors as Lane::Forward.
  virtual void Run() = 0;
  // Waits for all that was asked for. The seconds that each batch since the last call has taken, in
  // their order: of the device, where that is no host.
  virtual std::vector<double> Sync() = 0;
  // "TorchScript", "CUDA graph", "eager: <why>".
  virtual std::string how() const = 0;
};

class ForwardModel {
 public:
  virtual ~ForwardModel() = default;
  // By the thread that will use it; several threads may ask at once. Errors as Engine::Create.
  virtual std::unique_ptr<ForwardLoop> MakeLoop() = 0;
};

// Both load the model for the one shape that `options` give, as the engine's lanes do.
std::unique_ptr<ForwardModel> MakeCpuForward(const EngineOptions& options);
std::unique_ptr<ForwardModel> MakeCudaForward(const EngineOptions& options, int ordinal);

}  // namespace tilery
