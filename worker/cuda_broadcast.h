// A broadcaster over NCCL for this process's GPU.
#pragma once

#include <memory>

#include "cluster/broadcast.h"

namespace tilery {

// nullptr if there is no NCCL. `device`: CUDA's ordinal in this process. Takes 64 MiB of the GPU
// until it is destroyed; OutOfDeviceMemory if there is less.
std::unique_ptr<Broadcaster> MakeCudaBroadcaster(int device);

}  // namespace tilery
