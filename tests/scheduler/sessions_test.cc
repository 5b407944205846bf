#include "scheduler/sessions.h"

#include <gtest/gtest.h>

#include "scheduler/grants.h"
#include "tests/io/temp_folder.h"
#include "tests/scheduler/coord_support.h"

namespace tilery {
namespace {

Json Hello(const std::string& id, int64_t pid) {
  return {{"worker", id}, {"pid", pid}, {"host", "here"}, {"device", "cpu"}};
}

class Sessions : public testing::Test {
 protected:
  Plan plan_ = MakeTestPlan(std::vector<ItemSpec>(10, {1}), "/data");
  UnitQueue queue_{plan_.items, {}};
  SessionTable table_;
};

TEST_F(Sessions, AReconnectKeepsItsSessionAndANewProcessGetsItsOwn) {
  Session& first = table_.Join(1, Hello("w0", 10), queue_, 0);
  table_.Unlink(first);
  EXPECT_EQ(&table_.Join(2, Hello("w0", 10), queue_, 1), &first);
  EXPECT_EQ(table_.Of(2), &first);
  EXPECT_EQ(table_.Of(1), nullptr);
  Session& second = table_.Join(3, Hello("w0", 11), queue_, 2);
  EXPECT_NE(&second, &first);
  EXPECT_EQ(first.replaced_at, 2);
  EXPECT_EQ(table_.OldestAlive("w0"), &first) << "a death that is told late is the older one's";
  first.alive = false;
  EXPECT_EQ(table_.OldestAlive("w0"), &second);
  EXPECT_EQ(table_.ByIndex(second.index), &second);
  EXPECT_EQ(table_.alive(), 1);
}

TEST_F(Sessions, TheHungLimitFollowsTheSlowestBatch) {
  Session& s = table_.Join(1, Hello("w0", 10), queue_, 0);
  const auto renew = [&](const char* phase, int batches, double now) {
    SessionTable::TakeRenewal(s, {{"phase", phase}, {"batches", batches}}, now);
  };
  renew("load", 0, 0);
  EXPECT_EQ(SessionTable::HungLimit(s, 120), 600);
  renew("run", 0, 10);
  EXPECT_EQ(SessionTable::HungLimit(s, 120), 120);
  renew("run", 2, 50);  // 20 s each
  EXPECT_EQ(SessionTable::HungLimit(s, 120), 400);
  EXPECT_EQ(s.changed_at, 50);
  renew("run", 2, 90);
  EXPECT_EQ(s.changed_at, 50);
  renew("run", 3, 91);
  EXPECT_EQ(SessionTable::HungLimit(s, 120), 41 * 20);
}

TEST(ClockOffset, IsThatOfTheQuickestMessageOfTheLatest) {
  ClockOffset clock;
  EXPECT_EQ(clock.us(), 0);
  clock.Heard(1'000'000, 3.5);  // half a second under way
  EXPECT_EQ(clock.us(), 2'500'000);
  clock.Heard(2'000'000, 4.001);
  EXPECT_EQ(clock.us(), 2'001'000);
  clock.Heard(3'000'000, 9);  // it waited for a link
  EXPECT_EQ(clock.us(), 2'001'000);
  // Clocks drift: what was true a while ago is forgotten.
  for (size_t k = 0; k < ClockOffset::kKept; ++k)
    clock.Heard(static_cast<int64_t>(k) * 1'000'000, static_cast<double>(k) + 2.25);
  EXPECT_EQ(clock.us(), 2'250'000);
}

TEST_F(Sessions, AProfileThatWasLongUnderWayKeepsItsTimes) {
  Session& s = table_.Join(1, Hello("w0", 10), queue_, 0);
  SessionTable::TakeRenewal(s, {{"phase", "run"}, {"batches", 0}, {"sent_us", 5'000'000}}, 8.0);
  SessionTable::TakeProfile(
      s, {{"clock_us", 6'000'000}, {"trace", {{"read", 5'500'000, 20, 1, 7}}}}, 20.0);
  EXPECT_EQ(SessionTable::Report(s, true, true).trace,
            (std::vector<TraceRow>{{"read", 8'500'000, 20, 1, 7}}));
}

TEST_F(Sessions, ProfilesMoveTraceEventsToTheClockOfTheRun) {
  Session& s = table_.Join(1, Hello("w0", 10), queue_, 0);
  SessionTable::TakeProfile(s,
                            {{"stages", {{"read", {{"s", 1.5}, {"calls", 2}, {"bytes", 3}}}}},
                             {"busy_s", 4.0},
                             {"alive_s", 10.0},
                             {"model_s", 2.5},
                             {"model_idle_s", {{"read", 1.25}}},
                             {"queues", {{"reading", {{"mean", 0.5}, {"most", 2}}}}},
                             {"peak_host_bytes", 77},
                             {"clock_us", 5000000},
                             {"trace", {{"read", 4000000, 20, 1, 7}, {"odd"}}}},
                            8.0);
  const WorkerReport report = SessionTable::Report(s, true, true);
  EXPECT_EQ(report.state, "busy");
  EXPECT_EQ(report.idle_s, 6.0);
  EXPECT_EQ(report.model_s, 2.5);
  EXPECT_EQ(report.model_idle_s.at("read"), 1.25);
  EXPECT_EQ(report.queues.at("reading").at("most"), 2);
  EXPECT_EQ(report.peak_host_bytes, 77);
  EXPECT_EQ(report.stages.at("read").at("calls"), 2);
  EXPECT_EQ(report.trace, (std::vector<TraceRow>{{"read", 7000000, 20, 1, 7}}));
  EXPECT_TRUE(SessionTable::Report(s, false, false).trace.empty());
}

TEST_F(Sessions, NonsenseInReportsIsNoHarm) {
  Session& s = table_.Join(1, Json{{"worker", 5}, {"pid", "x"}}, queue_, 0);
  SessionTable::TakeProfile(
      s, {{"stages", 3}, {"busy_s", "much"}, {"queues", 1}, {"model_s", "x"}, {"trace", "none"}},
      1);
  SessionTable::TakeRenewal(s, {{"phase", 1}, {"batches", "two"}}, 1);
  EXPECT_EQ(s.report.busy_s, 0);
}

class Grants : public Sessions {
 protected:
  Grants() : context_(TestContext(plan_, folder_.path().string())), ledger_(folder_.path()) {
    for (int i = 0; i < 2; ++i) {
      sessions_[i] = &table_.Join(i + 1, Hello("w" + std::to_string(i), i), queue_, 0);
    }
  }
  std::vector<LeaseAnswer> Grant() {
    return GrantLeases(table_, queue_, builder_, 0,
                       [](int64_t, const std::string& why) { ADD_FAILURE() << why; });
  }
  static void Want(Session& s, int64_t tiles) {
    s.tiles_wanted = s.stages_wanted = s.assembles_wanted = tiles;
    s.asked = true;
  }
  TempFolder folder_;
  WorkerContext context_;
  Ledger ledger_;
  WorkBuilder builder_{plan_, context_, ledger_, 1};
  Session* sessions_[2] = {};
};

TEST_F(Grants, AShortQueueIsSharedEvenly) {
  Want(*sessions_[0], 100);
  Want(*sessions_[1], 100);
  const auto answers = Grant();
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0].leases.size(), 5u);
  EXPECT_EQ(answers[1].leases.size(), 5u);
  EXPECT_FALSE(answers[0].more);
}

TEST_F(Grants, NoWorkerGetsMoreThanItWants) {
  Want(*sessions_[0], 3);
  const auto answers = Grant();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].leases.size(), 3u);
  EXPECT_TRUE(answers[0].more);
  EXPECT_TRUE(Grant().empty()) << "an answer is given once";
}

TEST_F(Grants, WhoAsksInVainIsToldSoOnceAndGetsWorkWhenItAppears) {
  Want(*sessions_[0], 100);
  const auto all = Grant();
  Want(*sessions_[1], 100);
  auto answers = Grant();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(answers[0].leases.empty());
  EXPECT_FALSE(answers[0].more);
  EXPECT_TRUE(Grant().empty());
  const Json& lease = all[0].leases[4];
  queue_.Return(lease.at("lease"), sessions_[0]->index, true);
  sessions_[0]->tiles_wanted = 0;
  answers = Grant();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].session, sessions_[1]);
  EXPECT_EQ(answers[0].leases.size(), 1u);
}

}  // namespace
}  // namespace tilery
