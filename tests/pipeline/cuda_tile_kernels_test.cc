// Kernels over many tiles give the bits of pipeline/ops.h. Skipped where there is no GPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "pipeline/cuda/tile_kernels.h"
#include "tests/pipeline/needs_gpu.h"
#include "tests/pipeline/tile_cases.h"

namespace tilery {
namespace {

void Check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

class OnGpu final : public TileBackend {
 public:
  OnGpu() { Check(cudaStreamCreate(&stream_), "cudaStreamCreate"); }
  ~OnGpu() override {
    for (void* memory : memory_) cudaFree(memory);
    cudaStreamDestroy(stream_);
  }
  OnGpu(const OnGpu&) = delete;

  void* Copy(const void* bytes, size_t size) override {
    void* memory = nullptr;
    Check(cudaMalloc(&memory, std::max<size_t>(size, 1)), "cudaMalloc");
    memory_.push_back(memory);
    Check(cudaMemcpy(memory, bytes, size, cudaMemcpyHostToDevice), "cudaMemcpy to the GPU");
    return memory;
  }
  void Read(const void* from, void* to, size_t size) override {
    Wait("a kernel before reading");
    Check(cudaMemcpy(to, from, size, cudaMemcpyDeviceToHost), "cudaMemcpy from the GPU");
  }
  void Gather(const cuda::GatherTask& task, const cuda::TileStarts& starts,
              const cuda::TileRun& run) override {
    cuda::GatherTiles(task, starts, run, stream_);
    Wait("GatherTiles");
  }
  void Blend(const cuda::BlendTilesTask& task, const cuda::TileRun& run) override {
    cuda::BlendTiles(task, run, stream_);
    Wait("BlendTiles");
  }

 private:
  void Wait(const char* what) { Check(cudaStreamSynchronize(stream_), what); }

  cudaStream_t stream_ = nullptr;
  std::vector<void*> memory_;
};

class CudaTileKernels : public testing::NeedsGpu {};

TEST_F(CudaTileKernels, GatherTheBitsOfTheCpuInRandomUnitsAndBatches) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    OnGpu gpu;
    ASSERT_EQ(CheckGathering(gpu, RandomTileCase(seed), 2), "");
  }
}

TEST_F(CudaTileKernels, BlendTheBitsOfTheCpuInRandomUnitsAndBatches) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    OnGpu gpu;
    ASSERT_EQ(CheckBlending(gpu, RandomTileCase(seed), 2), "");
  }
}

TileCase Colours(const Index& shape, const Index& tile, const Index& overlap) {
  TileCase c;
  c.seed = 1;
  c.shape = shape;
  c.tiling.tile = tile;
  c.tiling.overlap = overlap;
  c.sizing.tiles = 1 << 20;
  c.type = cuda::ModelType::kF16;
  c.transfer.passes = {{.in = {0, 1, 2}, .out = {0, 1, 2}, .out_count = 3}};
  return c;
}

// More layers, rows and tiles than a grid has blocks along an axis.
TEST_F(CudaTileKernels, LongItemsAreNotCutShort) {
  for (const Index& shape : {Index{70'000, 1, 1}, Index{1, 540'000, 1}, Index{1, 1, 70'000}}) {
    TileCase c = Colours(shape, {1, 1, 1}, {0, 0, 0});
    if (shape[1] > 1) c.tiling.tile[1] = 9;
    c.largest_batch = 1 << 20;
    OnGpu gpu;
    ASSERT_EQ(CheckGathering(gpu, c, 1), "");
    ASSERT_EQ(CheckBlending(gpu, c, 1), "");
  }
}

TEST_F(CudaTileKernels, PicturesOfManySegmentsComeOutWhole) {
  for (const auto layout : {cuda::ModelLayout::kPlanar, cuda::ModelLayout::kChannelsLast}) {
    TileCase c = Colours({1, 300, 2500}, {1, 160, 1200}, {0, 32, 64});
    c.layout = layout;
    OnGpu gpu;
    ASSERT_EQ(CheckGathering(gpu, c, 1), "");
    ASSERT_EQ(CheckBlending(gpu, c, 1), "");
  }
}

TEST_F(CudaTileKernels, ManySmallTilesGoInOneLaunch) {
  TileCase c = Colours({96, 96, 96}, {8, 8, 8}, {2, 2, 2});
  c.largest_batch = 8192;
  OnGpu gpu;
  ASSERT_EQ(CheckGathering(gpu, c, 1), "");
  ASSERT_EQ(CheckBlending(gpu, c, 1), "");
}

}  // namespace
}  // namespace tilery
