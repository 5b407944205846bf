// A model's input and output between the host and the GPU, whatever type and layout they have
// there. For tests of a few tiles, not for the engine: it converts on the host and waits.
#pragma once

#include <cstdint>
#include <vector>

#include "pipeline/cuda/gpu_model.h"

namespace tilery::cuda {

// `tiles`: f32, planar, `channels` x voxels each, `count` of them; slots 0, 1, ... get them in turn
// until all `slots` are full, rounded to the tensor's type, to nearest even. Waits for the stream
// before and after. Errors of this and the next: pipeline/cuda/cuda_memory.h.
void WriteSlots(const GpuTensor& tensor, int32_t channels, int64_t slots, const float* tiles,
                int64_t count, Stream stream);

// The first `slots` slots as f32, planar, after all that the stream has to do.
std::vector<float> ReadSlots(const GpuTensor& tensor, int32_t channels, int64_t slots,
                             Stream stream);

// The conversions of both, on one slot; `bytes` in the tensor's type and layout.
void PackSlot(const GpuTensor& like, int32_t channels, const float* tile, std::byte* bytes);
void UnpackSlot(const GpuTensor& like, int32_t channels, const std::byte* bytes, float* tile);

}  // namespace tilery::cuda
