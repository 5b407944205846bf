#include "tests/pipeline/engine_support.h"

namespace tilery::testing {

std::unique_ptr<Engine> CreateEngine(const EngineOptions& options, Profile& profile) {
  return Engine::Create(options, profile);
}

}  // namespace tilery::testing
