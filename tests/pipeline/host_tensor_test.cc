// Tiles in a model's type and layout. The conversions need no GPU.
#include "pipeline/cuda/host_tensor.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/pipeline/gpu_model_support.h"

namespace tilery::cuda {
namespace {

GpuTensor Like(ModelType type, ModelLayout layout, int64_t values) {
  GpuTensor tensor;
  tensor.type = type;
  tensor.layout = layout;
  tensor.slot_bytes = values * (type == ModelType::kF32 ? 4 : 2);
  return tensor;
}

template <typename T>
std::vector<T> Packed(ModelType type, ModelLayout layout, int32_t channels,
                      const std::vector<float>& tile) {
  const GpuTensor like = Like(type, layout, static_cast<int64_t>(tile.size()));
  std::vector<T> packed(tile.size());
  PackSlot(like, channels, tile.data(), reinterpret_cast<std::byte*>(packed.data()));
  return packed;
}

TEST(HostTensor, ChannelsLastPutsTheChannelsOfAVoxelTogether) {
  const std::vector<float> tile{0, 1, 2, 10, 11, 12};  // two channels, three voxels
  EXPECT_EQ(Packed<float>(ModelType::kF32, ModelLayout::kPlanar, 2, tile), tile);
  EXPECT_EQ(Packed<float>(ModelType::kF32, ModelLayout::kChannelsLast, 2, tile),
            (std::vector<float>{0, 10, 1, 11, 2, 12}));
}

TEST(HostTensor, NarrowTypesRoundToNearestEven) {
  // bf16 has 8 bits of mantissa: 1 + 2^-8 lies half-way between 1 and 1 + 2^-7.
  const std::vector<float> tile{1, 1 + 0x1p-8f, 1 + 0x1.8p-7f, -2};
  EXPECT_EQ(Packed<uint16_t>(ModelType::kBf16, ModelLayout::kPlanar, 1, tile),
            (std::vector<uint16_t>{0x3f80, 0x3f80, 0x3f82, 0xc000}));
  EXPECT_EQ(Packed<uint16_t>(ModelType::kF16, ModelLayout::kPlanar, 1, {1, 1 + 0x1p-11f, 65520}),
            (std::vector<uint16_t>{0x3c00, 0x3c00, 0x7c00}));
}

TEST(HostTensor, WhatWasPackedComesBack) {
  std::vector<float> tile;
  for (int i = 0; i < 3 * 20; ++i) tile.push_back(static_cast<float>(i) / 4 - 5);  // exact in all
  for (const ModelType type : {ModelType::kF32, ModelType::kF16, ModelType::kBf16}) {
    for (const ModelLayout layout : {ModelLayout::kPlanar, ModelLayout::kChannelsLast}) {
      const GpuTensor like = Like(type, layout, 60);
      std::vector<std::byte> bytes(static_cast<size_t>(like.slot_bytes));
      std::vector<float> back(60);
      PackSlot(like, 3, tile.data(), bytes.data());
      UnpackSlot(like, 3, bytes.data(), back.data());
      EXPECT_EQ(back, tile);
    }
  }
}

class HostTensorOnGpu : public tilery::testing::NeedsGpu {};

TEST_F(HostTensorOnGpu, SlotsGetTheTilesInTurn) {
  const std::vector<float> tiles{1, 2, 3, 4, 5, 6, 7, 8};  // two tiles of two channels, two voxels
  for (const ModelLayout layout : {ModelLayout::kPlanar, ModelLayout::kChannelsLast}) {
    GpuTensor tensor = Like(ModelType::kF16, layout, 4);
    Expect(cudaMalloc(&tensor.data, 5 * 8));
    WriteSlots(tensor, 2, 5, tiles.data(), 2, nullptr);
    EXPECT_EQ(ReadSlots(tensor, 2, 5, nullptr),
              (std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4}));
    Expect(cudaFree(tensor.data));
  }
}

}  // namespace
}  // namespace tilery::cuda
