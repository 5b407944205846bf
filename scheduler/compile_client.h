// Has models compiled: runs tools/compile_model.py with a Python whose Torch is ours, and finds
// what was compiled before. Packages lie in the user's cache (scheduler/package_cache.h) unless a
// folder is named.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace tilery {

// All packages of these batches, precisions and layouts, of one model, tile and kind of device.
struct CompileRequest {
  std::filesystem::path model;  // as the job names it: an exported program, or TorchScript
  std::string model_hash;       // of that file
  std::string device = "cpu";   // or "cuda:N", "cuda:N:M"
  std::string device_uuid;      // not empty: the GPU of this UUID, whatever N is
  // What Torch calls the device, for example "NVIDIA H100 80GB HBM3" and "9.0"; "cpu" and what its
  // device kind says after "cpu/".
  // Empty if unknown; if known, packages that are there are found without Python, in milliseconds.
  std::string device_name, capability;
  std::vector<int64_t> tile;  // in input voxels: [y, x] or [z, y, x]; one number: each axis
  int dims = 0;               // axes of the tile; 0: as many as it has numbers, or the model says
  std::vector<int64_t> batches;                  // tiles in a batch
  std::vector<std::string> precisions, layouts;  // fp32 tf32 fp16 bf16; nchw nhwc
  int32_t channels_in = 0;                       // 0: the model says
  std::vector<std::filesystem::path> libraries;  // of custom operators, loaded first
  bool max_autotune = false;
  bool look_only = false;                        // refuse to compile what is not there yet
  std::filesystem::path folder;                  // empty: the user's cache
  std::chrono::milliseconds limit{20 * 60'000};  // for each package
};

struct CompiledPackage {
  std::filesystem::path path;
  std::string hash;  // XXH3-128 of the file: two compilations of one model differ
  int64_t batch = 0;
  std::string precision, layout;
  std::vector<int64_t> tile;    // one number per axis
  std::string gpu, capability;  // what it runs on
  int32_t channels_in = 0, channels_out = 0;
  double seconds = 0;  // that it took this time
  bool reused = false;
};

struct CompileResult {
  enum class Outcome : uint8_t {
    kDone,     // all packages are there
    kFailed,   // the compiler failed, crashed, or took too long; `packages` has the others
    kRefused,  // nothing was tried: no Python, no tool, or a model or request that can't be
               // compiled
    kStopped,  // `stop` said so
  } outcome = Outcome::kDone;
  std::string reason;  // one printable line, empty if done
  std::vector<CompiledPackage> packages;
  struct Failed {
    std::string package, reason;  // its file's name, "" if all are meant; one printable line
  };
  std::vector<Failed> failed;
  std::string python;  // that compiled; empty if none was needed
};

// Blocks until all is compiled. Packages that are there are kept, and of several processes one
// compiles while the others wait. Never throws for anything that a compilation does or lacks.
//
// `say` is told what happens, in lines; `stop` is asked some 20 times a second whether to give up.
// Both are called on this thread. What was started for it does not outlive this call, this thread,
// or this process, however they end.
CompileResult CompilePackages(const CompileRequest& request,
                              const std::function<void(const std::string&)>& say = {},
                              const std::function<bool()>& stop = {});

}  // namespace tilery
