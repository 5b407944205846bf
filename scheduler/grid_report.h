// What jobs of grids say: before they begin, and of what became of each grid.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cluster/message.h"
#include "scheduler/job.h"
#include "scheduler/plan.h"

namespace tilery {

// "3 files to compress, each grid within 1 % of the range of its sequence, in at most ..."
std::string GridWords(const Job& job, const Plan& plan);

// A table: what the published outputs of a plan say of their grids, those of one label together.
// Outputs that are not there, or can't be read, are left out.
std::vector<std::string> GridReportLines(const Plan& plan);

// A .tvdb file for `inspect`: {"kind": "grids", "format": "tvdb", "file", "metadata", "grids":
// [{"name", "type", "half", "class", "transform", "coded", "bound" (0: exact; null:
// there is none), "method" (exact, vq, context, adaptive), "least", "most", "max_error", "rms",
// "psnr", "bytes"}]}. Error(kInput).
Json CompressedGridsJson(const std::filesystem::path& path);

}  // namespace tilery
