// Outcomes, bands, buffers and fault rules: the parts without threads or files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <random>
#include <set>

#include "io/error.h"
#include "pipeline/host_buffers.h"
#include "scheduler/attempt_name.h"
#include "tests/worker/counted_memory.h"
#include "worker/bands.h"
#include "worker/fault_points.h"
#include "worker/outcome.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;

template <typename E>
std::optional<Outcome> OutcomeOfThrown(const E& error) {
  return OutcomeOf(std::make_exception_ptr(error), "encode");
}

TEST(OutcomeOf, FailsTheItemWithStageAndMessageForFaultsOfInputOutputAndModel) {
  for (const Fault fault : {Fault::kInput, Fault::kOutput, Fault::kModel}) {
    const auto outcome = OutcomeOfThrown(Error(fault, "/data/a.png: too short"));
    const Failed& failed = std::get<Failed>(outcome.value());
    EXPECT_EQ(failed.fault, fault);
    EXPECT_EQ(failed.stage, "encode");
    EXPECT_EQ(failed.reason, "/data/a.png: too short");
  }
}

TEST(OutcomeOf, RetriesWhatMayGoAway) {
  const auto stale = OutcomeOfThrown(Error(Fault::kTransient, "stale handle"));
  EXPECT_EQ(std::get<Retry>(stale.value()).reason, "stale handle");
  const auto memory = OutcomeOfThrown(std::bad_alloc());
  EXPECT_THAT(std::get<Retry>(memory.value()).reason, HasSubstr("out of memory"));
}

TEST(OutcomeOf, NamesTheUnitThatMakesALostBrick) {
  const auto outcome = OutcomeOfThrown(LostFile("0123", 42, "brick x: checksum"));
  const LostBrick& lost = std::get<LostBrick>(outcome.value());
  EXPECT_EQ(lost.brick_key, "0123");
  EXPECT_EQ(lost.unit, 42);
  EXPECT_EQ(lost.reason, "brick x: checksum");
}

TEST(OutcomeOf, ReportsNothingForAnAbandonedUnit) {
  EXPECT_FALSE(OutcomeOfThrown(Abandoned()).has_value());
}

TEST(OutcomeOf, FailsTheItemForFaultsOfOursAndNeverRetriesThem) {
  const auto ours = OutcomeOfThrown(Error(Fault::kInternal, "bands out of order"));
  EXPECT_EQ(std::get<Failed>(ours.value()).fault, Fault::kInternal);
  const auto foreign = OutcomeOfThrown(std::out_of_range("map::at"));
  EXPECT_THAT(std::get<Failed>(foreign.value()).reason, HasSubstr("map::at"));
  const auto unknown = OutcomeOf(std::make_exception_ptr(7), "read");
  EXPECT_EQ(std::get<Failed>(unknown.value()).fault, Fault::kInternal);
}

// Every band is full-width, follows the one before, and all together are the shape.
void ExpectBands(const Index& shape, const std::vector<Box>& bands) {
  int64_t row = 0;  // of all planes one after the other
  for (const Box& band : bands) {
    EXPECT_EQ(band.begin[2], 0);
    EXPECT_EQ(band.end[2], shape[2]);
    EXPECT_EQ(band.begin[0] * shape[1] + band.begin[1], row);
    if (band.extent(0) > 1) {
      EXPECT_EQ(band.extent(1), shape[1]);
    }
    row += band.extent(0) * band.extent(1);
  }
  EXPECT_EQ(row, shape[0] * shape[1]);
}

TEST(CutBands, CoversTheShapeInOrderWithinTheLimit) {
  for (const Index& shape :
       {Index{1, 1, 1}, Index{1, 1000, 33}, Index{7, 10, 10}, Index{9, 100, 50}}) {
    for (const int64_t limit : {1, 100, 999, 5000, 1 << 20}) {
      const std::vector<Box> bands = CutBands(shape, 3, limit);
      ExpectBands(shape, bands);
      for (const Box& band : bands) {
        if (band.extent(0) * band.extent(1) > 1) {
          EXPECT_LE(band.voxels() * 3, limit);
        }
        EXPECT_LE(band.voxels(), bands.front().voxels());
      }
    }
  }
}

