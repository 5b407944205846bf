#include "pipeline/cuda/host_tensor.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/dtype.h"
#include "pipeline/cuda/cuda_memory.h"

namespace tilery::cuda {
namespace {

int64_t SizeOf(ModelType type) { return type == ModelType::kF32 ? 4 : 2; }

int64_t VoxelsOf(const GpuTensor& tensor, int32_t channels) {
  return tensor.slot_bytes / SizeOf(tensor.type) / channels;
}

// Place of a value in a slot.
int64_t PlaceOf(const GpuTensor& tensor, int32_t channels, int64_t voxels, int64_t c, int64_t v) {
  return tensor.layout == ModelLayout::kChannelsLast ? v * channels + c : c * voxels + v;
}

uint16_t ToBf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, 4);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float FromBf16(uint16_t half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float value = 0;
  std::memcpy(&value, &bits, 4);
  return value;
}

void Put(ModelType type, float value, std::byte* at) {
  if (type == ModelType::kF32) {
    std::memcpy(at, &value, 4);
    return;
  }
  const uint16_t bits = type == ModelType::kF16 ? FloatToHalf(value) : ToBf16(value);
  std::memcpy(at, &bits, 2);
}

float Get(ModelType type, const std::byte* at) {
  if (type == ModelType::kF32) {
    float value = 0;
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  return type == ModelType::kF16 ? HalfToFloat(bits) : FromBf16(bits);
}

}  // namespace

void PackSlot(const GpuTensor& like, int32_t channels, const float* tile, std::byte* bytes) {
  const int64_t voxels = VoxelsOf(like, channels), size = SizeOf(like.type);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t v = 0; v < voxels; ++v) {
      Put(like.type, tile[c * voxels + v], bytes + PlaceOf(like, channels, voxels, c, v) * size);
    }
  }
}

void UnpackSlot(const GpuTensor& like, int32_t channels, const std::byte* bytes, float* tile) {
  const int64_t voxels = VoxelsOf(like, channels), size = SizeOf(like.type);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t v = 0; v < voxels; ++v) {
      tile[c * voxels + v] = Get(like.type, bytes + PlaceOf(like, channels, voxels, c, v) * size);
    }
  }
}

void WriteSlots(const GpuTensor& tensor, int32_t channels, int64_t slots, const float* tiles,
                int64_t count, Stream stream) {
  const int64_t values = tensor.slot_bytes / SizeOf(tensor.type);
  const int64_t different = std::min(count, slots);
  std::vector<std::byte> packed(static_cast<size_t>(different * tensor.slot_bytes));
  for (int64_t i = 0; i < different; ++i) {
    PackSlot(tensor, channels, tiles + i * values, packed.data() + i * tensor.slot_bytes);
  }
  Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  auto* const data = static_cast<std::byte*>(tensor.data);
  for (int64_t at = 0; at < slots; at += different) {
    const int64_t bytes = std::min(different, slots - at) * tensor.slot_bytes;
    Check(cudaMemcpyAsync(data + at * tensor.slot_bytes, packed.data(), static_cast<size_t>(bytes),
                          cudaMemcpyHostToDevice, stream),
          "cudaMemcpyAsync of tiles", bytes);
  }
  Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

std::vector<float> ReadSlots(const GpuTensor& tensor, int32_t channels, int64_t slots,
                             Stream stream) {
  std::vector<std::byte> packed(static_cast<size_t>(slots * tensor.slot_bytes));
  Check(cudaMemcpyAsync(packed.data(), tensor.data, packed.size(), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync of outputs", static_cast<int64_t>(packed.size()));
  Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const int64_t values = tensor.slot_bytes / SizeOf(tensor.type);
  std::vector<float> tiles(static_cast<size_t>(slots * values));
  for (int64_t i = 0; i < slots; ++i) {
    UnpackSlot(tensor, channels, packed.data() + i * tensor.slot_bytes, tiles.data() + i * values);
  }
  return tiles;
}

}  // namespace tilery::cuda
