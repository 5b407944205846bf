#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "io/error.h"
#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

using namespace tilery::testing;

// The models of tests/models.py that are simple enough to be written down again.
std::vector<double> SameTile(const std::vector<double>& tile, int64_t, const Index&) {
  return tile;
}

std::vector<double> Ramp(const std::vector<double>& tile, int64_t channels, const Index& shape) {
  std::vector<double> out;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t z = 0; z < shape[0]; ++z) {
      for (int64_t y = 0; y < shape[1]; ++y) {
        for (int64_t x = 0; x < shape[2]; ++x) {
          const double along_z = shape[0] > 1 ? 0.25 + 0.0625 * z : 1.0;
          out.push_back(tile[out.size()] * along_z * (0.25 + 0.03125 * y) * (0.5 + 0.015625 * x));
        }
      }
    }
  }
  return out;
}

std::vector<double> Nearest(const std::vector<double>& tile, int64_t channels, const Index& shape) {
  std::vector<double> out;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < 4 * shape[1]; ++y) {
      for (int64_t x = 0; x < 4 * shape[2]; ++x) {
        out.push_back(tile[(c * shape[1] + y / 4) * shape[2] + x / 4]);
      }
    }
  }
  return out;
}

std::vector<double> Mean(const std::vector<double>& tile, int64_t channels, const Index& shape) {
  std::vector<double> out;
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t y = 0; y < shape[1] / 8; ++y) {
      for (int64_t x = 0; x < shape[2] / 8; ++x) {
        double sum = 0;
        for (int64_t i = 0; i < 64; ++i) {
          sum += tile[(c * shape[1] + y * 8 + i / 8) * shape[2] + x * 8 + i % 8];
        }
        out.push_back(sum / 64);
      }
    }
  }
  return out;
}

// Greatest difference of an f32 result to the reference.
double Difference(const Item& item, const std::vector<std::byte>& samples,
                  const std::vector<double>& want) {
  const auto got = As<float>(samples);
  const int64_t channels = item.transfer.out_channels, voxels = want.size() / channels;
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (int64_t v = 0; v < voxels; ++v) {
    for (int64_t c = 0; c < channels; ++c) {
      worst = std::max(worst, std::abs(want[c * voxels + v] - got[v * channels + c]));
    }
  }
  return worst;
}

double Difference(const Item& item, const std::string& model, const TileModel& by_hand) {
  const auto want = Reference(InModelRange(item), item.channels, item.transfer.accumulators,
                              item.shape, item.tiling, by_hand);
  return Difference(item, RunItem(item, OptionsFor(item, model)), want);
}

constexpr WindowKind kWindows[] = {WindowKind::kLinear, WindowKind::kCosine, WindowKind::kCrop,
                                   WindowKind::kHann, WindowKind::kGaussian};

TEST(Engine, EqualsTheFloat64ReferenceForEveryWindowOnAPicture) {
  for (WindowKind window : kWindows) {
    for (int64_t trim : {0, 3}) {
      Item item = MakePicture({1, 77, 91}, 1, DType::kU8, DType::kF32, 32, 10);
      item.tiling.window = window;
      item.tiling.trim = {0, trim, trim};
      item.sizing.tiles = 4;
      EXPECT_LT(Difference(item, "ramp2d", Ramp), 1e-6)
          << WindowKindName(window) << " trim " << trim;
    }
  }
}

TEST(Engine, EqualsTheFloat64ReferenceOnAVolumeWithUnequalTiles) {
  Item item = MakePicture({23, 40, 37}, 1, DType::kU16, DType::kF32, 16, 6);
  item.tiling.tile = {8, 16, 24};
  item.tiling.overlap = {2, 6, 10};
  item.sizing.tiles = 3;
  EXPECT_LT(Difference(item, "ramp3d", Ramp), 1e-6);
}

TEST(Engine, ScalesUpAndDown) {
  Item up = MakePicture({1, 45, 70}, 3, DType::kU8, DType::kF32, 24, 8);
  up.tiling.scale[1] = up.tiling.scale[2] = {4, 1};
  up.sizing.tiles = 4;
  EXPECT_LT(Difference(up, "nearest4", Nearest), 1e-6);

  Item down = MakePicture({1, 101, 75}, 3, DType::kU8, DType::kF32, 64, 16);
  down.tiling.scale[1] = down.tiling.scale[2] = {1, 8};
  down.tiling.window = WindowKind::kLinear;
  down.sizing.tiles = 1;
  EXPECT_LT(Difference(down, "mean8", Mean), 1e-6);
}

