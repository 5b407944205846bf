// The file in which the ranges of a file's grids travel from the job that measures them to the one
// that compresses: CBOR, [[label, least, most], ...].
#pragma once

#include <string>

#include "pipeline/codec/grid_bounds.h"

namespace tilery {

std::string RangesToBytes(const GridRanges& ranges);
GridRanges RangesFromBytes(const std::string& bytes);  // Error(kInput) without a path

}  // namespace tilery
