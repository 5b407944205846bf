// Measures a model and the engine around it in this process: what `tilery bench` asks of a one-shot
// child.
#pragma once

#include <string>

#include "worker/backend.h"

namespace tilery {

// Request and answer: scheduler/bench_wire.h. Error(kUsage) for a request that is none; errors of
// loading and running the model are thrown.
std::string AnswerBench(const std::string& request, const Backend& backend);

}  // namespace tilery
