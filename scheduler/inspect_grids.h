// What `tilery inspect` says of an OpenVDB file.
#pragma once

#include <filesystem>

#include "cluster/message.h"
#include "io/vdb_file.h"

namespace tilery {

// {kind: "grids", format, file, metadata, grids: [{name, type, half, class, transform, ...}]}.
// Reads the topology of all grids, not their values. Error(kInput).
Json GridsJson(const std::filesystem::path& file);

// Of these, what stands in front of a grid's tree: {name, type, half, class, transform}.
Json GridHeadJson(const VdbGrid& grid);

}  // namespace tilery