TEST(CutBands, KeepsToTheGranularityOfRows) {
  const std::vector<Box> bands = CutBands({1, 100, 10}, 1, 350, 16);
  ExpectBands({1, 100, 10}, bands);
  for (const Box& band : bands) EXPECT_EQ(band.begin[1] % 16, 0);
  EXPECT_EQ(bands.front().extent(1), 32);
  EXPECT_EQ(CutBands({1, 100, 10}, 1, 5, 16).front().extent(1), 16);  // at least one strip
}

TEST(HostBuffers, GiveTheSameMemoryAgainForTheSameSize) {
  HostBuffers buffers(1 << 20);
  const std::byte* const first = buffers.Take(100'000).get();
  EXPECT_EQ(buffers.idle_bytes(), HostBuffers::Rounded(100'000));
  EXPECT_EQ(buffers.Take(99'000).get(), first);
}

TEST(HostBuffers, CountAllocationsOnlyAfterTheWarmUp) {
  HostBuffers buffers(1 << 20);
  buffers.Take(50'000);
  EXPECT_EQ(buffers.steady_allocations(), 0);
  buffers.MarkWarm();
  buffers.Take(50'000);
  EXPECT_EQ(buffers.steady_allocations(), 0);
  const auto held = buffers.Take(50'000);
  buffers.Take(50'000);
  EXPECT_EQ(buffers.steady_allocations(), 1);
}

TEST(HostBuffers, KeepNoMoreThanTheirLimit) {
  HostBuffers buffers(100'000);
  { const auto a = buffers.Take(40'000), b = buffers.Take(40'000), c = buffers.Take(40'000); }
  EXPECT_LE(buffers.idle_bytes(), 100'000u);
  EXPECT_GT(buffers.idle_bytes(), 0u);
  buffers.Take(200'000);
  EXPECT_LE(buffers.idle_bytes(), 100'000u);
}

TEST(HostBuffers, ServeFromTheSmallestThatIsLargeEnough) {
  HostBuffers buffers(1 << 20);
  std::set<std::byte*> made;
  const std::byte* middle = nullptr;
  {
    const auto small = buffers.Take(32'768), large = buffers.Take(98'304),
               between = buffers.Take(65'536);
    middle = between.get();
    made = {small.get(), large.get(), between.get()};
  }
  EXPECT_EQ(buffers.Take(60'000).get(), middle);
  EXPECT_EQ(buffers.idle_bytes(), 196'608u);
  // What is more than twice as large waits for others.
  const auto tiny = buffers.Take(10'000);
  EXPECT_FALSE(made.contains(tiny.get()));
  const auto huge = buffers.Take(200'000);
  EXPECT_FALSE(made.contains(huge.get()));
}

TEST(HostBuffers, OfMemoryThatIsDearAreMadeOnlyUntilThereAreEnough) {
  const auto memory = std::make_shared<CountedMemory>();
  // Units of a volume: whole, and cut at one, two and three of its faces.
  constexpr std::array<size_t, 4> kSizes{160'000, 120'000, 70'000, 30'000};
  constexpr size_t kInFlight = 7;
  size_t most_used = 0;
  {
    HostBuffers buffers(memory);
    std::mt19937 random(1);
    std::deque<std::pair<std::shared_ptr<std::byte>, size_t>> units;
    size_t used = 0;
    for (int i = 0; i < 20'000; ++i) {
      // Between bursts all are idle, as when the writer is fast for once.
      const size_t keep = i % 50 == 0 ? 0 : random() % kInFlight;
      while (units.size() > keep) {
        const auto one = units.begin() + static_cast<ptrdiff_t>(random() % units.size());
        used -= one->second;
        units.erase(one);
      }
      const size_t size = kSizes[random() % kSizes.size()];
      units.emplace_back(buffers.Take(size), size);
      used += size;
      most_used = std::max(most_used, used);
    }
  }
  EXPECT_LE(memory->allocations(), static_cast<int64_t>(kInFlight * kSizes.size()));
  EXPECT_GE(memory->allocations(), static_cast<int64_t>(kInFlight));
  EXPECT_LE(memory->most_held(), 3 * most_used);
  EXPECT_EQ(memory->held(), 0u);
}

TEST(HostBuffers, RoundUpByAQuarterAtMost) {
  for (size_t bytes = 1; bytes < 3'000'000; bytes += 977) {
    EXPECT_GE(HostBuffers::Rounded(bytes), bytes);
    if (bytes > 4096) {
      EXPECT_LE(HostBuffers::Rounded(bytes), bytes + bytes / 4 + 1);
    }
  }
}

TEST(HostBuffers, MayBeOutlivedByABuffer) {
  std::shared_ptr<std::byte> buffer;
  {
    HostBuffers buffers(1 << 20);
    buffer = buffers.Take(10'000);
  }
  buffer.get()[9'999] = std::byte{1};
  EXPECT_EQ(buffer.get()[9'999], std::byte{1});
}

TEST(FaultRules, AreReadFromText) {
  const auto rules = ParseFaultRules(
      "kill@publish:3,delay@read:50ms,hold@write:4,hang@submit:2,exhaust@submit:1/w1");
  ASSERT_EQ(rules.size(), 5u);
  EXPECT_EQ(rules[0].action, FaultRule::Action::kKill);
  EXPECT_EQ(rules[0].place, FaultPlace::kPublish);
  EXPECT_EQ(rules[0].argument, 3);
  EXPECT_EQ(rules[1].action, FaultRule::Action::kDelay);
  EXPECT_EQ(rules[1].argument, 50);
  EXPECT_EQ(rules[2].action, FaultRule::Action::kHold);
  EXPECT_EQ(rules[2].place, FaultPlace::kWrite);
  EXPECT_EQ(rules[2].argument, 4);
  EXPECT_EQ(rules[3].action, FaultRule::Action::kHang);
  EXPECT_EQ(rules[3].worker, "");
  EXPECT_EQ(rules[4].action, FaultRule::Action::kExhaust);
  EXPECT_EQ(rules[4].argument, 1);
  EXPECT_EQ(rules[4].worker, "w1");
}

TEST(FaultRules, AreRefusedWithAllThatIsAllowed) {
  for (const char* text :
       {"kill", "kill@publish", "burn@read:1", "kill@moon:1", "kill@read:0", "kill@read:x"}) {
    try {
      ParseFaultRules(text);
      ADD_FAILURE() << text << " was taken";
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::kUsage);
      EXPECT_THAT(e.what(), HasSubstr(text));
    }
  }
}

TEST(AttemptName, DiffersBetweenWorkFoldersUnitsRunsAndAttempts) {
  const std::string name = AttemptName("/out/w", 12, 3, 1);
  EXPECT_THAT(name, ::testing::MatchesRegex("[0-9a-f]+\\.12\\.3\\.1"));
  EXPECT_NE(name, AttemptName("/out/w", 1, 23, 1));
  EXPECT_NE(name, AttemptName("/out/v", 12, 3, 1));
  EXPECT_EQ(name, AttemptName("/out/./w/", 12, 3, 1)) << "the same folder";
}

TEST(AttemptName, IsKnownAsOneOfItsWorkFolderOnly) {
  const std::string name = AttemptName("/out/w", 12, 3, 1);
  EXPECT_TRUE(IsAttemptOf("/out/w", name));
  EXPECT_TRUE(IsAttemptOf("/out/w/", name));
  EXPECT_FALSE(IsAttemptOf("/out/v", name));
  for (const std::string& other :
       {std::string("12.3.1"), name + ".4", name.substr(0, name.size() - 2), name + "x",
        std::string("small-host-1-2"), std::string()}) {
    EXPECT_FALSE(IsAttemptOf("/out/w", other)) << other;
  }
}

}  // namespace
}  // namespace tilery
