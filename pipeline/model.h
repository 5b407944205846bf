// A neural net behind the narrowest interface that runs it; no library's types in this header.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace tilery {

struct ModelOutput {
  const float* data = nullptr;       // dense, f32, in the order of `shape`
  std::vector<int64_t> shape;        // [N, C, Y, X] or [N, C, Z, Y, X], whatever the model returned
  std::shared_ptr<const void> keep;  // owns `data`; never the memory of the input
};

// Run() may be called by several threads at once; each call uses its own thread alone (no threads
// inside), so that a result's bits depend on the input and its shape only. The first call gives the
// same bits as all later ones: nothing is specialised by what was seen.
class Model {
 public:
  virtual ~Model() = default;
  // `input`: dense f32 of `shape`, alive during the call; the model may overwrite it. Error(kModel)
  // with the model's own message if it throws or returns anything but one tensor of numbers;
  // Error(kTransient) if memory ran out.
  virtual ModelOutput Run(float* input, const std::vector<int64_t>& shape) = 0;

  // Before the first Run, by one thread: chooses the fastest form of the model that gives the same
  // answers, to rounding, on a batch of `shape` filled with a pattern, and returns its answer to
  // that. The choice depends on the model, the shape and the machine alone. Without this call Run
  // uses the form as loaded. Errors as Run.
  virtual ModelOutput Prepare(const std::vector<int64_t>& shape) = 0;
};

// Loads a TorchScript file onto the CPU: evaluation mode, weights as f32, frozen where that works.
// Extra files in the archive are left alone. Error(kModel) naming the file and the reason.
std::unique_ptr<Model> LoadTorchScript(const std::filesystem::path& path);

// `count` values as a picture has them, between 0.1 and 0.6: what a model is tried with.
std::vector<float> TrialValues(int64_t count);

std::string TorchVersion();   // "2.11.0"
std::string CpuCapability();  // what Torch's kernels use here: "AVX512", "AVX2", "DEFAULT", ...

}  // namespace tilery
