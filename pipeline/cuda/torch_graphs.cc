// By hand rather than with at::cuda::CUDAGraph, which leaves Torch's allocator capturing for ever
// if CUDA has invalidated a capture, and advances generators of random numbers, which no model here
// may use.
#include "pipeline/cuda/torch_graphs.h"

#include <ATen/cuda/MemPool.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <exception>

#include "pipeline/cuda/torch_errors.h"

namespace tilery::cuda {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

// While it lives, what Torch allocates for the stream comes from the pool.
class IntoPool {
 public:
  IntoPool(int device, c10::MempoolId_t pool, Stream stream) : device_(device), pool_(pool) {
    allocator::beginAllocateToPool(static_cast<c10::DeviceIndex>(device_), pool_,
                                   [stream](cudaStream_t asking) { return asking == stream; });
  }
  ~IntoPool() { allocator::endAllocateToPool(static_cast<c10::DeviceIndex>(device_), pool_); }
  IntoPool(const IntoPool&) = delete;
  IntoPool& operator=(const IntoPool&) = delete;

 private:
  int device_;
  c10::MempoolId_t pool_;
};

}  // namespace

Graphs::Graphs(int device, Stream stream) : device_(device), stream_(stream) {}

Graphs::~Graphs() {
  cudaStreamSynchronize(stream_);
  for (CUgraphExec_st* graph : graphs_) cudaGraphExecDestroy(graph);
  cudaGetLastError();  // a lost GPU says so elsewhere
  try {
    for (; !uses_.empty(); uses_.pop_back()) {
      allocator::releasePool(static_cast<c10::DeviceIndex>(device_), uses_.back());
    }
  } catch (const std::exception&) {
    // The pool stays until the process ends.
  }
}

void Graphs::Capture(bool own_memory, const std::function<void()>& body) {
  const c10::MempoolId_t pool =
      own_memory || uses_.empty() ? at::cuda::MemPool::graph_pool_handle(/*is_user_created=*/false)
                                  : uses_.front();
  cudaGraph_t captured = nullptr;
  cudaError_t status = cudaSuccess;
  std::exception_ptr thrown;
  {
    const IntoPool into_pool(device_, pool, stream_);
    uses_.push_back(pool);
    // Only this thread is kept from calls that can't be captured: others read files and pin memory.
    CheckCuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
              "cudaStreamBeginCapture");
    try {
      body();
    } catch (...) {
      thrown = std::current_exception();
    }
    status = cudaStreamEndCapture(stream_, &captured);
  }
  if (thrown) {
    if (captured != nullptr) cudaGraphDestroy(captured);
    cudaGetLastError();
    std::rethrow_exception(thrown);
  }
  CheckCuda(status, "cudaStreamEndCapture");
  cudaGraphExec_t graph = nullptr;
  status = cudaGraphInstantiate(&graph, captured, 0);
  cudaGraphDestroy(captured);
  CheckCuda(status, "cudaGraphInstantiate");
  graphs_.push_back(graph);
  CheckCuda(cudaGraphUpload(graph, stream_), "cudaGraphUpload");
}

void Graphs::Replay(size_t graph) {
  CheckCuda(cudaGraphLaunch(graphs_.at(graph), stream_), "cudaGraphLaunch");
}

}  // namespace tilery::cuda
