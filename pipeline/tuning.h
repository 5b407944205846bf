// What makes a model fast on a device, as question and answer. Values only, for all devices; how a
// GPU finds the answer is in pipeline/cuda/tuning.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/box.h"

namespace tilery {

struct TuneRequest {
  std::filesystem::path model;                  // TorchScript file
  bool compiled_only = false;                   // there is no such model, only `packages`
  std::vector<std::filesystem::path> packages;  // compiled from it, each for one batch, precision
                                                // and layout, which it says itself
  int dims = 2;
  int32_t channels_in = 3, channels_out = 3;
  Index tile{1, 1, 1};  // input voxels
  Scale scale;
  // The one that is wanted first, then those to fall back to where it does not do.
  std::vector<std::string> precisions{"fp32"};
  // Largest absolute difference that outputs may have from those in fp32, in the model's own units.
  std::optional<double> max_error;
  int64_t batch = 0;    // 0: to be found
  std::string layout;   // empty: to be found
  int64_t memory = 0;   // bytes of the device that all may take together; 0: what is free
  int64_t reserve = 0;  // of these, kept for what lies beside the model; 0: a twentieth, at least
                        // 256 MiB
  int lanes = 1;        // models side by side
  int ring = 3;         // inputs and outputs of each
  double seconds = 10;  // for everything but packages
  // Real input of whole tiles, f32 [n, channels_in, z, y, x], to measure errors on; empty: values
  // like a picture's.
  std::vector<float> tiles;
};

// One way to run the model. Precision, batch, layout and package decide bytes, `graph` does not.
struct ModelForm {
  std::string precision = "fp32";
  int64_t batch = 1;
  std::string layout = "nchw";
  int package = -1;   // index into TuneRequest::packages; -1: the model as it is
  bool graph = true;  // replayed as a CUDA graph where it can be captured
  bool operator==(const ModelForm&) const = default;
};

struct Trial {
  enum class End { kRan, kNoMemory, kFailed };
  ModelForm form;
  End end = End::kRan;
  std::string slots = "all";  // of a batch, that give equal bytes (pipeline/batch_slots.h)
  double tiles_per_s = 0;     // of one lane, in these slots
  int64_t bytes = 0;          // of the device's memory that it held at most, all lanes together
  double seconds = 0;         // that the trial took
  std::string how;            // "CUDA graph", "eager: <why>"; else what went wrong
};
const char* TrialEndName(Trial::End end);  // "ran", "no memory", "failed"

// Of a form's outputs, against the model as it is in fp32 (IEEE), one tile at a time, nchw.
struct OutputError {
  int64_t tiles = 0;               // compared; 0: none, see `unknown`
  double max = 0, mean = 0;        // absolute difference, over what is finite in both
  double lowest = 0, highest = 0;  // of the fp32 outputs
  int64_t nonfinite = 0;           // outputs that are finite in fp32 only
  bool real_input = false;         // else values like a picture's
  std::string unknown;             // why there is nothing to compare with
};

// `n` outputs of each. Adds to what `error` holds.
class ErrorSum {
 public:
  void Add(const float* reference, const float* values, size_t n);
  OutputError error() const;  // all but tiles, real_input, unknown

 private:
  OutputError error_;
  double sum_ = 0;
  int64_t compared_ = 0;
  bool any_ = false;
};

struct TuneResult {
  ModelForm form;
  std::string how, slots = "all";  // as Trial
  double tiles_per_s = 0;
  int64_t bytes = 0;   // as Trial
  int64_t memory = 0;  // bytes that models were allowed
  OutputError error;
  std::vector<Trial> trials;       // in the order of measuring
  std::vector<std::string> notes;  // for people: each fall-back with its reason
};

}  // namespace tilery
