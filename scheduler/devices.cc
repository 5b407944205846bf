#include "scheduler/devices.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cluster/gpus.h"
#include "io/error.h"
#include "scheduler/probe_client.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;

bool IsCpu(const std::string& device) { return device == "cpu"; }

std::string Named(const Gpu& gpu) { return fmt::format("{} ({})", DeviceWord(gpu), gpu.name); }

DeviceSeat SeatOf(const Gpu& gpu) {
  DeviceSeat seat;
  seat.device = DeviceWord(gpu);
  seat.executable = WorkerExecutable(seat.device);
  seat.environment.emplace_back("CUDA_VISIBLE_DEVICES", gpu.uuid);
  seat.name = gpu.name;
  seat.uuid = gpu.uuid;
  seat.capability = fmt::format("{}.{}", gpu.major, gpu.minor);
  seat.memory = gpu.memory;
  seat.pci = gpu.pci;
  return seat;
}

[[noreturn]] void RefuseUnusable(const Gpus& gpus) {
  std::string cards;
  for (const std::string& card : gpus.unusable)
    cards += (cards.empty() ? "" : "; ") + Printable(card, 300);
  throw Error(Fault::kUsage,
              fmt::format("an NVIDIA GPU is here and can't be used: {}. Put its driver right, or "
                          "choose others: --devices cpu runs on the CPU",
                          cards));
}

}  // namespace

fs::path WorkerExecutable(const std::string& device) {
  const bool cpu = IsCpu(device);
  const char* const variable = cpu ? "TILERY_WORKER" : "TILERY_WORKER_CUDA";
  if (const char* given = getenv(variable); given != nullptr && *given != 0) return given;
  const fs::path beside =
      SelfExecutable().parent_path() / (cpu ? "tilery-worker" : "tilery-worker-cuda");
  if (access(beside.c_str(), X_OK) == 0) return beside;
  const std::string why = strerror(errno);
  if (!cpu && errno == ENOENT)
    throw Error(Fault::kUsage,
                fmt::format("this build runs models on CPUs only ({} is not there), and there is a "
                            "GPU: build with CUDA, or say --devices cpu",
                            Printable(beside.string())));
  throw Error(Fault::kUsage, fmt::format("{}: {}; it belongs beside tilery, or name it in {}",
                                         Printable(beside.string()), why, variable));
}

std::vector<std::pair<std::string, std::string>> DeviceSeat::EnvironmentFor(
    const std::string& precision) const {
  auto all = environment;
  // Traced modules carry a switch of their own for TF32, which only this turns off.
  if (!IsCpu(device) && precision != "tf32") all.emplace_back("NVIDIA_TF32_OVERRIDE", "0");
  return all;
}

DeviceSeat CpuSeat() {
  DeviceSeat seat;
  seat.executable = WorkerExecutable(seat.device);
  return seat;
}

DeviceChoice ChooseDevices(const Job& job) {
  const std::vector<std::string>& asked = job.execution.devices;
  DeviceChoice choice;
  const auto cpus = std::count_if(asked.begin(), asked.end(), IsCpu);
  if (cpus > 0 && cpus < static_cast<int64_t>(asked.size()))
    throw Error(Fault::kUsage,
                "execution.devices: one run uses the CPU or GPUs, not both, since their results "
                "differ in the last bits");
  std::vector<Gpu> gpus;
  if (cpus == 0) {
    const Gpus found = FindGpus();
    gpus = VisibleGpus(found.usable, getenv("CUDA_VISIBLE_DEVICES"));
    // Hidden on purpose is not unusable.
    if (gpus.empty() && !found.unusable.empty() && getenv("CUDA_VISIBLE_DEVICES") == nullptr)
      RefuseUnusable(found);
    for (const std::string& card : found.unusable)
      choice.warnings.push_back("left out: " + Printable(card, 300));
    if (!asked.empty()) gpus = SelectGpus(gpus, asked);
  }
  if (gpus.empty()) {
    choice.seats.push_back(CpuSeat());
    choice.words = "the CPU (no GPU in use)";
    return choice;
  }
  for (const Gpu& gpu : gpus) {
    if (gpu.name == gpus[0].name) {
      choice.seats.push_back(SeatOf(gpu));
      continue;
    }
    if (!asked.empty() && asked != std::vector<std::string>{"cuda"})
      throw Error(Fault::kUsage,
                  fmt::format("execution.devices: {} and {} are of two kinds, whose results differ "
                              "in the last bits; one run with both is not supported yet",
                              Named(gpus[0]), Named(gpu)));
    choice.warnings.push_back(
        fmt::format("left out: {} is of another kind than {}", Named(gpu), Named(gpus[0])));
  }
  for (const DeviceSeat& seat : choice.seats)
    choice.words += (choice.words.empty() ? "" : ", ") + seat.device;
  choice.words = fmt::format("{} ({})", choice.seats[0].name, choice.words);
  return choice;
}

}  // namespace tilery
