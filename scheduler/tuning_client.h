// Has a GPU's worker find the fastest way to run a model, with the user's cache of answers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "scheduler/devices.h"
#include "scheduler/probe_client.h"

namespace tilery {

struct TuningRequest {
  // Key of ModelFile. compiled_only: the model itself can't be run, only `packages`.
  std::string model, model_hash;
  bool compiled_only = false;
  std::vector<std::string> libraries;
  std::string device_kind;  // of the seat: cards of one kind share their answers
  struct Package {
    std::filesystem::path path;
    std::string hash;
  };
  std::vector<Package> packages;  // compiled from the model, in the precision
  int dims = 2;
  int32_t channels_in = 3, channels_out = 3;
  Index tile{1, 1, 1};  // input voxels
  Scale scale;
  std::string precision = "fp32";
  int64_t batch = 0;    // 0: to be found
  std::string layout;   // empty: to be found
  int64_t memory = 0;   // bytes of the device that the worker may take; 0: what is free
  int64_t reserve = 0;  // of these, for units beside the model; 0: a twentieth, at least 256 MiB
  // The infer unit on whose first tiles the error against fp32 is measured, and its parameters
  // (forms of scheduler/wire.h); null: values like a picture's.
  Json work, params;
  // Whether an answer that another job's unit was used for will do.
  bool any_input = true;
};

// As pipeline/tuning.h says.
struct Tuning {
  int64_t batch = 1;
  std::string layout = "nchw";
  bool graph = true;
  int package = -1;           // index into the request's; -1: the model as it is
  std::string how;            // "CUDA graph", "eager: <why>"
  std::string slots = "all";  // of a batch, that are used (pipeline/batch_slots.h)
  double tiles_per_s = 0;
  int64_t bytes = 0;  // of device memory
  struct {
    int64_t tiles = 0, nonfinite = 0;
    double max = 0, mean = 0, lowest = 0, highest = 0;
    bool real_input = false;
    std::string unknown;  // why there is none
  } error;
  std::vector<std::string> notes;
};

// Takes some ten seconds where the answer is not known yet. Error(kUsage) if the model can't be run
// on this device, with its own words; Error(kTransient) if memory is short for now; errors as
// AskWorker.
Tuning AskTuning(const TuningRequest& request, const DeviceSeat& seat,
                 std::vector<std::string>& warnings);

}  // namespace tilery