TEST(Engine, TakesEveryInputTypeAndPadMode) {
  for (PadMode pad : {PadMode::kReflect, PadMode::kEdge, PadMode::kZero}) {
    for (DType dtype : {DType::kU8, DType::kU16, DType::kF32}) {
      for (const Index& shape :
           {Index{1, 5, 7}, Index{1, 1, 1}, Index{1, 1, 200}, Index{1, 40, 33}}) {
        Item item = MakePicture(shape, 1, dtype, DType::kF32, 32, 8);
        item.tiling.pad = pad;
        EXPECT_LT(Difference(item, "ramp2d", Ramp), 1e-6)
            << PadModeName(pad) << " " << DTypeName(dtype) << " " << ShapeToString(shape, 2);
      }
    }
  }
}

TEST(Engine, PadsToTheMultipleThatTheModelNeeds) {
  Item item = MakePicture({1, 223, 301}, 3, DType::kU8, DType::kU8, 256, 32);
  item.tiling.multiple = {1, 8, 8};
  EXPECT_EQ(RunItem(item, OptionsFor(item, "needs8")), item.samples);
}

TEST(Engine, IdentityGivesBackEveryStoredValue) {
  for (DType dtype : {DType::kU8, DType::kU16, DType::kF32}) {
    Item item = MakePicture({1, 65, 129}, 3, dtype, dtype, 64, 16, 5);
    item.sizing.tiles = 2;
    const auto out = RunItem(item, OptionsFor(item, "identity"));
    if (IsInteger(dtype)) {
      EXPECT_EQ(out, item.samples) << DTypeName(dtype);
    } else {
      EXPECT_LT(Difference(item, out, InModelRange(item)), 1e-6);
    }
  }
}

TEST(Engine, ConstantStaysConstantForAllWindowsAndUnevenLastTiles) {
  for (WindowKind window : kWindows) {
    for (int64_t width : {64, 96, 100, 129}) {
      Item item = MakePicture({1, 70, width}, 3, DType::kU8, DType::kU8, 64, 16);
      item.tiling.window = window;
      item.sizing.tiles = 1;
      std::fill(item.samples.begin(), item.samples.end(), std::byte{100});
      EXPECT_EQ(RunItem(item, OptionsFor(item, "identity")), item.samples)
          << WindowKindName(window) << " " << width;

      Item floats = MakePicture({1, 70, width}, 1, DType::kF32, DType::kF32, 64, 16);
      floats.tiling.window = window;
      const std::vector<float> half(70 * width, 0.5f);
      std::memcpy(floats.samples.data(), half.data(), floats.samples.size());
      EXPECT_LT(Difference(floats, "identity", SameTile), 1e-6);
    }
  }
}

TEST(Engine, TiledEqualsUntiledWhereTheOverlapCoversTheReceptiveField) {
  Item tiled = MakePicture({1, 90, 110}, 3, DType::kU8, DType::kF32, 48, 12);
  tiled.tiling.trim = {0, 3, 3};
  tiled.sizing.tiles = 2;
  Item whole = tiled;
  whole.tiling.tile = {1, 90, 110};
  whole.tiling.overlap = whole.tiling.trim = {0, 0, 0};
  const auto a = As<float>(RunItem(tiled, OptionsFor(tiled, "conv")));
  const auto b = As<float>(RunItem(whole, OptionsFor(whole, "conv", 1)));
  ASSERT_EQ(a.size(), b.size());
  float worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
  EXPECT_LT(worst, 2e-6f);
}

TEST(Engine, FeedsAndTakesChannelsInTheOrderThePassNames) {
  Item item = MakePicture({1, 40, 40}, 3, DType::kU8, DType::kU8, 32, 8);
  item.transfer.passes[0].in = {2, 1, 0};
  item.transfer.passes[0].out = {2, 1, 0};
  EXPECT_EQ(RunItem(item, OptionsFor(item, "identity")), item.samples);

  item.transfer.passes[0].out = {0, 1, 2};
  const auto swapped = RunItem(item, OptionsFor(item, "identity"));
  for (size_t i = 0; i < swapped.size(); i += 3) {
    ASSERT_EQ(swapped[i], item.samples[i + 2]);
    ASSERT_EQ(swapped[i + 1], item.samples[i + 1]);
    ASSERT_EQ(swapped[i + 2], item.samples[i]);
  }
}

