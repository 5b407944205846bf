// Which devices a run uses, from the job and from what this machine has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/job.h"

namespace tilery {

// What starts a worker process, or a one-shot child, on one device.
struct DeviceSeat {
  std::string device = "cpu";  // "cuda:1", "cuda:1:0": see DeviceWord() in cluster/gpus.h
  std::filesystem::path executable;
  // Beside and over our own: shows the process this GPU alone, or this part of one.
  std::vector<std::pair<std::string, std::string>> environment;
  // Of a GPU: "NVIDIA H100 80GB HBM3", "GPU-..." or "MIG-...", "9.0"; "" for the CPU.
  std::string name, uuid, capability;
  int64_t memory = 0;  // bytes of the GPU
  std::string pci;     // Gpu::pci
  // And what a process needs that works in this precision.
  std::vector<std::pair<std::string, std::string>> EnvironmentFor(
      const std::string& precision) const;
};

struct DeviceChoice {
  std::vector<DeviceSeat> seats;      // at least one; all CPU (one seat) or all GPUs of one name
  std::string words;                  // "NVIDIA H100 80GB HBM3 (cuda:0, cuda:1)"
  std::vector<std::string> warnings;  // GPUs that are left out, and why
  bool gpu() const { return seats[0].device != "cpu"; }
};

// auto: every GPU that this process may use (CUDA_VISIBLE_DEVICES), else the CPU. GPUs of another
// name than the first (parts of another size, too) are left out under auto and refused if they are
// named. Error(kUsage) with card, driver and reason if there is an NVIDIA card that can't be used:
// never a silent run on the CPU; if a named one is not there; if CPU and GPUs are mixed; if the
// build has no worker for GPUs.
DeviceChoice ChooseDevices(const Job& job);

// The CPU's, for what needs any device.
DeviceSeat CpuSeat();

// `executable` beside this program; $TILERY_WORKER for the CPU's and $TILERY_WORKER_CUDA for the
// GPUs' name another. Error(kUsage) if there is none.
std::filesystem::path WorkerExecutable(const std::string& device);

}  // namespace tilery
