#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cluster/frame.h"
#include "tests/cluster/link_support.h"
#include "tests/scheduler/coordinator_fixture.h"

namespace tilery {
namespace {

using CoordinatorFaults = CoordinatorFixture;

TEST_F(CoordinatorFaults, ADeadWorkersUnitsGoToAnother) {
  Plan({{1}, {4}, {1}});
  Start();
  std::atomic<int> taken{0};
  auto dying = Worker({.id = "w0", .pid = 1, .work = [&](const FakeWorker::Lease&) {
                         ++taken;
                         return std::optional<Outcome>();
                       }});
  Await([&] { return taken >= 3; });
  dying->Vanish();
  coordinator_->WorkerDied("w0", "signal 9");
  const auto other = Worker({.id = "w1", .pid = 2});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.tiles_inferred, plan_.tiles);
  EXPECT_EQ(OutputsWhole(), 3);
  CheckSums(r);
}

TEST_F(CoordinatorFaults, AUnitThatEndsTwoWorkersFailsItsItemAndNoOther) {
  Plan({{1}, {1}, {1}, {1}, {1}});
  Start();
  RunResult r;
  for (int process = 0; process < 3; ++process) {
    std::atomic<bool> dead{false};
    auto worker =
        Worker({.id = "w0", .pid = 10 + process, .work = [&](const FakeWorker::Lease& lease) {
                  if (dead) return std::optional<Outcome>();
                  if (lease.work.item == 2) {
                    dead = true;
                    return std::optional<Outcome>();
                  }
                  return std::optional(Do(lease));
                }});
    if (process == 2) {
      r = Result();
      break;
    }
    Await([&] { return dead.load(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    worker->Vanish();
    coordinator_->WorkerDied("w0", "signal 11 (Segmentation fault): boom");
  }
  EXPECT_EQ(r.status, "failed");
  EXPECT_EQ(r.items_done, 4);
  ASSERT_EQ(r.items_failed, 1);
  EXPECT_EQ(r.failures[0].item, plan_.items[2].input);
  EXPECT_NE(r.failures[0].reason.find("two workers"), std::string::npos) << r.failures[0].reason;
  EXPECT_NE(r.failures[0].reason.find("boom"), std::string::npos) << r.failures[0].reason;
  EXPECT_EQ(progress_.back().tiles_done, progress_.back().tiles);
}

TEST_F(CoordinatorFaults, AUnitIsNotToBlameForADeviceWithoutMemory) {
  Plan({{1}, {1}, {1}});
  Start();
  // Three processes end under the same unit, which one less would have set aside.
  for (int64_t pid = 1; pid <= 3; ++pid) {
    std::atomic<bool> begun{false};
    const auto poor =
        Worker({.pid = pid, .tiles_ahead = 1, .work = [&](const FakeWorker::Lease& lease) {
                  begun = begun || lease.work.item == 0;
                  return std::optional<Outcome>();
                }});
    Await([&] { return begun.load(); });
    poor->Vanish();
    coordinator_->WorkerDied("w0", "asked 2 bytes, 1 free", Coordinator::Death::kNoMemory);
  }
  const auto rich = Worker({.id = "w1"});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.items_done, 3);
  EXPECT_EQ(r.tiles_inferred, 3);
  EXPECT_EQ(OutputsWhole(), 3);
  CheckSums(r);
}

TEST_F(CoordinatorFaults, WithNoWorkerLeftTheRunIsInterruptedForTheReasonGiven) {
  Plan({{1}, {1}});
  Start();
  coordinator_->WorkerDied("w0", "asked 2 bytes, 1 free", Coordinator::Death::kNoMemory);
  coordinator_->WorkersExhausted("no memory: w0: asked 2 bytes, 1 free");
  const RunResult r = Result();
  EXPECT_EQ(r.status, "interrupted");
  EXPECT_EQ(r.interrupted_by, "no memory: w0: asked 2 bytes, 1 free") << "said once";
}

TEST_F(CoordinatorFaults, AFailedUnitFailsItsItemAloneAndItsBricksGo) {
  Plan({{4}, {1}});
  Start();
  const auto worker =
      Worker({.work = [&](const FakeWorker::Lease& lease) -> std::optional<Outcome> {
        if (lease.work.item == 0 && lease.work.block == 2)
          return Failed{"read", "the file ends early", Fault::kInput};
        return Do(lease);
      }});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "failed");
  EXPECT_EQ(r.items_failed, 1);
  EXPECT_EQ(r.items_done, 1);
  ASSERT_EQ(r.failures.size(), 1u);
  EXPECT_EQ(r.failures[0].stage, "read");
  EXPECT_EQ(r.failures[0].reason, "the file ends early");
  SweepDead(plan_, context_.numerics_key, context_.scratch, *ledger_, true);
  EXPECT_EQ(FilesInScratch(), 0);
  EXPECT_EQ(progress_.back().tiles_done, progress_.back().tiles);
}

TEST_F(CoordinatorFaults, WithoutAnyWorkerLeftTheRunEndsInWords) {
  Plan({{1}});
  Start();
  coordinator_->WorkerDied("w0", "exit code 1: no such model");
  coordinator_->WorkersExhausted("no worker could be started");
  const RunResult r = Result();
  EXPECT_EQ(r.status, "interrupted");
  EXPECT_NE(r.interrupted_by.find("no worker could be started"), std::string::npos)
      << r.interrupted_by;
  EXPECT_NE(r.interrupted_by.find("no such model"), std::string::npos) << r.interrupted_by;
}

TEST_F(CoordinatorFaults, MoreFailuresThanAllowedStopTheRun) {
  Plan(std::vector<ItemSpec>(200, {1}));
  options_.max_failures = 0.05;
  Start();
  const auto worker =
      Worker({.tiles_ahead = 1, .work = [&](const FakeWorker::Lease&) -> std::optional<Outcome> {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                return Failed{"read", "damaged", Fault::kInput};
              }});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "failed");
  EXPECT_LT(r.items_failed, 100);
  EXPECT_NE(r.interrupted_by.find("of 200 items failed"), std::string::npos) << r.interrupted_by;
}

TEST_F(CoordinatorFaults, ADrainEndsAlthoughAWorkerNeverAnswers) {
  Plan({{1}, {1}});
  options_.drain_s = 0.5;
  Start();
  std::atomic<bool> taken{false};
  const auto worker =
      Worker({.leaves = false, .work = [&](const FakeWorker::Lease&) -> std::optional<Outcome> {
                taken = true;
                return std::nullopt;
              }});
  Await([&] { return taken.load(); });
  coordinator_->Drain("SIGTERM");
  const RunResult r = Result();
  EXPECT_EQ(r.status, "interrupted");
  EXPECT_EQ(r.interrupted_by, "SIGTERM");
  EXPECT_EQ(r.items_done, 0);
}

TEST_F(CoordinatorFaults, ANewProcessTakesTheNameOfADeadOneBeforeItsDeathIsTold) {
  Plan(std::vector<ItemSpec>(400, {1}));
  Start();
  auto first = Worker(
      {.id = "w0", .pid = 1, .work = [&](const FakeWorker::Lease& lease) -> std::optional<Outcome> {
         if (lease.work.item > 50) return std::nullopt;
         return Do(lease);
       }});
  Await([&] { return first->done() >= 50; });
  first->Vanish();
  const auto second = Worker({.id = "w0", .pid = 2});
  coordinator_->WorkerDied("w0", "signal 9");
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.tiles_inferred, 400);
  EXPECT_EQ(r.workers.size(), 2u);
  CheckSums(r);
}

