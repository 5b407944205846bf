// Owners of what CUDA gives, and the check of what it says. Host code without Torch.
//
// Errors of this folder: OutOfDeviceMemory(kTransient) "out of GPU memory: ... bytes asked, ...
// free" where memory ran out; Error(kInternal) "GPU lost: ..." where the device's context is of no
// use any more (the process has to end); Error(kInternal) for everything else. All name the call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "pipeline/cuda/kernels.h"
#include "pipeline/engine.h"

struct CUevent_st;  // cudaEvent_t is a pointer to it

namespace tilery::cuda {

// `status`: a cudaError_t.
void Check(int status, const char* call, int64_t bytes = 0);
// Whether a message is that of a lost device.
bool IsLost(const std::string& message);

using Event = CUevent_st*;

class OwnStream {
 public:
  OwnStream();
  ~OwnStream();
  OwnStream(const OwnStream&) = delete;
  operator Stream() const { return stream_; }

 private:
  Stream stream_ = nullptr;
};

class OwnEvent {
 public:
  // Waiting for it blocks the thread instead of keeping a core busy.
  explicit OwnEvent(bool timed = false);
  ~OwnEvent();
  OwnEvent(const OwnEvent&) = delete;
  operator Event() const { return event_; }
  void Record(Stream stream);
  void MakeWait(Stream stream) const;  // `stream` goes on after what was recorded
  void Wait() const;                   // this thread does

 private:
  Event event_ = nullptr;
};

// Seconds between two timed events that have happened.
double SecondsBetween(const OwnEvent& begin, const OwnEvent& end);

// When timed events happened, by the host's clock: what the host sees of them comes later.
// Thread-safe.
class DeviceClock {
 public:
  using Time = std::chrono::steady_clock::time_point;
  DeviceClock();
  // Of an event that has happened, at most some minutes ago.
  Time When(const OwnEvent& event);

 private:
  void Set();
  std::mutex mutex_;  // guards all below
  OwnStream stream_;
  OwnEvent zero_{true};
  Time host_zero_;
};

// Counts what the engine asks of the driver once it runs: must stay 0.
struct AllocationCount {
  std::atomic<int64_t> device{0}, pinned{0};
  std::atomic<int64_t> device_bytes{0};
};

// Grows, never shrinks, in the sizes of HostBuffers. Growing waits for the whole device, and takes
// what the model's caches can spare if nothing else is left.
class DeviceBuffer {
 public:
  explicit DeviceBuffer(AllocationCount& count) : count_(count) {}
  ~DeviceBuffer();
  DeviceBuffer(const DeviceBuffer&) = delete;
  std::byte* Reserve(int64_t bytes);
  std::byte* data() const { return data_; }
  int64_t capacity() const { return capacity_; }

 private:
  AllocationCount& count_;
  std::byte* data_ = nullptr;
  int64_t capacity_ = 0;
};

// Host memory that the device reads and writes by itself: mapped, its pages touched, registered.
// Error(kTransient) naming the bytes if there is no more that can be. Thread-safe.
class RegisteredMemory final : public HostMemory {
 public:
  RegisteredMemory(int device, std::shared_ptr<AllocationCount> count)
      : device_(device), count_(std::move(count)) {}
  std::byte* Allocate(size_t bytes) override;
  void Free(std::byte* data, size_t bytes) noexcept override;

 private:
  const int device_;
  const std::shared_ptr<AllocationCount> count_;
};

bool IsPinned(const void* memory);

}  // namespace tilery::cuda
