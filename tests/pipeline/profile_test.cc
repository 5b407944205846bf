#include "pipeline/profile.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "pipeline/profile_switch.h"

namespace tilery {
namespace {

using std::chrono::milliseconds;

TEST(Profile, CountsTimeCallsAndBytesPerStage) {
  Profile profile;
  {
    Profile::Scope scope(profile, Stage::kRead, 7, 100);
    scope.AddBytes(23);
    std::this_thread::sleep_for(milliseconds(20));
  }
  { const Profile::Scope scope(profile, Stage::kWrite); }
  const auto totals = profile.totals();
  EXPECT_EQ(totals[static_cast<size_t>(Stage::kRead)].calls, 1);
  EXPECT_EQ(totals[static_cast<size_t>(Stage::kRead)].bytes, 123);
  EXPECT_GE(totals[static_cast<size_t>(Stage::kRead)].s, 0.02);
  EXPECT_EQ(totals[static_cast<size_t>(Stage::kWrite)].calls, 1);
  EXPECT_EQ(totals[static_cast<size_t>(Stage::kCompute)].calls, 0);
}

TEST(Profile, BusyIsTheTimeWithAtLeastOneStageOpen) {
  Profile profile;
  {
    const Profile::Scope outer(profile, Stage::kCompute);
    std::thread other([&] {
      const Profile::Scope inner(profile, Stage::kRead);
      std::this_thread::sleep_for(milliseconds(30));
    });
    other.join();
    EXPECT_GE(profile.busy_s(), 0.03) << "an open scope counts already";
  }
  const double busy = profile.busy_s();
  std::this_thread::sleep_for(milliseconds(30));
  EXPECT_EQ(profile.busy_s(), busy) << "nobody works";
  EXPECT_GE(busy, 0.03);
  const auto totals = profile.totals();
  EXPECT_LT(busy, totals[static_cast<size_t>(Stage::kCompute)].s +
                      totals[static_cast<size_t>(Stage::kRead)].s)
      << "overlap counts once";
  EXPECT_GE(profile.alive_s(), busy + 0.03);
}

TEST(Profile, TheTraceKeepsTheNewestEventsInOrder) {
  Profile profile;
  for (int64_t i = 0; i < 50'010; ++i) const Profile::Scope scope(profile, Stage::kBlend, i);
  const auto events = profile.TakeTrace();
  ASSERT_EQ(events.size(), 50'000u);
  EXPECT_EQ(events.front().unit, 10);
  EXPECT_EQ(events.back().unit, 50'009);
  EXPECT_STREQ(events.front().name, "blend");
  EXPECT_TRUE(profile.TakeTrace().empty()) << "taken once";
}

TEST(Profile, PiecesThatFollowEachOtherAreOneEventOfTheTrace) {
  Profile profile;
  const auto begin = std::chrono::steady_clock::now();
  const auto add = [&](Stage stage, int64_t unit, int from_us, int to_us, uint32_t row) {
    profile.Add(stage, unit, 1, begin + std::chrono::microseconds(from_us),
                begin + std::chrono::microseconds(to_us), row);
  };
  add(Stage::kRead, 1, 1000, 1100, 1);
  add(Stage::kRead, 1, 1010, 1020, 2);  // of another thread
  add(Stage::kRead, 1, 1150, 1300, 1);  // goes on
  add(Stage::kRead, 1, 1600, 1700, 1);  // later
  add(Stage::kRead, 2, 1700, 1800, 1);  // of another unit
  add(Stage::kWrite, 2, 1800, 1900, 1);
  add(Stage::kCompute, 2, 1900, 2000, 1);
  add(Stage::kCompute, 2, 2000, 2100, 1);  // model runs are counted
  add(Stage::kBlend, 2, 2000, 2100, Profile::kFinishRow);
  add(Stage::kBlend, 2, 2100, 2200, Profile::kFinishRow);
  const auto events = profile.TakeTrace();
  std::vector<int64_t> lengths;
  for (const TraceEvent& event : events) lengths.push_back(event.duration_us);
  EXPECT_EQ(lengths, (std::vector<int64_t>{300, 10, 100, 100, 100, 100, 100, 100, 100}));
  EXPECT_EQ(profile.totals()[static_cast<size_t>(Stage::kRead)].calls, 5);
  add(Stage::kRead, 1, 2300, 2400, 1);
  EXPECT_EQ(profile.TakeTrace().size(), 1u) << "what was taken is not added to";
}

TEST(Profile, ThreadsCountTogether) {
  Profile profile;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) const Profile::Scope scope(profile, Stage::kEncode, i, 2);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(profile.totals()[static_cast<size_t>(Stage::kEncode)].calls, 4000);
  EXPECT_EQ(profile.totals()[static_cast<size_t>(Stage::kEncode)].bytes, 8000);
  EXPECT_LE(profile.busy_s(), profile.alive_s());
}

TEST(Profile, RecordsNothingWhileThatIsSwitchedOff) {
  Profile profile;
  { const Profile::Scope scope(profile, Stage::kCompute, 1); }
  RecordProfiles(false);
  {
    const Profile::Busy busy(profile);
    const Profile::Scope scope(profile, Stage::kCompute, 2, 8);
    const auto now = std::chrono::steady_clock::now();
    profile.Add(Stage::kD2h, 2, 8, now, now, Profile::kCopyOutRow);
  }
  RecordProfiles(true);
  { const Profile::Scope scope(profile, Stage::kCompute, 3); }
  const auto totals = profile.totals();
  EXPECT_EQ(totals[static_cast<size_t>(Stage::kCompute)].calls, 2);
  EXPECT_EQ(totals[static_cast<size_t>(Stage::kCompute)].bytes, 0);
  EXPECT_EQ(totals[static_cast<size_t>(Stage::kD2h)].calls, 0);
  const auto events = profile.TakeTrace();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].unit, 3);
}

TEST(Profile, StagesHaveTheNamesOfTheReport) {
  EXPECT_STREQ(StageName(Stage::kRead), "read");
  EXPECT_STREQ(StageName(Stage::kH2d), "h2d");
  EXPECT_STREQ(StageName(Stage::kD2h), "d2h");
  EXPECT_STREQ(StageName(Stage::kWrite), "write");
}

TEST(Profile, PrivateMemoryGrowsWithWhatIsTouched) {
  const int64_t before = PrivateMemory();
  EXPECT_GT(before, 0);
  std::vector<char> memory(64 << 20, 1);
  EXPECT_GE(PrivateMemory(), before + (60 << 20)) << static_cast<int>(memory[1]);
}

}  // namespace
}  // namespace tilery
