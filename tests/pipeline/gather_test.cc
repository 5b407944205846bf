#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "pipeline/ops.h"

namespace tilery {
namespace {

constexpr DType kTypes[] = {DType::kU8,  DType::kI8,  DType::kU16, DType::kI16, DType::kU32,
                            DType::kI32, DType::kF16, DType::kF32, DType::kF64};

// One sample as a double, read the slow way.
double Sample(const ConstView& view, int64_t c, int64_t z, int64_t y, int64_t x) {
  const std::byte* at = view.at(c, z, y, x);
  const auto load = [&](auto value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(value);
  };
  switch (view.dtype) {
    case DType::kU8:
      return load(uint8_t{});
    case DType::kI8:
      return load(int8_t{});
    case DType::kU16:
      return load(uint16_t{});
    case DType::kI16:
      return load(int16_t{});
    case DType::kU32:
      return load(uint32_t{});
    case DType::kI32:
      return load(int32_t{});
    case DType::kF32:
      return load(float{});
    case DType::kF64:
      return load(double{});
    case DType::kF16: {
      uint16_t bits;
      std::memcpy(&bits, at, sizeof bits);
      return HalfToFloat(bits);
    }
  }
  return 0;
}

std::vector<std::byte> RandomSamples(DType dtype, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> bytes(count * DTypeSize(dtype));
  std::uniform_real_distribution<double> uniform(-2, 2);
  for (int64_t i = 0; i < count; ++i) {
    std::byte* at = bytes.data() + i * DTypeSize(dtype);
    const double v = uniform(random);
    if (dtype == DType::kF32) {
      const auto f = static_cast<float>(v);
      std::memcpy(at, &f, 4);
    } else if (dtype == DType::kF64) {
      std::memcpy(at, &v, 8);
    } else if (dtype == DType::kF16) {
      const uint16_t bits = FloatToHalf(static_cast<float>(v));
      std::memcpy(at, &bits, 2);
    } else {
      const uint64_t bits = random();
      std::memcpy(at, &bits, DTypeSize(dtype));
    }
  }
  return bytes;
}

Transfer TransferOf(DType dtype, bool centred) {
  Transfer t;
  t.in_dtype = dtype;
  t.raw_lo = IsInteger(dtype) ? LowestOf(dtype) : 0;
  t.raw_hi = IsInteger(dtype) ? HighestOf(dtype) : 1;
  t.model_in = 3;
  if (centred) {
    t.mean = {0.485, 0.456, 0.406};
    t.std = {0.229, 0.224, 0.225};
  }
  return t;
}

float Naive(const Transfer& t, double raw, size_t c) {
  const bool as_is = t.raw_lo == t.range_lo && t.raw_hi == t.range_hi;
  double v =
      as_is ? raw
            : (raw - t.raw_lo) / (t.raw_hi - t.raw_lo) * (t.range_hi - t.range_lo) + t.range_lo;
  if (!t.mean.empty()) v = (v - t.mean[c]) / t.std[c];
  return static_cast<float>(v);
}

TEST(Gather, EqualsTheNaiveLoopForEveryTypePadLayoutAndOffset) {
  const Index shape{3, 13, 17};
  const Pass pass{.in = {2, 0, 2}, .out = {}};
  for (DType dtype : kTypes) {
    for (PadMode pad : {PadMode::kReflect, PadMode::kEdge, PadMode::kZero}) {
      for (Layout layout : {Layout::kInterleaved, Layout::kPlanar}) {
        for (bool centred : {false, true}) {
          Tiling tiling;
          tiling.tile = {4, 8, 20};
          tiling.overlap = {0, 4, 4};
          tiling.pad = pad;
          const TileGrid grid(shape, tiling);
          const Transfer t = TransferOf(dtype, centred);
          const InputTables tables(t);
          const auto bytes = RandomSamples(dtype, Product(shape) * 3, 11);
          const ConstView whole = DenseView(bytes.data(), dtype, 3, shape, layout);
          // The source holds a part of the item, as a unit's input does.
          const Box part{{0, 3, 0}, shape};
          const GatherSource source{whole.Crop(part), part, &grid, &tables, false};
          const Index tile{0, 1, 0};
          const Box box = grid.input_box(tile);
          std::vector<float> got(3 * Product(box.shape()), -99);
          GatherTile(source, tile, pass, got.data());
          size_t i = 0;
          for (size_t c = 0; c < 3; ++c) {
            for (int64_t z = box.begin[0]; z < box.end[0]; ++z) {
              for (int64_t y = box.begin[1]; y < box.end[1]; ++y) {
                for (int64_t x = box.begin[2]; x < box.end[2]; ++x) {
                  const int64_t fz = PadSource(z, shape[0], pad), fy = PadSource(y, shape[1], pad);
                  const int64_t fx = PadSource(x, shape[2], pad);
                  const bool none = fz < 0 || fy < 0 || fx < 0;
                  const float want = Naive(t, none ? 0 : Sample(whole, pass.in[c], fz, fy, fx), c);
                  ASSERT_EQ(got[i++], want) << DTypeName(dtype) << " " << PadModeName(pad);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(Gather, ReflectionFoldsAsOftenAsNeededAndOneVoxelIsRepeated) {
  for (int64_t n : {1, 2, 5}) {
    Tiling tiling;
    tiling.tile = {1, 1, 40};
    const Index shape{1, 1, n};
    const TileGrid grid(shape, tiling);
    Transfer t = TransferOf(DType::kF32, false);
    t.model_in = 1;
    const InputTables tables(t);
    std::vector<float> values;
    for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(i + 1));
    const ConstView view = DenseView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                                     1, shape, Layout::kInterleaved);
    std::vector<float> got(40);
    GatherTile({view, Box::Whole(shape), &grid, &tables, false}, {0, 0, 0}, {.in = {0}, .out = {0}},
               got.data());
    for (int64_t i = 0; i < 40; ++i) {
      const int64_t period = std::max<int64_t>(2 * (n - 1), 1), at = i % period;
      EXPECT_EQ(got[i], static_cast<float>((at < n ? at : period - at) + 1)) << n << " " << i;
    }
  }
}

TEST(Gather, ReadsStridedAndUnalignedMemory) {
  // Samples of 2 bytes that begin at an odd address, every second one skipped.
  std::vector<std::byte> memory(1 + 64 * 4);
  for (int i = 0; i < 64; ++i) {
    const auto v = static_cast<uint16_t>(i * 1000);
    std::memcpy(memory.data() + 1 + i * 4, &v, 2);
  }
  const Index shape{1, 8, 8};
  ConstView view{memory.data() + 1, DType::kU16, 1, shape, {2, 256, 32, 4}};
  Tiling tiling;
  tiling.tile = {1, 8, 8};
  const TileGrid grid(shape, tiling);
  Transfer t = TransferOf(DType::kU16, false);
  t.model_in = 1;
  const InputTables tables(t);
  std::vector<float> got(64);
  GatherTile({view, Box::Whole(shape), &grid, &tables, false}, {0, 0, 0}, {.in = {0}, .out = {0}},
             got.data());
  for (int i = 0; i < 64; ++i) EXPECT_EQ(got[i], static_cast<float>(i * 1000 / 65535.0));
}

TEST(Gather, ReplacesWhatIsNotFiniteByTheLowEndOfTheRange) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{1, nan, -std::numeric_limits<float>::infinity(), 4};
  const Index shape{1, 1, 4};
  const ConstView view = DenseView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                                   1, shape, Layout::kInterleaved);
  Tiling tiling;
  tiling.tile = {1, 1, 4};
  const TileGrid grid(shape, tiling);
  Transfer t = TransferOf(DType::kF32, false);
  t.model_in = 1;
  t.raw_lo = t.range_lo = -2;
  t.mean = {1};
  t.std = {3};
  const InputTables tables(t);
  std::vector<float> got(4);
  GatherTile({view, Box::Whole(shape), &grid, &tables, true}, {0, 0, 0}, {.in = {0}, .out = {0}},
             got.data());
  EXPECT_EQ(got, (std::vector<float>{0, -1, -1, 1}));
}

TEST(Gather, CopiesAreInTheModelsRangeWithoutMeanAndStd) {
  const std::vector<uint8_t> values{0, 51, 102, 255};
  const Index shape{1, 1, 4};
  const ConstView view = DenseView(reinterpret_cast<const std::byte*>(values.data()), DType::kU8, 1,
                                   shape, Layout::kInterleaved);
  Tiling tiling;
  tiling.tile = {1, 1, 4};
  const TileGrid grid(shape, tiling);
  const Transfer t = TransferOf(DType::kU8, true);
  const InputTables tables(t);
  std::vector<float> scratch, got(4);
  DirectTile({view, Box::Whole(shape), &grid, &tables, false}, {0, 0, 0},
             {.op = Pass::Op::kCopy, .in = {0}, .out = {}}, scratch, got.data());
  EXPECT_EQ(got, (std::vector<float>{0, 0.2f, 0.4f, 1}));
}

TEST(Gather, ResizeRepeatsTheItemsEdgeAndNotItsPadding) {
  const std::vector<float> values{0, 1, 5};
  const Index shape{1, 1, 3};
  const ConstView view = DenseView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32,
                                   1, shape, Layout::kInterleaved);
  Tiling tiling;
  tiling.tile = {1, 1, 4};
  tiling.scale[2] = {2, 1};
  const TileGrid grid(shape, tiling);
  Transfer t = TransferOf(DType::kF32, false);
  const InputTables tables(t);
  std::vector<float> scratch, got(8);
  DirectTile({view, Box::Whole(shape), &grid, &tables, false}, {0, 0, 0},
             {.op = Pass::Op::kResize, .in = {0}, .out = {}}, scratch, got.data());
  EXPECT_EQ(std::vector<float>(got.begin(), got.begin() + 6),
            (std::vector<float>{0, 0.25f, 0.75f, 2, 4, 5}));
}

TEST(Gather, TensOfThousandsOfVoxelsAcrossStayWithin64Bits) {
  // One row far inside an item of more than 2^31 samples: only that row is in memory.
  const Index shape{1, 60000, 60000};
  Tiling tiling;
  tiling.tile = {1, 1, 64};
  const TileGrid grid(shape, tiling);
  Transfer t = TransferOf(DType::kU8, false);
  t.model_in = 3;
  const InputTables tables(t);
  std::vector<uint8_t> row(60000 * 3);
  row[59999 * 3 + 2] = 255;
  const Box box{{0, 59999, 0}, {1, 60000, 60000}};
  const ConstView view = DenseView(reinterpret_cast<const std::byte*>(row.data()), DType::kU8, 3,
                                   box.shape(), Layout::kInterleaved);
  const Index counts = grid.counts();
  std::vector<float> got(3 * 64);
  GatherTile({view, box, &grid, &tables, false}, {0, 59999, counts[2] - 1},
             {.in = {0, 1, 2}, .out = {}}, got.data());
  EXPECT_EQ(got.back(), 1.0f);
  EXPECT_EQ(std::count(got.begin(), got.end(), 0.0f), 3 * 64 - 1);
}

}  // namespace
}  // namespace tilery
