#include "worker/memory_run.h"

#include <gtest/gtest.h>

#include "scheduler/bench_wire.h"
#include "tests/io/expect_error.h"
#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

constexpr double kShort = 1e-3;  // seconds: one unit after the warm-up, as a rule

MemoryItem MemoryItemOf(const testing::Item& item) {
  MemoryItem memory;
  memory.header.dtype = item.transfer.in_dtype;
  memory.header.channels = item.channels;
  memory.header.shape = item.shape;
  memory.sizing = item.sizing;
  memory.params.tiling = item.tiling;
  memory.params.transfer = item.transfer;
  return memory;
}

// An item with the samples that a memory run makes.
testing::Item SyntheticItem(const Index& shape, int32_t channels, DType in, DType out,
                            int64_t tiles_per_unit) {
  testing::Item item = testing::MakePicture(shape, channels, in, out, 16, 4);
  item.sizing.tiles = tiles_per_unit;
  FillBenchSamples(MemoryItemOf(item).header, 0, 1, item.samples.data());
  return item;
}

std::vector<std::byte> OutputOf(const MemoryRun& run) {
  const ConstView view = run.output();
  return {view.data, view.data + view.bytes()};
}

TEST(MemoryRun, TheArrayHoldsWhatTheUnitsMakeTogether) {
  const struct {
    const char* model;
    Index shape;
    int32_t channels;
    DType in, out;
    int64_t tiles;
  } cases[] = {{"conv", {1, 70, 90}, 3, DType::kU8, DType::kU8, 4},
               {"conv", {1, 70, 90}, 3, DType::kF32, DType::kF32, 2},
               {"conv", {1, 40, 40}, 3, DType::kU16, DType::kU8, 1000},
               {"unet3d", {40, 36, 30}, 1, DType::kU8, DType::kF32, 4}};
  for (const auto& c : cases) {
    const testing::Item item = SyntheticItem(c.shape, c.channels, c.in, c.out, c.tiles);
    const EngineOptions options = testing::OptionsFor(item, c.model, 2, 2);
    Profile profile;
    const auto engine = Engine::Create(options, profile);
    MemoryRun run(MemoryItemOf(item), 2, 2, 2, *engine, profile);
    // Units of a few rounds are under way at a time; the last complete one is looked at.
    run.Run(kShort);
    run.Run(0.2);
    EXPECT_EQ(OutputOf(run), testing::RunItem(item, options)) << c.model << " " << c.tiles;
  }
}

TEST(MemoryRun, CountsWholeUnitsAndTheBatchesOfThatTime) {
  const testing::Item item = SyntheticItem({1, 64, 64}, 3, DType::kU8, DType::kU8, 1000);
  const EngineOptions options = testing::OptionsFor(item, "identity", 4, 1);
  Profile profile;
  const auto engine = Engine::Create(options, profile);
  MemoryRun run(MemoryItemOf(item), 4, 1, 1, *engine, profile);
  const int64_t tiles = item.Geometry()->grid().tiles();
  ASSERT_EQ(item.Geometry()->units(), 1);
  const MemoryRun::Measured measured = run.Run(0.05);
  EXPECT_GT(measured.tiles, 0);
  EXPECT_EQ(measured.tiles % tiles, 0);
  EXPECT_GE(measured.seconds, 0.05);
  EXPECT_FALSE(measured.batch_s.empty());
}

TEST(MemoryRun, TheFirstErrorOfAUnitEndsTheRun) {
  testing::Item item = SyntheticItem({1, 64, 64}, 3, DType::kF32, DType::kF32, 4);
  // A model that gives half the channels it was declared to have would not even load; one whose
  // results do not fit the output type fails unit by unit.
  item.transfer.out_dtype = DType::kF16;
  item.transfer.post = {{PostOp::Kind::kScale, {1e9, 0}}};
  const EngineOptions options = testing::OptionsFor(item, "identity", 2, 1);
  Profile profile;
  const auto engine = Engine::Create(options, profile);
  MemoryRun run(MemoryItemOf(item), 2, 1, 2, *engine, profile);
  ErrorOf(Fault::kModel, [&] { run.Run(kShort); });
}

}  // namespace
}  // namespace tilery
