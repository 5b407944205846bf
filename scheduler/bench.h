// `tilery bench`: how near the engine, and a whole run from file to file, come to the model alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/job.h"

namespace tilery {

struct BenchOptions {
  JobFlags flags;  // keys of a job, the model among them; its input and output are made here
  std::vector<std::string> steps{"forward", "engine", "files"};
  std::string layout = "auto", package;
  std::string dtype = "u8", format;  // of the synthetic items; format "": the first that fits
  std::vector<int64_t> size;         // of one item: a number, or one per axis; empty: by device
  std::optional<int> lanes, items;   // unset: by device
  double seconds = 8;                // of measuring, for each of forward and engine
  int repeats = 2;                   // measurements of each step; the best one counts
  bool json = false;
  std::string save, compare;  // files
  std::string tolerance = "5%";
};

// Exit code: 0; 3 if a step is slower than in `compare` allows. Error(kUsage) for mistakes, and if
// what `compare` holds was measured on or with something else.
int BenchCommand(const BenchOptions& options);

}  // namespace tilery
