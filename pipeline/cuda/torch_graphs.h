// CUDA graphs of one stream, in one pool of memory or in one for each.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "pipeline/cuda/kernels.h"

struct CUgraphExec_st;  // cudaGraphExec_t is a pointer to it

namespace tilery::cuda {

// Graphs are replayed one after another, in any order. Those that share a pool use the same memory
// for what they do not keep, and that may be what another of them has kept: a tensor made while one
// was being captured may lie where an earlier graph had its activations, and is overwritten when
// that is replayed. So a graph's own tensors outlive a replay of another only if the graph has its
// own memory. Used by one thread.
class Graphs {
 public:
  Graphs(int device, Stream stream);
  ~Graphs();  // waits for the stream
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Captures what `body` enqueues on the stream, which must be Torch's current one, as the next
  // graph, in memory of its own or in that of the first graph. What `body` throws passes through;
  // std::runtime_error if CUDA refuses. In both cases the stream is as before, and this object
  // should be destroyed.
  void Capture(bool own_memory, const std::function<void()>& body);
  void Replay(size_t graph);  // enqueues it; std::runtime_error if CUDA refuses
  size_t size() const { return graphs_.size(); }

 private:
  const int device_;
  const Stream stream_;
  std::vector<std::pair<unsigned long long, unsigned long long>> uses_;  // of pools, one a capture
  std::vector<CUgraphExec_st*> graphs_;
};

}  // namespace tilery::cuda
