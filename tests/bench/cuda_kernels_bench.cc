// How near the kernels over many tiles come to the speed of the GPU's memory. For each case: time
// of a launch, bytes that must be read and written per second, and their share of what a copy from
// device to device reaches in the same process.
//
//   cuda_kernels_bench [ROUNDS]
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "pipeline/cuda/tile_kernels.h"
#include "tests/pipeline/tile_cases.h"

namespace tilery {
namespace {

void Check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) {
    throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
  }
}

class Memory {
 public:
  explicit Memory(size_t size) : size_(size) {
    Check(cudaMalloc(&data_, std::max<size_t>(size, 1)), "cudaMalloc");
    Check(cudaMemset(data_, 0x2c, size), "cudaMemset");  // 0.0657 in f16, in range
  }
  template <typename T>
  explicit Memory(const std::vector<T>& values) : Memory(values.size() * sizeof(T)) {
    Check(cudaMemcpy(data_, values.data(), size_, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  size_t size_;
};

class Bench {
 public:
  explicit Bench(int rounds) : rounds_(rounds) {
    Check(cudaStreamCreate(&stream_), "cudaStreamCreate");
    Check(cudaEventCreate(&begin_), "cudaEventCreate");
    Check(cudaEventCreate(&end_), "cudaEventCreate");
    const Memory from(size_t{1} << 29), to(size_t{1} << 29);
    copy_ = Rate(2.0 * from.size(), [&] {
      Check(cudaMemcpyAsync(to.as<void>(), from.as<void>(), from.size(), cudaMemcpyDeviceToDevice,
                            stream_),
            "cudaMemcpyAsync");
    });
    std::printf("%-58s %34.0f GB/s\n", "copy from device to device", copy_);
  }
  ~Bench() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Bench(const Bench&) = delete;

  cudaStream_t stream() const { return stream_; }
  void Report(const std::string& name, double bytes, const std::function<void()>& launch) {
    const double rate = Rate(bytes, launch);
    std::printf("%-58s %8.1f us %8.1f MB %8.0f GB/s %5.2f\n", name.c_str(), bytes / rate / 1e3,
                bytes / 1e6, rate, rate / copy_);
    std::fflush(stdout);
  }

 private:
  double Rate(double bytes, const std::function<void()>& launch) {
    for (int i = 0; i < 3; ++i) launch();
    Check(cudaEventRecord(begin_, stream_), "cudaEventRecord");
    for (int i = 0; i < rounds_; ++i) launch();
    Check(cudaEventRecord(end_, stream_), "cudaEventRecord");
    Check(cudaEventSynchronize(end_), "the kernel");
    float ms = 0;
    Check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    return bytes * rounds_ / (ms * 1e-3) / 1e9;
  }

  const int rounds_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  double copy_ = 0;
};

struct Shape {
  const char* name;
  Index item, tile, overlap;  // of the output
  int32_t channels;
  cuda::ModelType type;
  bool mean = false, argmax = false;
};

size_t SizeOf(cuda::ModelType type) { return type == cuda::ModelType::kF32 ? 4 : 2; }

// All tiles of an item that is one unit, in one launch.
void Blend(Bench& bench, const Shape& shape, cuda::ModelLayout layout, DType dtype) {
  Tiling tiling;
  tiling.tile = shape.tile;
  tiling.overlap = shape.overlap;
  const ItemGeometry geometry(shape.item, tiling,
                              {.tiles = 1 << 20, .accumulator_bytes = int64_t{1} << 40});
  const int64_t tiles = geometry.grid().tiles();
  cuda::BlendTilesTask task{};
  std::vector<std::unique_ptr<Memory>> memory;
  const auto keep = [&](auto&& what) {
    memory.push_back(std::make_unique<Memory>(what));
    return memory.back().get();
  };
  for (int a = 0; a < 3; ++a) {
    const UnitAxis axis = MakeUnitAxis(geometry, 0, a);
    task.axis[a] = {keep(axis.first)->as<int32_t>(), keep(axis.tiles)->as<int32_t>(),
                    keep(axis.begin)->as<int64_t>(), keep(axis.weights)->as<float>()};
    task.tile_shape[a] = shape.tile[a];
    task.tile_count[a] = static_cast<int32_t>(geometry.grid().counts()[a]);
    task.cover_shape[a] = task.interior_shape[a] = task.region.shape[a] = shape.item[a];
  }
  task.type = shape.type;
  task.layout = layout;
  task.channels = shape.channels;
  task.mean = shape.mean;
  task.out_count = shape.mean ? 1 : shape.channels;
  for (int c = 0; c < task.out_count; ++c) task.out[c] = task.finalize.accumulator[c] = c;
  const Memory& slots = *keep(tiles * Product(shape.tile) * shape.channels * SizeOf(shape.type));
  task.output = slots.as<void>();
  task.sums = keep(task.out_count * Product(shape.item) * sizeof(float))->as<float>();
  task.finalize.colours = task.out_count;
  task.finalize.out_channels = shape.argmax ? 1 : task.out_count;
  if (shape.argmax) task.finalize.post[task.finalize.posts++] = {cuda::PostKind::kArgmax, 0, 0};
  task.finalize.range_hi = 1;
  task.finalize.dtype = dtype;
  if (IsInteger(dtype)) {
    task.finalize.colour_terms = {0, 1, HighestOf(dtype), LowestOf(dtype), !shape.argmax};
  }
  const Memory& out = *keep(Product(shape.item) * task.finalize.out_channels * DTypeSize(dtype));
  task.finalize.out = out.as<void>();
  task.finalize.overflow = keep(sizeof(int32_t))->as<int32_t>();
  const cuda::TileRun run{0, static_cast<int32_t>(tiles), 0, 1};
  bench.Report(std::string("blend  ") + shape.name + " " +
                   (layout == cuda::ModelLayout::kPlanar ? "planar" : "last") + " to " +
                   DTypeName(dtype) + ", " + std::to_string(tiles) + " tiles",
               static_cast<double>(slots.size() + out.size()),
               [&] { cuda::BlendTiles(task, run, bench.stream()); });
}

void Gather(Bench& bench, const Shape& shape, cuda::ModelLayout layout, DType dtype, bool tabled) {
  Tiling tiling;
  tiling.tile = shape.tile;
  tiling.overlap = shape.overlap;
  const TileGrid grid(shape.item, tiling);
  std::vector<std::unique_ptr<Memory>> memory;
  const auto keep = [&](auto&& what) {
    memory.push_back(std::make_unique<Memory>(what));
    return memory.back().get();
  };
  cuda::GatherTask task{};
  cuda::TileStarts starts{};
  const auto size = static_cast<int64_t>(DTypeSize(dtype));
  const Memory& samples = *keep(static_cast<size_t>(Product(shape.item) * shape.channels * size));
  task.samples = samples.as<void>();
  task.dtype = dtype;
  task.stride[0] = size;
  task.stride[3] = size * shape.channels;
  task.stride[2] = task.stride[3] * shape.item[2];
  task.stride[1] = task.stride[2] * shape.item[1];
  for (int a = 0; a < 3; ++a) {
    task.item[a] = shape.item[a];
    task.tile[a] = shape.tile[a];
    starts.begin[a] = keep(grid.starts[a])->as<int64_t>();
    starts.count[a] = static_cast<int32_t>(grid.counts()[a]);
  }
  task.channels = shape.channels;
  for (int c = 0; c < shape.channels; ++c) {
    const float* values =
        tabled ? keep(std::vector<float>(size_t{1} << (8 * size), 0.5f))->as<float>() : nullptr;
    task.channel[c] = {c, {0, 255, 1, 0, 0, 1, false, false}, values, 0, 0};
    if (!IsInteger(dtype)) task.channel[c].terms.as_is = true;
  }
  task.type = shape.type;
  task.layout = layout;
  const Memory& slots =
      *keep(static_cast<size_t>(grid.tiles() * Product(shape.tile) * shape.channels) *
            SizeOf(shape.type));
  task.out = slots.as<void>();
  const cuda::TileRun run{0, static_cast<int32_t>(grid.tiles()), 0, 1};
  bench.Report(std::string("gather ") + shape.name + " " + DTypeName(dtype) + " to " +
                   (layout == cuda::ModelLayout::kPlanar ? "planar" : "last") + ", " +
                   std::to_string(grid.tiles()) + " tiles",
               static_cast<double>(samples.size() + slots.size()),
               [&] { cuda::GatherTiles(task, starts, run, bench.stream()); });
}

void Run(int rounds) {
  using cuda::ModelLayout;
  using cuda::ModelType;
  Bench bench(rounds);
  const Shape pictures{"2048^2 x3 f16", {1, 7808, 7808}, {1, 2048, 2048}, {0, 128, 128}, 3,
                       ModelType::kF16};
  // Tiles begin anywhere: values can't be loaded together.
  const Shape odd{"2047^2 x3 f16, odd", {1, 7805, 7805}, {1, 2047, 2047}, {0, 126, 126}, 3,
                  ModelType::kF16};
  const Shape gray{"2048^2 x3 f16, mean",
                   {1, 7808, 7808},
                   {1, 2048, 2048},
                   {0, 128, 128},
                   3,
                   ModelType::kF16,
                   true};
  const Shape volume{"128^3 x2 f16, argmax",
                     {320, 320, 320},
                     {128, 128, 128},
                     {64, 64, 64},
                     2,
                     ModelType::kF16,
                     false,
                     true};
  const Shape classes{"128^3 x16 f16, argmax",
                      {224, 224, 224},
                      {128, 128, 128},
                      {32, 32, 32},
                      16,
                      ModelType::kF16,
                      false,
                      true};
  const Shape leaves{"8^3 x1 f32", {128, 128, 256}, {8, 8, 8}, {0, 0, 0}, 1, ModelType::kF32};
  const Shape shared{"8^3 x1 f32, overlap 2", {98, 98, 194}, {8, 8, 8}, {2, 2, 2}, 1,
                     ModelType::kF32};
  const Shape stored{"8^3 x1 f16", {128, 128, 256}, {8, 8, 8}, {0, 0, 0}, 1, ModelType::kF16};
  const Shape latents{"2^3 x64 f16", {32, 32, 64}, {2, 2, 2}, {0, 0, 0}, 64, ModelType::kF16};
  for (const auto layout : {ModelLayout::kPlanar, ModelLayout::kChannelsLast}) {
    for (DType dtype : {DType::kU8, DType::kU16, DType::kF32})
      Blend(bench, pictures, layout, dtype);
    Blend(bench, odd, layout, DType::kU8);
    Blend(bench, gray, layout, DType::kU8);
    Blend(bench, volume, layout, DType::kU8);
    Blend(bench, classes, layout, DType::kU8);
    Gather(bench, pictures, layout, DType::kU8, true);
    Gather(bench, pictures, layout, DType::kU8, false);
    Gather(bench, pictures, layout, DType::kU16, true);
    Gather(bench, pictures, layout, DType::kF32, false);
  }
  Blend(bench, leaves, ModelLayout::kPlanar, DType::kF32);
  Blend(bench, leaves, ModelLayout::kPlanar, DType::kU8);
  Blend(bench, shared, ModelLayout::kPlanar, DType::kF32);
  Gather(bench, leaves, ModelLayout::kPlanar, DType::kF32, false);
  Gather(bench, shared, ModelLayout::kPlanar, DType::kF32, false);
  Gather(bench, stored, ModelLayout::kChannelsLast, DType::kF16, false);
  for (const auto layout : {ModelLayout::kPlanar, ModelLayout::kChannelsLast})
    Blend(bench, latents, layout, DType::kF16);
}

}  // namespace
}  // namespace tilery

int main(int count, char** arguments) {
  try {
    tilery::Run(count > 1 ? std::max(std::atoi(arguments[1]), 1) : 20);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_kernels_bench: %s\n", error.what());
    return 1;
  }
}
