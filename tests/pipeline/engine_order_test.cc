// The same bytes whatever else is in flight: lanes, order of submission, batch mates, filling.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

using namespace tilery::testing;

Item Picture(uint64_t seed, const Index& shape) {
  Item item = MakePicture(shape, 3, DType::kU8, DType::kF32, 32, 16, seed);
  item.tiling.multiple = {1, 2, 2};
  item.sizing.tiles = 3;
  item.id = static_cast<int64_t>(seed);
  item.name = "picture " + std::to_string(seed);
  return item;
}

TEST(EngineOrder, RealNetsGiveTheSameBytesForOneAndTwoAndThreeLanes) {
  for (const char* model : {"conv", "unet2d"}) {
    const Item item = Picture(3, {1, 120, 150});
    const auto one = RunItem(item, OptionsFor(item, model, 4, 1));
    for (int lanes : {2, 3}) {
      for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(RunItem(item, OptionsFor(item, model, 4, lanes)), one) << model << " " << lanes;
      }
    }
  }
}

TEST(EngineOrder, VolumetricNetsGiveTheSameBytesForOneAndTwoLanes) {
  for (const char* model : {"unet3d", "dilated3d"}) {
    for (int64_t batch : {1, 2}) {
      Item item = MakePicture({40, 36, 44}, 1, DType::kU16, DType::kF32, 16, 8);
      item.sizing.tiles = 5;
      item.tiling.multiple = {2, 2, 2};
      const auto one = RunItem(item, OptionsFor(item, model, batch, 1));
      EXPECT_EQ(RunItem(item, OptionsFor(item, model, batch, 2)), one) << model << " " << batch;
    }
  }
}

// Tiles get into slots as they come, so bytes must not depend on which.
TEST(EngineOrder, OnlySlotsThatAreUsedDecideBytes) {
  const Item item = Picture(6, {1, 120, 150});
  const auto wanted = RunItem(item, OptionsFor(item, "identity", 1, 1));
  for (const auto& [slots, batch] : std::vector<std::pair<std::string, int64_t>>{
           {"0-1,3", 4}, {"0", 4}, {"3", 4}, {"0", 2}, {"0-2,4-5", 6}}) {
    for (int lanes : {1, 2}) {
      EngineOptions options = OptionsFor(item, "other_slot", batch, lanes);
      EXPECT_NE(RunItem(item, options), wanted) << "of all slots one gives other values";
      options.numerics.slots = slots;
      EXPECT_EQ(RunItem(item, options), wanted) << slots << " of " << batch;
    }
  }
}

TEST(EngineOrder, OneUsedSlotHasCopiesOfItsTileBesideIt) {
  const Item item = Picture(7, {1, 120, 150});
  EngineOptions options = OptionsFor(item, "relative", 4, 1);
  EXPECT_NE(RunItem(item, options), RunItem(item, OptionsFor(item, "relative", 1, 1)));
  options.numerics.slots = "0";
  EXPECT_EQ(RunItem(item, options), RunItem(item, OptionsFor(item, "relative", 1, 1)));
}

TEST(EngineOrder, UnitsOfManyItemsInAnyOrderGiveEachItemItsOwnBytes) {
  std::vector<Item> items;
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    items.push_back(Picture(seed, {1, 40 + static_cast<int64_t>(seed) * 17, 70}));
  }
  std::vector<std::vector<std::byte>> alone;
  for (const Item& item : items) alone.push_back(RunItem(item, OptionsFor(item, "unet2d", 4, 1)));

  for (int lanes : {1, 2}) {
    Profile profile;
    const auto engine = CreateEngine(OptionsFor(items[0], "unet2d", 4, lanes), profile);
    std::mt19937 random(5);
    for (int round = 0; round < 3; ++round) {
      std::vector<std::pair<size_t, size_t>> order;  // item, block
      std::vector<InferWork> works;
      for (size_t i = 0; i < items.size(); ++i) {
        const auto blocks = WorksOf(items[i]);
        for (size_t b = 0; b < blocks.size(); ++b) order.push_back({i, b});
      }
      std::shuffle(order.begin(), order.end(), random);
      for (const auto& [i, b] : order) works.push_back(WorksOf(items[i])[b]);
      const auto shuffled = RunAll(*engine, std::move(works));
      for (size_t i = 0; i < items.size(); ++i) {
        std::vector<InferResult> results(items[i].Geometry()->units());
        for (size_t k = 0; k < order.size(); ++k) {
          if (order[k].first == i) results[order[k].second] = shuffled[k];
        }
        ASSERT_EQ(Assemble(items[i], results), alone[i]) << "item " << i << " round " << round;
      }
    }
  }
}