// Red, green, blue and alpha: colours through the model, alpha as the test says.
Item WithAlpha(Pass::Op op, int64_t scale) {
  Item item = MakePicture({1, 50, 61}, 4, DType::kU8, DType::kU8, 32, 8);
  Transfer& t = item.transfer;
  t.model_in = t.model_out = 3;
  Pass colours = t.passes[0];
  colours.in = colours.out = {0, 1, 2};
  colours.out_count = 3;
  Pass alpha;
  alpha.op = op;
  alpha.in = {3};
  if (op == Pass::Op::kModel) {
    alpha.in = {3, 3, 3};
    alpha.reduce = Pass::Reduce::kMean;
  }
  alpha.out_begin = 3;
  alpha.is_alpha = true;
  t.passes = {colours, alpha};
  item.tiling.scale[1] = item.tiling.scale[2] = {scale, 1};
  item.sizing.tiles = 3;
  return item;
}

TEST(Engine, AlphaRunsAsAGrayPictureThroughTheSameModel) {
  Item item = WithAlpha(Pass::Op::kModel, 4);
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "nearest4", 4), profile);
  const auto results = RunAll(*engine, WorksOf(item));
  const auto out = Assemble(item, results);
  for (int64_t y = 0; y < 200; ++y) {
    for (int64_t x = 0; x < 244; ++x) {
      for (int64_t c = 0; c < 4; ++c) {
        ASSERT_EQ(out[(y * 244 + x) * 4 + c], item.samples[(y / 4 * 61 + x / 4) * 4 + c]);
      }
    }
  }
  int64_t tiles = 0;
  for (const InferResult& result : results) tiles += std::get<InferOutput>(result).tiles;
  EXPECT_EQ(tiles, 2 * item.Geometry()->grid().tiles()) << "both passes count";
}

TEST(Engine, AlphaThatIsCopiedNeedsNoModelRun) {
  Item item = WithAlpha(Pass::Op::kCopy, 1);
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "identity", 4), profile);
  const auto results = RunAll(*engine, WorksOf(item));
  EXPECT_EQ(Assemble(item, results), item.samples);
  int64_t tiles = 0;
  for (const InferResult& result : results) tiles += std::get<InferOutput>(result).tiles;
  EXPECT_EQ(tiles, item.Geometry()->grid().tiles());
}

TEST(Engine, AlphaThatIsResizedInterpolatesLinearly) {
  Item item = WithAlpha(Pass::Op::kResize, 4);
  // Alpha rises by 2 per column: between the centres of the outermost voxels so does the
  // interpolation.
  for (int64_t i = 0; i < 50 * 61; ++i)
    item.samples[i * 4 + 3] = static_cast<std::byte>(i % 61 * 2);
  const auto out = RunItem(item, OptionsFor(item, "nearest4"));
  for (int64_t x = 0; x < 244; ++x) {
    const double want = std::clamp((x + 0.5) / 4 - 0.5, 0.0, 60.0) * 2;
    // At a tile's border its own last voxel is repeated, at low weight.
    EXPECT_NEAR(static_cast<double>(out[(100 * 244 + x) * 4 + 3]), want, 1.0) << x;
  }
}

TEST(Engine, UnitsWithoutAnyModelRunAreDoneToo) {
  Item item = MakePicture({1, 50, 61}, 3, DType::kU8, DType::kU8, 32, 8);
  item.transfer.passes[0].op = Pass::Op::kCopy;
  item.sizing.tiles = 2;
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "identity", 4), profile);
  const auto results = RunAll(*engine, WorksOf(item));
  EXPECT_EQ(Assemble(item, results), item.samples);
  EXPECT_EQ(std::get<InferOutput>(results[0]).tiles, 0);
  EXPECT_EQ(engine->finished_batches(), 0);
}

TEST(Engine, GrayResultsAreTheMeanOfTheModelsOutputs) {
  Item item = MakePicture({1, 40, 50}, 1, DType::kU8, DType::kF32, 32, 8);
  Transfer& t = item.transfer;
  t.model_in = t.model_out = 3;
  t.passes[0].in = {0, 0, 0};
  t.passes[0].out = {};
  t.passes[0].reduce = Pass::Reduce::kMean;
  const auto out = RunItem(item, OptionsFor(item, "identity"));
  EXPECT_LT(Difference(item, out, InModelRange(item)), 1e-6);
}

