// The GPU's kernels give the bits of pipeline/ops.h. Skipped where there is no GPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "pipeline/cuda/kernels.h"
#include "pipeline/ops.h"
#include "tests/pipeline/needs_gpu.h"
#include "tests/pipeline/random_samples.h"

namespace tilery {
namespace {

void Check(cudaError_t status) { ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(status); }

// A copy of host memory on the device.
template <typename T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : size_(values.size()) {
    Check(cudaMalloc(&data_, std::max<size_t>(size_, 1) * sizeof(T)));
    Check(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  ~OnDevice() { cudaFree(data_); }
  OnDevice(const OnDevice&) = delete;
  T* data() const { return data_; }
  std::vector<T> Read() const {
    std::vector<T> values(size_);
    Check(cudaDeviceSynchronize());
    Check(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

class CudaKernels : public testing::NeedsGpu {};

std::vector<float> Normal(int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> values(count);
  for (float& v : values) v = normal(random);
  return values;
}

constexpr DType kTypes[] = {DType::kU8,  DType::kI8,  DType::kU16, DType::kI16, DType::kU32,
                            DType::kI32, DType::kF16, DType::kF32, DType::kF64};

TEST_F(CudaKernels, GatherGivesTheBitsOfTheCpuForEveryTypeAndPad) {
  const Index shape{3, 13, 17};
  const Pass pass{.in = {2, 0, 2}, .out = {}};
  for (DType dtype : kTypes) {
    for (PadMode pad : {PadMode::kReflect, PadMode::kEdge, PadMode::kZero}) {
      for (bool tabled : {false, true}) {
        Tiling tiling;
        tiling.tile = {4, 8, 20};
        tiling.overlap = {0, 4, 4};
        tiling.pad = pad;
        const TileGrid grid(shape, tiling);
        Transfer t;
        t.in_dtype = dtype;
        t.raw_lo = IsInteger(dtype) ? LowestOf(dtype) : 0;
        t.raw_hi = IsInteger(dtype) ? HighestOf(dtype) : 1;
        t.mean = {0.485, 0.456, 0.406};
        t.std = {0.229, 0.224, 0.225};
        const InputTables tables(t);
        const auto bytes = testing::RandomSamples(dtype, Product(shape) * 3, IsFloat(dtype), 7);
        const ConstView view = DenseView(bytes.data(), dtype, 3, shape, Layout::kInterleaved);
        const Index tile{0, 1, 0};
        const Box box = grid.input_box(tile);
        std::vector<float> want(3 * box.voxels());
        GatherTile({view, Box::Whole(shape), &grid, &tables, IsFloat(dtype)}, tile, pass,
                   want.data());

        const OnDevice<std::byte> samples(bytes);
        const OnDevice<float> got(std::vector<float>(want.size(), -99.0f));
        std::vector<std::unique_ptr<OnDevice<float>>> values;
        cuda::GatherTask task{};
        task.samples = samples.data();
        task.dtype = dtype;
        for (int a = 0; a < 4; ++a) task.stride[a] = view.stride[a];
        for (int a = 0; a < 3; ++a) {
          task.item[a] = shape[a];
          task.begin[a] = box.begin[a];
          task.tile[a] = box.extent(a);
        }
        task.pad = static_cast<cuda::Pad>(pad);
        task.replace_nonfinite = IsFloat(dtype);
        task.channels = 3;
        for (size_t c = 0; c < 3; ++c) {
          const InputTables::Channel& channel = tables.model(c);
          const float* table = nullptr;
          if (tabled && channel.values) {
            values.push_back(std::make_unique<OnDevice<float>>(*channel.values));
            table = values.back()->data();
          }
          task.channel[c] = {pass.in[c], channel.terms, table, channel.zero, channel.filling};
        }
        task.out = got.data();
        cuda::Gather(task, nullptr);
        ASSERT_EQ(got.Read(), want) << DTypeName(dtype) << " " << PadModeName(pad);

        task.layout = cuda::ModelLayout::kChannelsLast;
        cuda::Gather(task, nullptr);
        const auto last = got.Read();
        for (int64_t v = 0; v < box.voxels(); ++v) {
          for (int64_t c = 0; c < 3; ++c) ASSERT_EQ(last[v * 3 + c], want[c * box.voxels() + v]);
        }
      }
    }
  }
}

TEST_F(CudaKernels, HalfInputsAreTheRoundedFloats) {
  const Index shape{1, 4, 50};
  Tiling tiling;
  tiling.tile = shape;
  const TileGrid grid(shape, tiling);
  Transfer t;
  t.model_in = 1;
  const InputTables tables(t);
  const auto bytes = testing::RandomSamples(DType::kU8, 200, false, 7);
  const OnDevice<std::byte> samples(bytes);
  const OnDevice<uint16_t> got(std::vector<uint16_t>(200));
  cuda::GatherTask task{};
  task.samples = samples.data();
  task.dtype = DType::kU8;
  task.stride[0] = task.stride[3] = 1;
  task.stride[1] = 200;
  task.stride[2] = 50;
  for (int a = 0; a < 3; ++a) task.item[a] = task.tile[a] = shape[a];
  task.channels = 1;
  task.channel[0] = {0, tables.model(0).terms, nullptr, 0, 0};
  task.out = got.data();
  task.type = cuda::ModelType::kF16;
  cuda::Gather(task, nullptr);
  const auto halves = got.Read();
  for (size_t i = 0; i < 200; ++i) {
    ASSERT_EQ(halves[i], FloatToHalf(static_cast<float>(static_cast<double>(bytes[i]) / 255)));
  }
}

TEST_F(CudaKernels, BlendGivesTheBitsOfTheCpuOverAWholeGrid) {
  Tiling tiling;
  tiling.tile = {4, 8, 10};
  tiling.overlap = {2, 4, 5};
  const TileGrid grid({9, 21, 27}, tiling);
  std::array<std::vector<TileWindow>, 3> windows;
  for (int a = 0; a < 3; ++a) windows[a] = MakeWindows(grid, a);
  const std::vector<Pass> passes{{.in = {}, .out = {2, 0}, .out_begin = 1, .out_count = 2},
                                 {.reduce = Pass::Reduce::kMean, .in = {}, .out = {}}};
  const Box whole = Box::Whole(grid.output_shape);
  std::vector<float> want(3 * whole.voxels(), 0.0f);
  const OnDevice<float> got(want);
  for (int64_t flat = 0; flat < grid.tiles(); ++flat) {
    const Index tile = grid.tile_at(flat);
    const Box box = grid.output_box(tile);
    const auto output = Normal(3 * box.voxels(), flat);
    std::vector<float> last(output.size());
    for (int64_t v = 0; v < box.voxels(); ++v) {
      for (int64_t c = 0; c < 3; ++c) last[v * 3 + c] = output[c * box.voxels() + v];
    }
    const bool planar = flat % 2 == 0;
    const OnDevice<float> device(planar ? output : last);
    for (const Pass& pass : passes) {
      BlendTile(output.data(), 3, box, windows[0][tile[0]], windows[1][tile[1]],
                windows[2][tile[2]], pass, {want.data(), whole, 3});
      std::vector<std::unique_ptr<OnDevice<float>>> weights;
      cuda::BlendTask task{};
      task.output = device.data();
      task.layout = planar ? cuda::ModelLayout::kPlanar : cuda::ModelLayout::kChannelsLast;
      task.channels = 3;
      for (int a = 0; a < 3; ++a) {
        const TileWindow& window = windows[a][tile[a]];
        weights.push_back(std::make_unique<OnDevice<float>>(window.weights));
        task.window[a] = weights.back()->data();
        task.tile_begin[a] = box.begin[a];
        task.tile_shape[a] = box.extent(a);
        task.begin[a] = window.begin;
        task.shape[a] = window.end() - window.begin;
        task.sums_shape[a] = whole.extent(a);
      }
      task.mean = pass.reduce == Pass::Reduce::kMean;
      task.out_begin = pass.out_begin;
      task.out_count = pass.out_count;
      for (size_t k = 0; k < pass.out.size(); ++k) task.out[k] = pass.out[k];
      task.sums = got.data();
      cuda::Blend(task, nullptr);
      Check(cudaDeviceSynchronize());
    }
  }
  EXPECT_EQ(got.Read(), want);
}

TEST_F(CudaKernels, FinalizeGivesTheBytesOfTheCpuForEveryTypeAndOperation) {
  const Index shape{2, 9, 31};
  const Box region{{0, 2, 5}, {2, 8, 30}};
  const std::vector<std::vector<PostOp>> chains{
      {},
      {{PostOp::Kind::kSoftmax, {}}},
      {{PostOp::Kind::kScale, {2, -0.5}},
       {PostOp::Kind::kSigmoid, {}},
       {PostOp::Kind::kClamp, {0.2, 0.8}}},
      {{PostOp::Kind::kThreshold, {0.25}}},
      {{PostOp::Kind::kArgmax, {}}, {PostOp::Kind::kLabels, {3, 70, 100}}}};
  for (DType dtype : kTypes) {
    for (const auto& chain : chains) {
      Transfer t;
      t.accumulators = 4;
      t.out_dtype = dtype;
      t.post = chain;
      t.labels = !chain.empty() && chain.back().kind == PostOp::Kind::kLabels;
      t.out_channels = t.labels ? 2 : 4;
      t.passes = {{.in = {}, .out = {0, 1, 2}, .out_count = 3},
                  {.in = {}, .out = {0}, .out_begin = 3, .is_alpha = true}};
      auto sums = Normal(4 * Product(shape), 5);
      sums[4] = std::numeric_limits<float>::quiet_NaN();
      std::vector<std::byte> want(region.voxels() * t.out_channels * DTypeSize(dtype));
      Finalizer(t).FromSums(
          {sums.data(), Box::Whole(shape), 4}, region,
          DenseView(want.data(), dtype, t.out_channels, region.shape(), Layout::kInterleaved));
      const OnDevice<float> device(sums);
      const OnDevice<std::byte> got(std::vector<std::byte>(want.size()));
      const OnDevice<int32_t> overflow({0});
      const OnDevice<double> labels({3, 70, 100});
      cuda::FinalizeTask task{};
      task.sums = device.data();
      for (int a = 0; a < 3; ++a) {
        task.sums_shape[a] = shape[a];
        task.begin[a] = region.begin[a];
        task.shape[a] = region.extent(a);
      }
      task.colours = 3;
      task.alphas = 1;
      for (int c = 0; c < 4; ++c) task.accumulator[c] = c;
      for (const PostOp& op : chain) {
        const bool labelled = op.kind == PostOp::Kind::kLabels;
        task.post[task.posts++] = {static_cast<cuda::PostKind>(op.kind),
                                   labelled || op.values.empty() ? 0 : op.values[0],
                                   labelled || op.values.size() < 2 ? 0 : op.values[1]};
      }
      task.labels = labels.data();
      task.label_count = 3;
      task.range_hi = 1;
      if (IsInteger(dtype)) {
        task.colour_terms = {0, 1, HighestOf(dtype), LowestOf(dtype), !t.labels};
        task.alpha_terms = {0, 1, HighestOf(dtype), LowestOf(dtype), true};
      }
      task.dtype = dtype;
      task.out_channels = t.out_channels;
      task.out = got.data();
      task.overflow = overflow.data();
      cuda::Finalize(task, nullptr);
      EXPECT_EQ(got.Read(), want) << DTypeName(dtype) << " chain of " << chain.size();
      EXPECT_EQ(overflow.Read()[0], 0);
    }
  }
}

TEST_F(CudaKernels, ValuesBeyondF16AndValuesThatAreNotFiniteAreReported) {
  const OnDevice<float> sums({1, 70000});
  const OnDevice<uint16_t> out({0, 0});
  const OnDevice<int32_t> flag({0});
  cuda::FinalizeTask task{};
  task.sums = sums.data();
  for (int a = 0; a < 3; ++a) task.sums_shape[a] = task.shape[a] = a == 2 ? 2 : 1;
  task.colours = task.out_channels = 1;
  task.dtype = DType::kF16;
  task.out = out.data();
  task.overflow = flag.data();
  cuda::Finalize(task, nullptr);
  EXPECT_EQ(flag.Read()[0], 1);

  for (const int64_t count : {100'000, 99'999, 7}) {  // by 16 bytes, and one by one
    std::vector<float> values(3 * count, 1.0f);
    values[count / 2 + 2] = std::numeric_limits<float>::max();
    const OnDevice<int32_t> found(std::vector<int32_t>(3, 9));
    cuda::FindNonFinite(OnDevice<float>(values).data(), cuda::ModelType::kF32, count, 3,
                        found.data(), nullptr);
    EXPECT_EQ(found.Read(), (std::vector<int32_t>{0, 0, 0}));
    values[2 * count - 1] = -std::numeric_limits<float>::infinity();
    const OnDevice<float> bad(values);
    cuda::FindNonFinite(bad.data(), cuda::ModelType::kF32, count, 3, found.data(), nullptr);
    EXPECT_EQ(found.Read(), (std::vector<int32_t>{0, 1, 0}));
  }
  for (const uint16_t bits : {uint16_t{0x7c00}, uint16_t{0xfe01}}) {  // f16: infinity, not a number
    for (const int64_t at : {0, 1, 4095}) {
      std::vector<uint16_t> halves(2 * 4096, 0x7bff);  // 65504
      halves[4096 + at] = bits;
      const OnDevice<uint16_t> device(halves);
      const OnDevice<int32_t> found(std::vector<int32_t>(2, 9));
      cuda::FindNonFinite(device.data(), cuda::ModelType::kF16, 4096, 2, found.data(), nullptr);
      EXPECT_EQ(found.Read(), (std::vector<int32_t>{0, 1}));
    }
  }
}

TEST_F(CudaKernels, SlotsHaveEqualHashesIfTheirBytesAreEqual) {
  for (const int64_t words : {1, 7, 4096, 100'001}) {
    std::vector<uint16_t> values;
    for (int slot = 0; slot < 4; ++slot) {
      for (int64_t i = 0; i < words; ++i) values.push_back(static_cast<uint16_t>(i * 40'503));
    }
    const auto hashes = [&] {
      const OnDevice<uint16_t> device(values);
      const OnDevice<uint64_t> found(std::vector<uint64_t>(4, 1));
      cuda::HashSlots(device.data(), 2 * words, 4, found.data(), nullptr);
      return found.Read();
    };
    const std::vector<uint64_t> same = hashes();
    EXPECT_EQ(same, std::vector<uint64_t>(4, same[0])) << words;
    values[static_cast<size_t>(2 * words - 1)] ^= 1;   // of slot 1, the last
    values[static_cast<size_t>(3 * words)] ^= 0x8000;  // of slot 3, the first
    const std::vector<uint64_t> other = hashes();
    EXPECT_EQ(other[0], same[0]) << words;
    EXPECT_EQ(other[2], same[0]) << words;
    EXPECT_NE(other[1], same[0]) << words;
    EXPECT_NE(other[3], same[0]) << words;
    EXPECT_NE(other[1], other[3]) << words;
  }
  // Where a value stands counts, too.
  const OnDevice<uint16_t> turned(std::vector<uint16_t>{3, 5, 5, 3});
  const OnDevice<uint64_t> found(std::vector<uint64_t>(2));
  cuda::HashSlots(turned.data(), 4, 2, found.data(), nullptr);
  EXPECT_NE(found.Read()[0], found.Read()[1]);
}

TEST_F(CudaKernels, SeamsAreInterleaved) {
  const Index shape{2, 3, 5};
  const auto sums = Normal(2 * Product(shape), 9);
  const OnDevice<float> device(sums);
  const OnDevice<float> got(std::vector<float>(2 * 2 * 2 * 3));
  const int64_t zero[3] = {0, 0, 0}, begin[3] = {0, 1, 2}, part[3] = {2, 2, 3};
  cuda::Interleave(device.data(), zero, shape.data(), 2, begin, part, got.data(), nullptr);
  const auto values = got.Read();
  size_t i = 0;
  for (int64_t z = 0; z < 2; ++z) {
    for (int64_t y = 1; y < 3; ++y) {
      for (int64_t x = 2; x < 5; ++x) {
        for (int64_t c = 0; c < 2; ++c) ASSERT_EQ(values[i++], sums[((c * 2 + z) * 3 + y) * 5 + x]);
      }
    }
  }
}

}  // namespace
}  // namespace tilery
