// CUDA graphs of one stream, in one pool of memory.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "pipeline/cuda/kernels.h"

struct CUgraphExec_st;  // cudaGraphExec_t is a pointer to it

namespace tilery::cuda {

// Graphs are replayed one after another, in any order: what one leaves in the pool for itself, the
// next may overwrite. Tensors that were made while capturing and are still held keep their memory
// to themselves. Used by one thread.
class Graphs {
 public:
  Graphs(int device, Stream stream);
  ~Graphs();  // waits for the stream
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Captures what `body` enqueues on the stream, which must be Torch's current one, as the next
  // graph. What `body` throws passes through; std::runtime_error if CUDA refuses. In both cases the
  // stream is as before, and this object should be destroyed.
  void Capture(const std::function<void()>& body);
  void Replay(size_t graph);  // enqueues it; std::runtime_error if CUDA refuses
  size_t size() const { return graphs_.size(); }

 private:
  const int device_;
  const Stream stream_;
  const std::pair<unsigned long long, unsigned long long> pool_;
  int uses_ = 0;  // of the pool
  std::vector<CUgraphExec_st*> graphs_;
};

}  // namespace tilery::cuda