TEST(Engine, LabelsComeFromTheBlendedLogits) {
  Item item = MakePicture({1, 64, 75}, 1, DType::kU8, DType::kU8, 32, 8);
  Transfer& t = item.transfer;
  t.model_out = t.accumulators = item.sizing.channels = 3;
  t.passes[0].out = {0, 1, 2};
  t.passes[0].out_count = 3;
  t.post = {{PostOp::Kind::kArgmax, {}}, {PostOp::Kind::kLabels, {10, 20, 255}}};
  t.labels = true;
  item.sizing.tiles = 1;
  const auto out = RunItem(item, OptionsFor(item, "labels3"));
  ASSERT_EQ(out.size(), item.samples.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const double v = static_cast<double>(item.samples[i]) / 255;
    const int want = v < 0.3333 ? 10 : v <= 0.6667 ? 20 : 255;
    ASSERT_EQ(static_cast<int>(out[i]), want) << v;
  }
}

TEST(Engine, AnAtlasMayHaveMoreLabelsThanAThreadOfAGpuHoldsSums) {
  Item item = MakePicture({1, 64, 75}, 1, DType::kU8, DType::kU8, 32, 8);
  Transfer& t = item.transfer;
  t.model_out = t.accumulators = item.sizing.channels = 100;
  t.passes[0].out.clear();
  for (int k = 0; k < 100; ++k) t.passes[0].out.push_back(k);
  t.passes[0].out_count = 100;
  t.post = {{PostOp::Kind::kArgmax, {}}};
  t.labels = true;
  for (const int64_t tiles : {1, 1000}) {
    item.sizing.tiles = tiles;
    const auto out = RunItem(item, OptionsFor(item, "levels100"));
    ASSERT_EQ(out.size(), item.samples.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const long want = std::lround(static_cast<double>(item.samples[i]) / 255 * 99);
      ASSERT_EQ(static_cast<long>(out[i]), want) << i << " of units of " << tiles;
    }
  }
}

TEST(Engine, RefusesAModelWhoseOutputContradictsTheContract) {
  Item item = MakePicture({1, 64, 64}, 3, DType::kU8, DType::kU8, 32, 8);
  Profile profile;
  const auto message = [&](EngineOptions options) {
    try {
      CreateEngine(options, profile);
      return std::string("accepted");
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::kModel);
      return std::string(e.what());
    }
  };
  EXPECT_NE(message(OptionsFor(item, "nearest4")).find("[2,3,128,128]"), std::string::npos);
  EXPECT_NE(message(OptionsFor(item, "nearest4")).find("[2,3,32,32]"), std::string::npos);
  EXPECT_NE(message(OptionsFor(item, "gray")).find("[2,1,32,32]"), std::string::npos);
  EngineOptions missing = OptionsFor(item, "identity");
  missing.model = "/nowhere/model.pt";
  EXPECT_NE(message(missing).find("/nowhere/model.pt"), std::string::npos);
}

TEST(Engine, RefusesWorkThatDoesNotFitIt) {
  Item item = MakePicture({1, 64, 64}, 3, DType::kU8, DType::kU8, 32, 8);
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "identity"), profile);
  item.tiling.tile = {1, 16, 16};
  const auto results = RunAll(*engine, WorksOf(item));
  ASSERT_TRUE(std::holds_alternative<std::exception_ptr>(results[0]));
  EXPECT_THROW(Assemble(item, results), Error);
}

TEST(Engine, RefusesWorkByNameWithoutReadingItsSamples) {
  const Item item = MakePicture({1, 64, 64}, 3, DType::kF32, DType::kF32, 32, 8);
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "identity"), profile);
  const auto message = [&](const std::function<void(InferWork&)>& spoil) {
    std::vector<InferWork> works;
    works.push_back(std::move(WorksOf(item).at(0)));
    spoil(works[0]);
    const auto results = RunAll(*engine, std::move(works));
    if (std::holds_alternative<InferOutput>(results[0])) return std::string("accepted");
    try {
      std::rethrow_exception(std::get<std::exception_ptr>(results[0]));
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::kInternal);
      return std::string(e.what());
    }
  };
  EXPECT_EQ(message([](InferWork&) {}), "accepted");
  // Nothing lies where these samples would be.
  EXPECT_NE(message([](InferWork& work) {
              work.input.data = nullptr;
              work.input.shape = {1, 8, 8};
            }).find("do not cover"),
            std::string::npos);
  EXPECT_NE(message([](InferWork& work) {
              work.input.data = nullptr;
              work.input.dtype = DType::kF64;
            }).find("no f32"),
            std::string::npos);
  for (const int64_t block : {int64_t{-1}, int64_t{1} << 40}) {
    EXPECT_NE(message([&](InferWork& work) { work.block = block; }).find("item: there is no block"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace tilery
