#include "tests/bench/bench_engine.h"

namespace tilery {

std::unique_ptr<Engine> BenchEngine(const EngineOptions& options, Profile& profile) {
  return Engine::Create(options, profile);
}

}  // namespace tilery
