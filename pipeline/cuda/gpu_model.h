// A neural net on one GPU, behind no type of Torch. It owns a stream, a ring of inputs and outputs
// at fixed addresses, and one CUDA graph for each place in the ring.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "io/box.h"
#include "pipeline/cuda/kernels.h"

namespace tilery::cuda {

struct GpuModelOptions {
  std::filesystem::path model;  // TorchScript file, or AOTInductor package (.pt2)
  std::filesystem::path at;     // where its bytes are, if not there
  const std::filesystem::path& bytes() const { return at.empty() ? model : at; }
  int device = 0;  // CUDA ordinal in this process
  int dims = 2;    // 2: [N, C, Y, X]; 3: [N, C, Z, Y, X]
  int32_t channels_in = 3, channels_out = 3;
  Index tile{1, 1, 1};      // of the input
  Index out_tile{1, 1, 1};  // of the output
  int64_t batch = 1;
  std::string precision = "fp32";  // fp32 (IEEE), tf32, fp16, bf16
  std::string layout = "nchw";     // "nchw" or "nhwc" (also in 3-D): of weights, input and output
  bool graph = true;               // replay a CUDA graph where the model can be captured
  // Let cuDNN measure its convolutions. Two runs may then choose differently, so the bytes of
  // results may differ too.
  bool autotune = false;
  bool deterministic = true;
  int ring = 3;
};

struct GpuTensor {
  void* data = nullptr;  // slot 0; slots follow each other without gaps
  ModelType type = ModelType::kF32;
  ModelLayout layout = ModelLayout::kPlanar;
  int64_t slot_bytes = 0;
};

// Memory of the process on this device, as Torch's allocator counts it.
struct GpuMemory {
  int64_t reserved = 0, peak_reserved = 0;  // bytes
  int64_t segments = 0;                     // asked of the driver so far
  int64_t retries = 0;                      // times that caches were freed because memory ran out
  int64_t refusals = 0;                     // of these: times that it did not help
};

// Used by one thread at a time, the one that made it.
class GpuModel {
 public:
  virtual ~GpuModel() = default;
  virtual Stream stream() const = 0;
  virtual GpuTensor input(int place) const = 0;
  // Enqueues one forward pass on stream(): reads input(place), and returns where the output will
  // be, which stays as it is until Run(place) is called again. Never waits for the device.
  // Error(kModel) with the model's own message; Error(kTransient) if memory ran out, also where a
  // library inside went on without it: it may have taken another way, with another result.
  virtual GpuTensor Run(int place) = 0;
  // "CUDA graph", or "eager: <why the model could not be captured>".
  virtual const std::string& how() const = 0;
};

// Loads the model, converts its weights once, proves a batch in every place of the ring (warm-up on
// this thread, then capture), and checks the output's shape. Error(kModel) naming file and reason,
// both shapes if they contradict, or "asked ... bytes, ... free" if it can't run at batch 1;
// Error(kTransient) if the batch does not fit the memory, with the same numbers. A batch larger
// than 1 does not fit either if a library inside was refused memory and went on without.
// Error(kUsage) if NVIDIA_TF32_OVERRIDE, which CUDA's libraries obey above all, contradicts the
// precision. All inputs hold TrialValues() afterwards.
std::unique_ptr<GpuModel> LoadGpuModel(const GpuModelOptions& options);

GpuMemory MemoryOf(int device);
// Gives back what Torch's allocator keeps for later.
void FreeCaches();
// Gives back what libraries keep for streams of models that are gone. No model may be alive: a
// graph may use it.
void FreeWorkspaces();
// From now on peak_reserved speaks of what comes.
void ResetPeak(int device);
// What Torch's allocator may take of this device at most, in bytes; 0: all there is. What goes
// beyond is refused as if there were no more.
void LimitMemory(int device, int64_t bytes);

// Whether a file is an AOTInductor package, by its members; other files are taken for TorchScript.
bool IsPackage(const std::filesystem::path& path);

// What a package of tools/compile_model.py says of itself. Error(kModel) if it can't be read or
// says nothing.
struct PackageFacts {
  int64_t batch = 1;
  std::string precision, layout;  // as in GpuModelOptions
};
PackageFacts FactsOf(const std::filesystem::path& package);

struct GpuInfo {
  int device = 0;                      // CUDA ordinal in this process
  std::string name, uuid;              // "NVIDIA H100 80GB HBM3", "GPU-xxxxxxxx-..."
  int major = 0, minor = 0;            // compute capability
  int64_t memory = 0, free = 0;        // bytes
  std::string driver, runtime, cudnn;  // versions; the driver's is the newest CUDA that it runs
};
// Those that CUDA shows this process; a context is made on each. Error(kUsage) with the driver's
// words if it can't be used; empty if there is no driver or no card.
std::vector<GpuInfo> ListGpus();

}  // namespace tilery::cuda
