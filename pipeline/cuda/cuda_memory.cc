#include "pipeline/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <string>

#include "io/error.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/device_loss.h"
#include "pipeline/host_buffers.h"

namespace tilery::cuda {
namespace {

constexpr const char* kLost = "GPU lost: ";
constexpr size_t kLargePage = 2 << 20;  // registering likes them

size_t Mapped(size_t bytes) {
  const size_t page = bytes < kLargePage ? 4096 : kLargePage;
  return (std::max<size_t>(bytes, 1) + page - 1) / page * page;
}

bool Sticky(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorAssert:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

}  // namespace

void Check(int code, const char* call, int64_t bytes) {
  const auto status = static_cast<cudaError_t>(code);
  if (status == cudaSuccess) return;
  const std::string said = std::string(call) + ": " + cudaGetErrorString(status);
  static_cast<void>(cudaGetLastError());  // this one is told here
  if (status == cudaErrorMemoryAllocation) {
    size_t free = 0, total = 0;
    static_cast<void>(cudaMemGetInfo(&free, &total));
    throw OutOfDeviceMemory(Fault::kTransient, "out of GPU memory: " + std::to_string(bytes) +
                                                   " bytes asked, " + std::to_string(free) +
                                                   " of " + std::to_string(total) + " free (" +
                                                   said + ")");
  }
  throw Error(Fault::kInternal, (Sticky(status) ? kLost : "") + said);
}

bool IsLost(const std::string& message) { return message.find(kLost) != std::string::npos; }

OwnStream::OwnStream() {
  Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
OwnStream::~OwnStream() {
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

OwnEvent::OwnEvent(bool timed) {
  Check(cudaEventCreateWithFlags(&event_,
                                 cudaEventBlockingSync | (timed ? 0 : cudaEventDisableTiming)),
        "cudaEventCreateWithFlags");
}
OwnEvent::~OwnEvent() {
  if (event_ != nullptr) cudaEventDestroy(event_);
}
void OwnEvent::Record(cudaStream_t stream) {
  Check(cudaEventRecord(event_, stream), "cudaEventRecord");
}
void OwnEvent::MakeWait(cudaStream_t stream) const {
  Check(cudaStreamWaitEvent(stream, event_, 0), "cudaStreamWaitEvent");
}
void OwnEvent::Wait() const { Check(cudaEventSynchronize(event_), "cudaEventSynchronize"); }

double SecondsBetween(const OwnEvent& begin, const OwnEvent& end) {
  float ms = 0;
  Check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
  return ms / 1e3;
}

DeviceClock::DeviceClock() { Set(); }

// On an idle stream an event happens when it is recorded, and is seen a few microseconds later.
void DeviceClock::Set() {
  zero_.Record(stream_);
  zero_.Wait();
  host_zero_ = std::chrono::steady_clock::now();
}

DeviceClock::Time DeviceClock::When(const OwnEvent& event) {
  // Times between events are floats of milliseconds: exact to 2 microseconds for this long.
  constexpr auto kGood = std::chrono::seconds(16);
  const std::lock_guard lock(mutex_);
  const Time now = std::chrono::steady_clock::now();
  if (now - host_zero_ > kGood) Set();
  const std::chrono::duration<double> since_zero(SecondsBetween(zero_, event));
  const Time when =
      host_zero_ + std::chrono::duration_cast<std::chrono::steady_clock::duration>(since_zero);
  return std::min(when, now);
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) cudaFree(data_);
}

std::byte* DeviceBuffer::Reserve(int64_t bytes) {
  if (bytes <= capacity_) return data_;
  bytes = static_cast<int64_t>(HostBuffers::Rounded(static_cast<size_t>(bytes)));
  if (data_ != nullptr) {
    Check(cudaFree(data_), "cudaFree");
    count_.device_bytes -= capacity_;
    data_ = nullptr;
    capacity_ = 0;
  }
  void* memory = nullptr;
  cudaError_t status = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    FreeCaches();
    status = cudaMalloc(&memory, static_cast<size_t>(bytes));
  }
  Check(status, "cudaMalloc", bytes);
  data_ = static_cast<std::byte*>(memory);
  capacity_ = bytes;
  ++count_.device;
  count_.device_bytes += bytes;
  return data_;
}

std::byte* RegisteredMemory::Allocate(size_t bytes) {
  const size_t size = Mapped(bytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  if (size >= kLargePage) madvise(memory, size, MADV_HUGEPAGE);
  // Touched here, so that pages lie on the node of the thread that asks, as far as there are any.
  for (size_t at = 0; at < size; at += 4096) static_cast<volatile std::byte*>(memory)[at] = {};
  // The calling thread may never have spoken to CUDA.
  cudaError_t status = cudaSetDevice(device_);
  if (status == cudaSuccess) status = cudaHostRegister(memory, size, cudaHostRegisterPortable);
  if (status != cudaSuccess) {
    munmap(memory, size);
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw Error(Fault::kTransient,
                  "out of host memory: " + std::to_string(size) +
                      " bytes can't be pinned for the GPU (cudaHostRegister); fewer workers or a "
                      "smaller execution.unit_memory need less");
    }
    Check(status, "cudaHostRegister", static_cast<int64_t>(size));
  }
  ++count_->pinned;
  return static_cast<std::byte*>(memory);
}

void RegisteredMemory::Free(std::byte* data, size_t bytes) noexcept {
  const size_t size = Mapped(bytes);
  static_cast<void>(cudaHostUnregister(data));
  munmap(data, size);
}

bool IsPinned(const void* memory) {
  cudaPointerAttributes attributes{};
  if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  return attributes.type == cudaMemoryTypeHost;
}

}  // namespace tilery::cuda
