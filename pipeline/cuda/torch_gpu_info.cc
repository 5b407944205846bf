// GPUs and their memory, as CUDA, the driver and Torch's allocator count it.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "io/error.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/cuda/torch_errors.h"

namespace tilery::cuda {
namespace {

namespace fs = std::filesystem;

std::string FirstLine(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Cards that this process should be able to use: those whose device files it sees, and those on the
// bus that have no driver of NVIDIA's. (Cards with one whose files are absent belong to others: the
// process is in a container without them.)
std::vector<std::string> CardsPresent() {
  std::vector<std::string> cards;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev", error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("nvidia", 0) == 0 && name.size() > 6 &&
        std::isdigit(static_cast<unsigned char>(name[6])) != 0) {
      cards.push_back(entry.path().string());
    }
  }
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", error)) {
    const fs::path device = entry.path();
    if (FirstLine(device / "vendor") != "0x10de") continue;
    if (FirstLine(device / "class").rfind("0x03", 0) != 0)
      continue;  // displays and 3-D controllers
    const std::string driver = fs::read_symlink(device / "driver", error).filename().string();
    if (driver == "nvidia" || driver == "vfio-pci") continue;
    cards.push_back("PCI " + device.filename().string() + " with driver " +
                    (driver.empty() ? "none" : driver));
  }
  return cards;
}

std::string Version(int number) {  // 13000 is 13.0
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string CudnnVersion() {
  try {
    const long number = at::detail::getCUDAHooks().versionCuDNN();  // 91002 is 9.10.2
    return std::to_string(number / 10000) + "." + std::to_string(number / 100 % 100) + "." +
           std::to_string(number % 100);
  } catch (const std::exception&) {
    return "none";
  }
}

// The driver's management library, which knows more than CUDA and needs no context on a card (half
// a gigabyte and half a second each).
class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto init = Find<int()>("nvmlInit_v2");
    ready_ = init != nullptr && init() == 0;
  }
  ~Nvml() {
    if (const auto end = Find<int()>("nvmlShutdown"); ready_ && end != nullptr) end();
    if (library_ != nullptr) dlclose(library_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  // Empty and -1 if not known.
  std::string DriverVersion() const {
    const auto get = Find<int(char*, unsigned)>("nvmlSystemGetDriverVersion");
    char text[96] = {};
    return ready_ && get != nullptr && get(text, sizeof(text) - 1) == 0 ? text : "";
  }
  int64_t Free(const std::string& uuid) const {
    struct Memory {
      unsigned long long total, free, used;
    } memory{};
    void* device = nullptr;
    const auto find = Find<int(const char*, void**)>("nvmlDeviceGetHandleByUUID");
    const auto get = Find<int(void*, Memory*)>("nvmlDeviceGetMemoryInfo");
    const bool known = ready_ && find != nullptr && get != nullptr &&
                       find(uuid.c_str(), &device) == 0 && get(device, &memory) == 0;
    return known ? static_cast<int64_t>(memory.free) : -1;
  }

 private:
  template <typename Function>
  Function* Find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
  }
  void* library_;
  bool ready_ = false;
};

std::string UuidOf(const cudaUUID_t& uuid) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    const auto byte = static_cast<unsigned char>(uuid.bytes[i]);
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

[[noreturn]] void Unusable(const std::string& which, cudaError_t status) {
  throw Error(Fault::kUsage, "GPU can't be used: " + which + ": " + cudaGetErrorString(status) +
                                 " (" + cudaGetErrorName(status) +
                                 "); put its driver right, or choose device cpu");
}

int64_t FreeBytes(int device) {
  int before = 0;
  cudaGetDevice(&before);
  size_t free = 0, total = 0;
  cudaError_t status = cudaSetDevice(device);
  if (status == cudaSuccess) status = cudaMemGetInfo(&free, &total);
  cudaSetDevice(before);
  if (status != cudaSuccess) {
    cudaGetLastError();
    Unusable("cuda:" + std::to_string(device), status);
  }
  return static_cast<int64_t>(free);
}

}  // namespace

std::vector<GpuInfo> ListGpus() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    cudaGetLastError();
    // All may be hidden on purpose.
    if (status == cudaErrorNoDevice && std::getenv("CUDA_VISIBLE_DEVICES") != nullptr) return {};
    const std::vector<std::string> cards = CardsPresent();
    if (cards.empty()) return {};
    std::string names;
    for (const std::string& card : cards) names += (names.empty() ? "" : ", ") + card;
    Unusable(names, status);
  }
  const Nvml nvml;
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  std::vector<GpuInfo> gpus;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties{};
    const cudaError_t found = cudaGetDeviceProperties(&properties, device);
    if (found != cudaSuccess) {
      cudaGetLastError();
      Unusable("cuda:" + std::to_string(device), found);
    }
    GpuInfo gpu;
    gpu.device = device;
    gpu.name = properties.name;
    gpu.uuid = UuidOf(properties.uuid);
    gpu.major = properties.major;
    gpu.minor = properties.minor;
    gpu.memory = static_cast<int64_t>(properties.totalGlobalMem);
    gpu.free = nvml.Free(gpu.uuid);
    if (gpu.free < 0) gpu.free = FreeBytes(device);
    gpu.driver = nvml.DriverVersion();
    if (gpu.driver.empty()) gpu.driver = "CUDA " + Version(driver);
    gpu.runtime = Version(runtime);
    gpu.cudnn = CudnnVersion();
    gpus.push_back(gpu);
  }
  return gpus;
}

GpuMemory MemoryOf(int device) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  const auto stats =
      c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(device));
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  GpuMemory memory;
  memory.reserved = stats.reserved_bytes[kAll].current;
  memory.peak_reserved = stats.reserved_bytes[kAll].peak;
  memory.segments = stats.num_device_alloc;
  memory.retries = stats.num_alloc_retries + stats.num_ooms;
  memory.refusals = stats.num_ooms;
  return memory;
}

void FreeCaches() { c10::cuda::CUDACachingAllocator::emptyCache(); }

void FreeWorkspaces() {
  at::cuda::clearCublasWorkspaces();
  FreeCaches();
}

void ResetPeak(int device) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  c10::cuda::CUDACachingAllocator::resetPeakStats(static_cast<c10::DeviceIndex>(device));
}

void LimitMemory(int device, int64_t bytes) {
  at::globalContext().lazyInitDevice(c10::DeviceType::CUDA);
  cudaDeviceProp gpu{};
  CheckCuda(cudaGetDeviceProperties(&gpu, device), "cudaGetDeviceProperties");
  const double share = static_cast<double>(bytes) / static_cast<double>(gpu.totalGlobalMem);
  c10::cuda::CUDACachingAllocator::setMemoryFraction(bytes == 0 ? 1.0 : std::min(share, 1.0),
                                                     static_cast<c10::DeviceIndex>(device));
}

}  // namespace tilery::cuda
