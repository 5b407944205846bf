// The engine that a bench is linked for: bench_on_cpu.cc or bench_on_gpu.cc.
#pragma once

#include <memory>

#include "pipeline/engine.h"

namespace tilery {

// Errors as MakeEngine. On a GPU: the first that CUDA shows.
std::unique_ptr<Engine> BenchEngine(const EngineOptions& options, Profile& profile);

}  // namespace tilery