TEST(EngineOrder, ConstantItemsThatShareBatchesKeepTheirOwnValue) {
  // Sizes that fill no batch, so that every batch mixes items and the last one is filled up.
  std::vector<Item> items;
  for (int k = 0; k < 11; ++k) {
    const Index shape = k < 8 ? Index{1, 80, 72} : Index{1, 33 + 20 * (k - 8), 50};
    Item item = MakePicture(shape, 3, DType::kU8, DType::kU8, 32, 8);
    std::fill(item.samples.begin(), item.samples.end(), static_cast<std::byte>(10 * k + 5));
    item.id = k;
    items.push_back(std::move(item));
  }
  for (int round = 0; round < 20; ++round) {
    Profile profile;
    const auto engine = CreateEngine(OptionsFor(items[0], "slow", 5, 2), profile);
    std::vector<InferWork> works;
    std::vector<size_t> first;
    for (const Item& item : items) {
      first.push_back(works.size());
      for (InferWork& work : WorksOf(item)) works.push_back(std::move(work));
    }
    const auto results = RunAll(*engine, std::move(works));
    for (size_t k = 0; k < items.size(); ++k) {
      const auto begin = results.begin() + first[k];
      const std::vector<InferResult> own(begin, begin + items[k].Geometry()->units());
      ASSERT_EQ(Assemble(items[k], own), items[k].samples) << "item " << k;
    }
  }
}

TEST(EngineOrder, ABatchWaitsWhileMoreIsComingAndIsFilledUpOtherwise) {
  Item item = MakePicture({1, 32, 32}, 3, DType::kU8, DType::kU8, 32, 8);
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "identity", 4, 1), profile);
  engine->MoreComing(More::kSoon);
  std::atomic<int> done{0};
  const auto count = [&](InferResult result) {
    EXPECT_TRUE(std::holds_alternative<InferOutput>(result));
    ++done;
  };
  for (int i = 0; i < 3; ++i) engine->Submit(WorksOf(item)[0], count);
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_EQ(engine->queued_tiles(), 3);
  EXPECT_EQ(engine->finished_batches(), 0);

  engine->Submit(WorksOf(item)[0], count);  // the fourth fills the batch
  while (done < 4) std::this_thread::yield();
  EXPECT_EQ(engine->finished_batches(), 1);

  engine->Submit(WorksOf(item)[0], count);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(done, 4);
  engine->MoreComing(More::kNothing);
  while (done < 5) std::this_thread::yield();
  EXPECT_EQ(engine->finished_batches(), 2);
  EXPECT_EQ(engine->queued_tiles(), 0);
}

TEST(EngineOrder, TheResultDoesNotDependOnHowFarABatchIsFilled) {
  const Item item = Picture(9, {1, 70, 100});
  EngineOptions options = OptionsFor(item, "unet2d", 8, 1);
  const auto together = RunItem(item, options);
  Profile profile;
  const auto engine = CreateEngine(options, profile);
  std::vector<InferResult> results;
  for (InferWork& work : WorksOf(item)) {
    std::vector<InferWork> one;
    one.push_back(std::move(work));
    results.push_back(std::move(RunAll(*engine, std::move(one))[0]));
  }
  EXPECT_EQ(Assemble(item, results), together);
}

}  // namespace
}  // namespace tilery