TEST_F(CoordinatorFaults, BrokenLinksCostNoResultAndNoLease) {
  Plan(std::vector<ItemSpec>(300, {1}));
  Start();
  Relay relay(coordinator_->port());
  FakeWorker worker(relay.port(), options_.token, ledger_->epoch(), {.tiles_ahead = 20});
  for (int cut = 1; cut <= 8; ++cut) {
    Await([&] { return worker.done() >= 30 * cut; });
    relay.Cut();
  }
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.items_done, 300);
  EXPECT_EQ(r.tiles_inferred, 300);
  EXPECT_EQ(r.workers.size(), 1u) << "it is the same process all the time";
  CheckSums(r);
}

TEST_F(CoordinatorFaults, LeasesThatWereLostWithALinkAreGivenAgain) {
  Plan({{1}, {1}, {1}});
  Start();
  // A worker whose link breaks when the leases are sent, before it has read them.
  const int fd = ConnectTo(coordinator_->port());
  const auto say = [&](const Json& message) {
    const std::string frame = EncodeFrame(message);
    ASSERT_EQ(send(fd, frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  };
  say({{"type", "hello"},
       {"protocol", kProtocol},
       {"token", options_.token},
       {"worker", "w0"},
       {"host", "here"},
       {"pid", 1},
       {"device", "fake"},
       {"epoch", ledger_->epoch()}});
  say({{"type", "want"}, {"tiles", 2}, {"stages", 1}, {"assembles", 1}});
  FrameReader frames(kMaxFrame);
  for (bool leased = false; !leased;) {
    char chunk[65536];
    const ssize_t got = recv(fd, chunk, sizeof chunk, 0);
    ASSERT_GT(got, 0);
    frames.Append({chunk, static_cast<size_t>(got)});
    while (const auto body = frames.Next()) {
      const Json message = DecodeBody(*body);
      leased = leased || (message.at("type") == "leases" && message.at("leases").size() == 2);
    }
  }
  close(fd);
  // The same process again, which goes on renewing.
  const auto worker = Worker({.id = "w0", .pid = 1});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.tiles_inferred, 3);
  EXPECT_EQ(r.tiles_repeated, 0);
  EXPECT_EQ(r.workers.size(), 1u);
}

TEST_F(CoordinatorFaults, AWorkerWithoutProgressIsKilledAndItsUnitsGoToAnother) {
  Plan({{1}, {1}});
  options_.hung_s = 2;
  std::vector<std::string> killed;
  options_.kill_worker = [&](const std::string& worker) {
    killed.push_back(worker);
    coordinator_->WorkerDied(worker, "signal 9");  // as its supervisor would tell
  };
  Start();
  std::atomic<int> taken{0};
  const auto hung = Worker({.id = "w0",
                            .pid = 1,
                            .tiles_ahead = 1,
                            .progresses = false,
                            .work = [&](const FakeWorker::Lease&) {
                              ++taken;
                              return std::optional<Outcome>();
                            }});
  Await([&] { return taken == 1; });
  const auto idle = Worker({.id = "w1", .pid = 2, .progresses = false});
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(killed, (std::vector<std::string>{"w0"})) << "an idle worker is not hung";
  EXPECT_EQ(r.tiles_inferred, 2);
}

TEST_F(CoordinatorFaults, AWorkerOfAnotherRunOrWithAWrongTokenIsNotWelcome) {
  Plan({{1}});
  Start();
  FakeWorker stranger(coordinator_->port(), NewToken(), ledger_->epoch(),
                      {.id = "w7", .give_up_s = 0.3});
  FakeWorker old(coordinator_->port(), options_.token, ledger_->epoch() + 5,
                 {.id = "w8", .give_up_s = 0.3});
  Await([&] { return stranger.ended() && old.ended(); });
  const auto worker = Worker();
  const RunResult r = Result();
  EXPECT_EQ(r.status, "done");
  EXPECT_EQ(r.workers.size(), 1u);
}

// A limit on the size of files stands for the full disk.

TEST_F(CoordinatorFaults, AFullDiskUnderTheLedgerInterruptsTheRunInWords) {
  Plan(std::vector<ItemSpec>(20000, {1}));
  const auto interrupted_in_words = [this] {
    signal(SIGXFSZ, SIG_IGN);
    Ledger ledger(folder_.path());
    const Resume resume =
        PlanResume(plan_, Existing::kRefuse, context_.numerics_key, context_.scratch, ledger);
    Coordinator coordinator(plan_, resume, ledger, context_, options_);
    const rlim_t now = std::filesystem::file_size(folder_ / "ledger.sqlite-wal");
    const rlimit limit{now + 2000000, now + 2000000};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto done = [](const FakeWorker::Lease& lease) -> std::optional<Outcome> {
      return Done{lease.work.output, {1, "hash", {1, 2, 3, 4}}, 1};
    };
    FakeWorker worker(coordinator.port(), options_.token, ledger.epoch(),
                      {.tiles_ahead = 100, .work = done});
    const RunResult r = coordinator.Run({}, {});
    return r.status == "interrupted" && r.interrupted_by.find("ledger.sqlite") != std::string::npos;
  };
  const pid_t child = fork();
  if (child == 0) _exit(interrupted_in_words() ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  const Ledger ledger(folder_.path());
  int64_t published = 0;
  ledger.EachOutput([&](const OutputRecord& record) { published += record.published; });
  EXPECT_GT(published, 0) << "what was committed stays";
  EXPECT_LT(published, 20000);
}

TEST_F(CoordinatorFaults, ADeadLedgerEndsTheRunWithALostLock) {
  Plan(std::vector<ItemSpec>(50, {1}));
  Start();
  const Ledger thief(folder_.path());
  const auto worker = Worker();
  std::string why;
  try {
    result_.get();
  } catch (const Error& error) {
    why = error.what();
  }
  EXPECT_NE(why.find("lock lost"), std::string::npos) << why;
  coordinator_.reset();
}

}  // namespace
}  // namespace tilery
