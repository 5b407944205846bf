// NVIDIA GPUs of this machine, as the driver's management library (NVML, libnvidia-ml.so.1) lists
// them: in milliseconds, without CUDA and without a context on a card. Numbers are those of
// nvidia-smi. A card that is divided (MIG) stands for its parts: CUDA has one of them per process,
// named by UUID, and never the card itself.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tilery {

// A card, or a part of one.
struct Gpu {
  int number = 0;  // of the card
  int part = -1;   // index of the MIG device on its card; -1: the whole card
  // "NVIDIA H100 80GB HBM3", "GPU-xxxxxxxx-..."; of a part "NVIDIA A100-SXM4-40GB MIG 1g.5gb",
  // "MIG-xxxxxxxx-...". Parts of different sizes have different names.
  std::string name, uuid;
  int major = 0, minor = 0;      // compute capability
  int64_t memory = 0, free = 0;  // bytes
  std::string pci;               // address of the card as in /sys, "0000:17:00.0"; "": not known
};

// "cuda:1"; of a part "cuda:1:0".
std::string DeviceWord(const Gpu& gpu);

struct Gpus {
  std::vector<Gpu> usable;  // by number and part
  std::string driver;       // version; empty: there is none
  // Cards that this process should be able to use and can't, each with the reason: one in MIG mode
  // that has no parts, say. Cards that a container does not show are not among them.
  std::vector<std::string> unusable;
};

// Thread-safe; asks anew each time.
Gpus FindGpus();

// Those of `gpus` that the words name, in their order and each once: "cuda" is all, "cuda:N" a card
// by number, with all its parts if it is divided, "cuda:N:M" one part; else a UUID or its beginning
// ("GPU-9f...", "MIG-5f..."), or a name without regard to case ("NVIDIA H100 PCIe"; all of that
// name). Error(kUsage) naming the word and what there is.
std::vector<Gpu> SelectGpus(const std::vector<Gpu>& gpus, const std::vector<std::string>& words);

// What CUDA_VISIBLE_DEVICES leaves of them: `value` holds numbers or UUIDs (or their beginnings)
// with commas between; as in CUDA a number names a card, or the first part of one that is divided,
// and the first word that names none ends the list. nullptr: all. Error(kUsage) if none of `gpus`
// is left though the value names something; "" and "-1" hide all on purpose.
std::vector<Gpu> VisibleGpus(const std::vector<Gpu>& gpus, const char* value);

}  // namespace tilery
