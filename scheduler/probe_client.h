// Asks a one-shot `tilery-worker --probe` child what only Torch or the device can tell, with a
// cache per user ($XDG_CACHE_HOME or ~/.cache, folder tilery) keyed by model hash, question, worker
// executable and Torch folder. An unusable cache is a warning, never an error.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "io/box.h"

namespace tilery {

struct ProbeRequest {
  std::string model, model_hash;  // empty model: only describe the device
  int dims = 2;
  int32_t channels_in = 0;  // 0: unknown
  Index tile{1, 1, 1};
  std::string device = "cpu";
};

struct ProbeAnswer {
  bool runs = false;  // of the model
  std::string error;
  int32_t channels_in = 0, channels_out = 0;
  Scale scale;
  std::string device_kind, torch;
};

// Error(kUsage) if there is no worker executable, or it can't start (its last words are in the
// message, with the way out: TILERY_TORCH). `warnings` takes what a person should know.
ProbeAnswer AskWorker(const ProbeRequest& request, std::vector<std::string>& warnings);

// The executable beside this one, or $TILERY_WORKER. Error(kUsage) if there is none.
std::filesystem::path WorkerExecutable();
std::filesystem::path SelfExecutable();
// Folder of the user's caches; nullopt if none can be made.
std::optional<std::filesystem::path> CacheFolder();

}  // namespace tilery
