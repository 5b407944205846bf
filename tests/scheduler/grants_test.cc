// From when on a worker has to show progress.
#include "scheduler/grants.h"

#include <gtest/gtest.h>

#include "tests/io/temp_folder.h"
#include "tests/scheduler/coord_support.h"

namespace tilery {
namespace {

class GrantLeasesTest : public testing::Test {
 protected:
  Session& Join(const std::string& name) {
    return sessions_.Join(++peers_, {{"worker", name}, {"pid", peers_}}, queue_, 0);
  }
  void Infer(const Session& by, int units) {
    for (; units > 0; --units) {
      const auto grant = queue_.Lease(by.index, {.infer = true}, 0);
      std::vector<UnitQueue::Dropped> dropped;
      ASSERT_TRUE(grant && queue_.Finish(grant->lease, grant->unit, dropped));
    }
  }
  // All but `silent` have renewed their leases just before.
  size_t GrantAt(double now, const Session* silent = nullptr) {
    for (const auto& session : sessions_.all()) {
      if (session.get() != silent) queue_.Renew(session->index, now);
    }
    const auto answers = GrantLeases(sessions_, queue_, builder_, now,
                                     [](int64_t, const std::string& why) { FAIL() << why; });
    size_t leases = 0;
    for (const LeaseAnswer& answer : answers) leases += answer.leases.size();
    return leases;
  }

  TempFolder folder_;
  const Plan plan_ = MakeTestPlan({{4}}, folder_.path());
  const WorkerContext context_;
  Ledger ledger_{folder_.path()};
  WorkBuilder builder_{plan_, context_, ledger_, 1};
  UnitQueue queue_{plan_.items, {}};
  SessionTable sessions_;
  PeerId peers_ = 0;
};

TEST_F(GrantLeasesTest, AWorkerIsTimedFromItsFirstLease) {
  Session& worker = Join("a");
  worker.tiles_wanted = 1;
  EXPECT_EQ(GrantAt(70), 1u);
  EXPECT_EQ(worker.changed_at, 70);
  worker.tiles_wanted = 1;
  EXPECT_EQ(GrantAt(80), 1u);
  EXPECT_EQ(worker.changed_at, 70);
}

TEST_F(GrantLeasesTest, AWorkerThatFellSilentGetsNothingUntilItIsHeardAgain) {
  Session &silent = Join("a"), &other = Join("b");
  silent.tiles_wanted = other.tiles_wanted = 1;
  EXPECT_EQ(GrantAt(70), 2u);
  silent.tiles_wanted = 1;
  EXPECT_EQ(GrantAt(90, &silent), 0u);
  EXPECT_EQ(silent.tiles_wanted, 1);
  EXPECT_EQ(GrantAt(91), 1u);
}

// Else the time that it idled before would count as that of its first band.
TEST_F(GrantLeasesTest, AWorkerIsTimedFromAnEarlyLeaseWhenItHasNothingElse) {
  Session &inferrer = Join("a"), &worker = Join("b");
  Infer(inferrer, 2);
  worker.assembles_wanted = 1;
  EXPECT_EQ(GrantAt(70), 1u);
  EXPECT_EQ(queue_.HeldBy(worker.index), 1u);
  EXPECT_EQ(queue_.ActiveOf(worker.index), 0u);
  EXPECT_EQ(worker.changed_at, 70);
}

TEST_F(GrantLeasesTest, AnEarlyLeaseIsNoSignOfLifeOfAWorkerThatHasOthers) {
  Session& worker = Join("a");
  Infer(worker, 2);
  worker.tiles_wanted = 1;
  EXPECT_EQ(GrantAt(70), 1u);
  worker.assembles_wanted = 1;
  EXPECT_EQ(GrantAt(80), 1u);
  EXPECT_EQ(queue_.HeldBy(worker.index), 2u);
  EXPECT_EQ(worker.changed_at, 70);
}

}  // namespace
}  // namespace tilery
