#include "pipeline/cuda/codec_memory.h"

#include <cuda_runtime_api.h>

#include <string>

#include "io/error.h"

namespace tilery::cuda {

void CheckCall(int code, const char* call, int64_t bytes) {
  const auto status = static_cast<cudaError_t>(code);
  if (status == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());  // this one is told here
  const std::string said = std::string(call) + ": " + cudaGetErrorString(status);
  if (status == cudaErrorMemoryAllocation)
    throw Error(Fault::kTransient, said + " (" + std::to_string(bytes) + " bytes asked)");
  throw Error(Fault::kInternal, "CUDA: " + said);
}

void UseDevice(int device) { CheckCall(cudaSetDevice(device), "cudaSetDevice"); }

std::byte* GrowingMemory::Reserve(int64_t bytes) {
  if (bytes <= size_) return data_;
  Free();
  void* data = nullptr;
  CheckCall(host_ ? cudaMallocHost(&data, static_cast<size_t>(bytes))
                  : cudaMalloc(&data, static_cast<size_t>(bytes)),
            host_ ? "cudaMallocHost" : "cudaMalloc", bytes);
  data_ = static_cast<std::byte*>(data);
  size_ = bytes;
  return data_;
}

void GrowingMemory::Free() {
  host_ ? cudaFreeHost(data_) : cudaFree(data_);
  data_ = nullptr;
  size_ = 0;
}

CodecStream::CodecStream() {
  CheckCall(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}
CodecStream::~CodecStream() { cudaStreamDestroy(stream_); }

void CodecStream::ToGpu(void* to, const void* from, int64_t bytes) {
  CheckCall(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream_),
            "cudaMemcpyAsync");
}

void CodecStream::ToHost(void* to, const void* from, int64_t bytes) {
  CheckCall(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream_),
            "cudaMemcpyAsync");
}

void CodecStream::Wait(const char* what) { CheckCall(cudaStreamSynchronize(stream_), what); }

}  // namespace tilery::cuda
