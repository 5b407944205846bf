// What `tilery inspect` says of an OpenVDB file.
#pragma once

#include <filesystem>

#include "cluster/message.h"

namespace tilery {

// {kind: "grids", format, file, metadata, grids: [{name, type, half, class, transform, ...}]}.
// Reads the topology of all grids, not their values. Error(kInput).
Json GridsJson(const std::filesystem::path& file);

}  // namespace tilery
