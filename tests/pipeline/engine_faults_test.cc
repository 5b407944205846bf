// What goes wrong inside a unit stays with the item it belongs to.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "io/error.h"
#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

using namespace tilery::testing;

Item Small(int64_t id, bool bright) {
  Item item = MakePicture({1, 48, 48}, 3, DType::kU8, DType::kU8, 32, 16, id + 1);
  item.id = id;
  item.name = "item-" + std::to_string(id);
  if (bright) item.samples[(40 * 48 + 40) * 3] = std::byte{255};
  return item;
}

std::string MessageOf(const InferResult& result, Fault* fault = nullptr) {
  if (std::holds_alternative<InferOutput>(result)) return "";
  try {
    std::rethrow_exception(std::get<std::exception_ptr>(result));
  } catch (const Error& e) {
    if (fault != nullptr) *fault = e.fault();
    return e.what();
  }
}

// Items 0 to 4, of which only 2 is bright, one unit each, in mixed batches.
std::vector<InferResult> RunFive(const std::string& model, int lanes, std::vector<Item>& items) {
  for (int64_t id = 0; id < 5; ++id) items.push_back(Small(id, id == 2));
  std::vector<InferWork> works;
  for (const Item& item : items) works.push_back(std::move(WorksOf(item).at(0)));
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(items[0], model, 5, lanes), profile);
  return RunAll(*engine, std::move(works));
}

TEST(EngineFaults, AnItemOnWhichTheModelThrowsFailsAloneAndItsBatchMatesRunAgain) {
  for (int lanes : {1, 2}) {
    std::vector<Item> items;
    const auto results = RunFive("throws_on_bright", lanes, items);
    int64_t repeated = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i == 2) continue;
      EXPECT_EQ(MessageOf(results[i]), "");
      EXPECT_EQ(Assemble(items[i], {results[i]}), items[i].samples) << i;
      EXPECT_EQ(std::get<InferOutput>(results[i]).tiles, 4);
      repeated += std::get<InferOutput>(results[i]).repeated;
    }
    EXPECT_GT(repeated, 0) << "what ran again is counted";
    Fault fault{};
    const std::string message = MessageOf(results[2], &fault);
    EXPECT_EQ(fault, Fault::kModel);
    EXPECT_NE(message.find("item-2"), std::string::npos) << message;
    EXPECT_NE(message.find("planted failure: a white pixel"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos) << "no traces: " << message;
  }
}

TEST(EngineFaults, AnOutputThatIsNotFiniteFailsItsItemAlone) {
  std::vector<Item> items;
  const auto results = RunFive("nan_on_bright", 2, items);
  for (size_t i = 0; i < items.size(); ++i) {
    if (i == 2) continue;
    EXPECT_EQ(Assemble(items[i], {results[i]}), items[i].samples) << i;
  }
  Fault fault{};
  const std::string message = MessageOf(results[2], &fault);
  EXPECT_EQ(fault, Fault::kModel);
  EXPECT_NE(message.find("item-2"), std::string::npos) << message;
  EXPECT_NE(message.find("not finite"), std::string::npos) << message;
  EXPECT_NE(message.find("[0:1, 16:48, 16:48]"), std::string::npos) << "the tile: " << message;
}

TEST(EngineFaults, AFailedUnitGivesUpItsRemainingTiles) {
  Item item = MakePicture({1, 400, 400}, 3, DType::kU8, DType::kU8, 32, 16);
  item.sizing.tiles = 1000;
  item.samples[0] = std::byte{255};
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "throws_on_bright", 2, 1), profile);
  const auto results = RunAll(*engine, WorksOf(item));
  EXPECT_NE(MessageOf(results[0]), "");
  EXPECT_LT(engine->finished_batches(), 5);
  EXPECT_EQ(engine->queued_tiles(), 0);
}

TEST(EngineFaults, DestructionReportsWhatWasNotRunAsTransient) {
  Item item = MakePicture({1, 300, 300}, 3, DType::kU8, DType::kU8, 32, 16);
  item.sizing.tiles = 4;
  Profile profile;
  auto engine = CreateEngine(OptionsFor(item, "slow", 5, 2), profile);
  std::atomic<int> done{0}, transient{0};
  auto works = WorksOf(item);
  const int count = static_cast<int>(works.size());
  // The last batch waits for more, so that something is left however quick the lanes are.
  ASSERT_NE(item.Geometry()->grid().tiles() % 5, 0);
  engine->MoreComing(More::kSoon);
  for (InferWork& work : works) {
    engine->Submit(std::move(work), [&](InferResult result) {
      ++done;
      Fault fault{};
      if (!MessageOf(result, &fault).empty() && fault == Fault::kTransient) ++transient;
    });
  }
  engine.reset();
  EXPECT_EQ(done, count) << "each unit is reported exactly once";
  EXPECT_GT(transient, 0);
}

Item WithHoles(Transfer::NonFinite rule, DType out) {
  Item item = MakePicture({1, 70, 90}, 1, DType::kF32, out, 32, 8);
  item.transfer.nonfinite = rule;
  item.sizing.tiles = 1;
  auto values = As<float>(item.samples);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  values[30 * 90 + 29] = std::numeric_limits<float>::infinity();  // in a seam of several units
  values[69 * 90 + 89] = -std::numeric_limits<float>::infinity();
  std::memcpy(item.samples.data(), values.data(), item.samples.size());
  return item;
}

TEST(EngineFaults, StoredValuesThatAreNotFiniteComeBackAtTheirVoxelsAndAreCounted) {
  const Item item = WithHoles(Transfer::NonFinite::kKeep, DType::kF32);
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "identity"), profile);
  const auto results = RunAll(*engine, WorksOf(item));
  const auto in = As<float>(item.samples), out = As<float>(Assemble(item, results));
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::isfinite(in[i])) {
      ASSERT_NEAR(out[i], in[i], 1e-6) << i;
    } else {
      ASSERT_TRUE(std::isnan(out[i])) << i;
    }
  }
  int64_t counted = 0;
  for (const auto& result : results) counted += std::get<InferOutput>(result).nonfinite_in;
  EXPECT_EQ(counted, 3) << "each voxel once, whatever units read it";
}

TEST(EngineFaults, StoredValuesThatAreNotFiniteBecomeTheLowEndOfIntegers) {
  const Item item = WithHoles(Transfer::NonFinite::kKeep, DType::kU8);
  const auto out = As<uint8_t>(RunItem(item, OptionsFor(item, "identity")));
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[30 * 90 + 29], 0);
  EXPECT_NE(out[1], 0);
}

TEST(EngineFaults, FillGivesTheModelsAnswerToTheFilling) {
  const Item item = WithHoles(Transfer::NonFinite::kFill, DType::kF32);
  const auto out = As<float>(RunItem(item, OptionsFor(item, "identity")));
  EXPECT_EQ(out[0], 0.0f);
  EXPECT_EQ(out[69 * 90 + 89], 0.0f);
}

TEST(EngineFaults, FailRefusesAnItemWithValuesThatAreNotFinite) {
  const Item item = WithHoles(Transfer::NonFinite::kFail, DType::kF32);
  Profile profile;
  const auto engine = CreateEngine(OptionsFor(item, "identity"), profile);
  const auto results = RunAll(*engine, WorksOf(item));
  Fault fault{};
  const std::string message = MessageOf(results[0], &fault);
  EXPECT_EQ(fault, Fault::kInput);
  EXPECT_NE(message.find("input.nonfinite"), std::string::npos) << message;
}

}  // namespace
}  // namespace tilery
