#include "worker/cuda_broadcast.h"

#include <cuda_runtime_api.h>

#include "cluster/nccl.h"
#include "io/error.h"
#include "pipeline/cuda/cuda_memory.h"

namespace tilery {
namespace {

constexpr size_t kPiece = 64 << 20;

class CudaBuffer final : public BroadcastBuffer {
 public:
  explicit CudaBuffer(int device) {
    cuda::Check(cudaSetDevice(device), "cudaSetDevice");
    // Not of the buffers that the engine keeps: it is gone before that is made.
    void* data = nullptr;
    cuda::Check(cudaMalloc(&data, kPiece), "cudaMalloc", kPiece);
    data_.reset(static_cast<std::byte*>(data));
    stream_ = std::make_unique<cuda::OwnStream>();
    char card[32] = {};
    cuda::Check(cudaDeviceGetPCIBusId(card, sizeof card, device), "cudaDeviceGetPCIBusId");
    card_ = card;
  }

  std::string card() const override { return card_; }
  std::byte* data() override { return data_.get(); }
  size_t size() const override { return kPiece; }
  void* stream() override { return static_cast<cuda::Stream>(*stream_); }
  void Put(std::span<const std::byte> bytes) override {
    Copy(data_.get(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice);
  }
  void Get(std::span<std::byte> bytes) override {
    Copy(bytes.data(), data_.get(), bytes.size(), cudaMemcpyDeviceToHost);
  }
  bool Idle() override {
    const cudaError_t state = cudaStreamQuery(*stream_);
    if (state == cudaErrorNotReady) return false;
    cuda::Check(state, "cudaStreamQuery");
    return true;
  }

 private:
  void Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    cuda::Check(cudaMemcpyAsync(to, from, bytes, kind, *stream_), "cudaMemcpyAsync");
    cuda::Check(cudaStreamSynchronize(*stream_), "cudaStreamSynchronize");
  }

  struct Free {
    void operator()(std::byte* data) const { cudaFree(data); }
  };
  std::unique_ptr<std::byte, Free> data_;
  std::unique_ptr<cuda::OwnStream> stream_;
  std::string card_;
};

}  // namespace

std::unique_ptr<Broadcaster> MakeCudaBroadcaster(int device) {
  return MakeNcclBroadcaster(std::make_unique<CudaBuffer>(device));
}

}  // namespace tilery
