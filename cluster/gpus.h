// NVIDIA GPUs of this machine, as the driver's management library (NVML, libnvidia-ml.so.1) lists
// them: in milliseconds, without CUDA and without a context on a card. Numbers are those of
// nvidia-smi.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilery {

struct Gpu {
  int number = 0;
  std::string name, uuid;        // "NVIDIA H100 80GB HBM3", "GPU-xxxxxxxx-xxxx-..."
  int major = 0, minor = 0;      // compute capability
  int64_t memory = 0, free = 0;  // bytes
};

struct Gpus {
  std::vector<Gpu> usable;  // by number
  std::string driver;       // version; empty: there is none
  // Cards that this process should be able to use and can't, each with the reason. Cards that a
  // container does not show are not among them.
  std::vector<std::string> unusable;
};

// Thread-safe; asks anew each time.
Gpus FindGpus();

// Those of `gpus` that the words name, in their order and each once: "cuda" is all, "cuda:N" one by
// number; else a UUID or its beginning ("GPU-9f..."), or a card's name without regard to case
// ("NVIDIA H100 PCIe"; all of that name). Error(kUsage) naming the word and what there is.
std::vector<Gpu> SelectGpus(const std::vector<Gpu>& gpus, const std::vector<std::string>& words);

// What CUDA_VISIBLE_DEVICES leaves of them: `value` holds numbers or UUIDs (or their beginnings)
// with commas between; as in CUDA the first that is none ends the list. nullptr: all. Error(kUsage)
// if none of `gpus` is left though the value names something: a part of a card (MIG), say, which is
// not supported yet; "" and "-1" hide all on purpose.
std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus, const char* value);

}  // namespace tilery
