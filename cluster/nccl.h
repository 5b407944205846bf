// Broadcasts over NCCL, NVIDIA's library for groups of GPUs (docs.nvidia.com/deeplearning/nccl). It
// is loaded at run time, as the one that LibTorch brings or the system has; there may be none.
#pragma once

#include <memory>

#include "cluster/broadcast.h"

namespace tilery {

// Memory of a GPU that the bytes go through, and the stream on which they do. What fails there is
// thrown as Error(kTransient).
class BroadcastBuffer {
 public:
  virtual ~BroadcastBuffer() = default;
  virtual std::string card() const = 0;  // as Broadcaster::card
  virtual std::byte* data() = 0;         // the GPU's
  virtual size_t size() const = 0;
  virtual void* stream() = 0;                              // a cudaStream_t
  virtual void Put(std::span<const std::byte> bytes) = 0;  // to its beginning; done on return
  virtual void Get(std::span<std::byte> bytes) = 0;        // from there
  virtual bool Idle() = 0;  // all that was begun on the stream is done
};

// nullptr if the library is not there. The communicator lives no longer than a Run. `patience`:
// seconds, as kBroadcastPatience.
std::unique_ptr<Broadcaster> MakeNcclBroadcaster(std::unique_ptr<BroadcastBuffer> buffer,
                                                 double patience = kBroadcastPatience);

}  // namespace tilery
