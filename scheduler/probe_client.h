// Asks a one-shot child of a worker's executable, with the argument --probe, what only Torch or the
// device can tell, with a cache per user ($XDG_CACHE_HOME or ~/.cache, folder tilery) keyed by
// model hash, question, worker executable and Torch folder. An unusable cache is a warning, never
// an error.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cluster/message.h"
#include "io/box.h"
#include "io/error.h"
#include "scheduler/devices.h"

namespace tilery {

struct ProbeRequest {
  std::string model, model_hash;  // empty model: only describe the device; ModelFile::Key()
  std::vector<std::string> libraries;
  int dims = 2;
  int32_t channels_in = 0;  // 0: unknown
  Index tile{1, 1, 1};
  bool batches = false;  // also find ProbeAnswer::apart, which takes two more runs
};

struct ProbeAnswer {
  bool runs = false;  // of the model
  std::string error;
  int32_t channels_in = 0, channels_out = 0;
  Scale scale;
  bool apart = true;  // what it makes of a tile depends neither on its slot nor on what is beside
                      // it in a batch
  std::string device_kind, torch;
};

// Of the tile that a model is tried with, along an axis where it takes multiples of `multiple`.
int64_t ProbedExtent(int dims, int64_t multiple);

// One question to such a child.
struct ChildQuestion {
  Json question;  // as worker/probe.h has it
  Json key;       // what the answer depends on, beside worker, host and Torch
  std::vector<std::pair<std::string, std::string>> environment;  // beside and over our own
  // The key says all of the device: the answer holds on other hosts and for other cards like it.
  bool any_host = false;
  // Whether an answer holds for the next time too; may throw what reading it throws.
  std::function<bool(const Json&)> sound;
};
// The answer, from the cache if it was given before. Errors as AskWorker.
Json AskChild(const ChildQuestion& question, const DeviceSeat& seat,
              std::vector<std::string>& warnings);
// The error for an answer that lacks something.
Error NotUnderstood(const DeviceSeat& seat, const std::exception& why);

// Error(kUsage) if the worker can't start, or the device or a library can't be used (its last
// words are in the message). `warnings` takes what a person should know.
ProbeAnswer AskWorker(const ProbeRequest& request, const DeviceSeat& seat,
                      std::vector<std::string>& warnings);

std::filesystem::path SelfExecutable();
// Folder of the user's caches; nullopt if none can be made.
std::optional<std::filesystem::path> CacheFolder();

}  // namespace tilery
