// The model of an engine on the CPU, in whatever form the engine is given it.
#pragma once

#include <memory>
#include <string>

#include "pipeline/engine.h"
#include "pipeline/model.h"

namespace tilery {

// The package if there is one: AOTInductor's, single-threaded, for options.lanes threads at once.
// Else the TorchScript file. Error(kModel) naming the file and the reason, with both values if a
// package was compiled for something else than the options say.
std::unique_ptr<Model> LoadCpuModel(const EngineOptions& options);

// What packages for the CPU are compiled for: its vector extensions and its name, as in
// Numerics::device_kind after "cpu/".
std::string CpuKind();

}  // namespace tilery
