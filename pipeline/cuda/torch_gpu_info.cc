// GPUs and their memory, as CUDA, the driver and Torch's allocator count it.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>

#include "io/error.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/cuda/torch_errors.h"

namespace tilery::cuda {
namespace {

// Whether a driver is installed at all; without one CUDA's runtime calls the driver too old.
bool HasDriver() {
  void* const driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  return driver != nullptr;
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
    if (status == cudaErrorNoDevice || !HasDriver()) return {};
    Unusable("the driver of this machine", status);
  }
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
    gpu.free = FreeBytes(device);
    gpu.driver = "CUDA " + Version(driver);
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
