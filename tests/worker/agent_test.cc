// The agent against a scheduler of a few lines, over TCP, with the engine without Torch.
#include "worker/agent.h"

#include <gmock/gmock.h>

#include <chrono>
#include <deque>
#include <future>
#include <set>
#include <thread>
#include <utility>

#include "cluster/server.h"
#include "pipeline/device_loss.h"
#include "tests/worker/worker_fixture.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;
using namespace std::chrono_literals;

// Grants what is wanted from a list, in order, and keeps what it hears. All on the test's thread.
class SmallScheduler {
 public:
  explicit SmallScheduler(const WorkerContext& context, double lease_s = 2)
      : server_({"127.0.0.1"}, token_,
                {[this](PeerId peer, const Json& hello) { Joined(peer, hello); },
                 [this](PeerId peer, const Json& message) { Received(peer, message); },
                 [this](PeerId, const std::string&) { ++left; }}) {
    welcome_ = {{"type", "welcome"},
                {"epoch", 7},
                {"lease_s", lease_s},
                {"margin_s", lease_s / 5},
                {"context", ToJson(context)}};
  }

  WorkerStart Start() const {
    WorkerStart start;
    start.token = token_;
    start.endpoint = {"127.0.0.1", server_.port()};
    start.worker = "w0";
    start.device = "fake";
    start.epoch = 7;
    return start;
  }

  void Add(const Lease& lease, int64_t tiles) { units_.push_back({lease, tiles}); }
  // Serves until `done`, for at most 20 s.
  bool Until(const std::function<bool()>& done) {
    const auto until = std::chrono::steady_clock::now() + 20s;
    while (!done()) {
      if (std::chrono::steady_clock::now() > until) return false;
      server_.Poll(0.005);
      if (std::exchange(asked_, false)) Grant();
    }
    return true;
  }
  void Say(const Json& message) { server_.Send(peer, message); }
  void CutLink() { server_.Close(peer, true); }

  PeerId peer = -1;
  int joined = 0, left = 0, renewals = 0, wants = 0;
  int64_t leased_tiles = 0, most_leased_tiles = 0;
  bool silent = false;  // answers no renewal
  Json hello, last_profile, bye;
  std::map<int64_t, Json> outcomes;  // by lease
  std::vector<std::string> phases;

 private:
  void Joined(PeerId id, const Json& message) {
    peer = id;
    hello = message;
    ++joined;
    server_.Send(peer, welcome_);
  }

  void Received(PeerId, const Json& message) {
    const std::string type = message.at("type");
    if (type == "want") {
      ++wants;
      tiles_wanted_ = message.at("tiles");  // absolute: replaces what was wanted before
      asked_ = true;
    } else if (type == "renew") {
      ++renewals;
      phases.push_back(message.at("phase"));
      if (!silent) Say({{"type", "renewed"}, {"sent_us", message.at("sent_us")}});
    } else if (type == "outcome") {
      const int64_t lease = message.at("lease");
      if (outcomes.emplace(lease, message.at("outcome")).second) leased_tiles -= costs_[lease];
    } else if (type == "profile") {
      last_profile = message;
    } else if (type == "bye") {
      bye = message;
    }
  }

  void Grant() {
    Json leases = Json::array();
    while (tiles_wanted_ > 0 && !units_.empty()) {
      const auto& [lease, cost] = units_.front();
      leases.push_back({{"lease", lease.lease},
                        {"unit", lease.unit},
                        {"attempt", lease.attempt},
                        {"work", ToJson(lease.work)}});
      tiles_wanted_ -= cost;
      leased_tiles += cost;
      costs_[lease.lease] = cost;
      units_.pop_front();
    }
    most_leased_tiles = std::max(most_leased_tiles, leased_tiles);
    Say({{"type", "leases"}, {"leases", leases}, {"more", !units_.empty()}});
  }

  const std::string token_ = NewToken();
  Json welcome_;
  int64_t tiles_wanted_ = 0;
  bool asked_ = false;
  std::deque<std::pair<Lease, int64_t>> units_;
  std::map<int64_t, int64_t> costs_;
  ControlServer server_;
};

class AgentTest : public WorkerTest {
 protected:
  // `count` volumes of 1 tile each.
  std::vector<Lease> MakeUnits(int count) {
    const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({2, 8, 8}, {0, 0, 0}));
    std::vector<Lease> leases;
    for (int i = 0; i < count; ++i) {
      const std::string name = std::to_string(i) + ".npy";
      const auto input = Write(name, "npy", DType::kU8, 1, {2, 8, 8}, Noise(128, i));
      leases.push_back(LeaseOf(MakeItem(input, name, params), UnitKind::kInfer));
    }
    return leases;
  }

  std::future<AgentEnd> Start(const SmallScheduler& scheduler, FakeEngine::Options engine = {},
                              double give_up_s = 5) {
    options_.give_up_s = give_up_s;
    options_.engine = [engine](const WorkerContext& context, const WorkerStart&, Profile&) {
      FakeEngine::Options its = engine;
      its.batch = context.batch;
      return std::make_unique<FakeEngine>(its);
    };
    return std::async(std::launch::async,
                      [this, start = scheduler.Start()] { return RunAgent(start, options_); });
  }

  static bool Ended(const std::future<AgentEnd>& agent) {
    return agent.wait_for(0s) == std::future_status::ready;
  }

  AgentOptions options_;
};

TEST_F(AgentTest, RunsAllThatItIsGivenAndEndsWhenItIsTold) {
  const std::vector<Lease> units = MakeUnits(50);
  context_.batch = 4;
  SmallScheduler scheduler(context_);
  for (const Lease& unit : units) scheduler.Add(unit, 1);
  std::atomic<bool> ready{false};
  options_.ready = [&] { ready = true; };
  auto agent = Start(scheduler);
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.outcomes.size() == units.size(); }));
  for (const auto& [lease, outcome] : scheduler.outcomes) {
    EXPECT_TRUE(std::holds_alternative<Done>(OutcomeFromJson(outcome))) << outcome.dump();
  }
  EXPECT_TRUE(ready);
  EXPECT_EQ(scheduler.hello.at("worker"), "w0");
  EXPECT_EQ(scheduler.hello.at("pid"), getpid());
  // Each of the two readers and writers may be about to report a unit that it holds no more.
  EXPECT_LE(scheduler.most_leased_tiles, 2 * 3 * context_.batch + 4);
  EXPECT_GE(scheduler.most_leased_tiles, 2 * 3 * context_.batch);
  EXPECT_EQ(Names(out_).size(), units.size());

  scheduler.Say({{"type", "end"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent) && !scheduler.bye.is_null(); }));
  EXPECT_EQ(agent.get(), AgentEnd::kDone);
  const Json& stages = scheduler.last_profile.at("stages");
  for (int i = 0; i < kStages; ++i) {
    EXPECT_TRUE(stages.contains(StageName(static_cast<Stage>(i)))) << stages.dump();
  }
  EXPECT_GT(stages.at("write").at("bytes").get<int64_t>(), 0);
  EXPECT_GT(scheduler.last_profile.at("peak_host_bytes").get<int64_t>(), 1 << 20);
}

TEST_F(AgentTest, FinishesASmallRemainderThatFillsNoBatch) {
  const std::vector<Lease> units = MakeUnits(3);
  context_.batch = 8;
  SmallScheduler scheduler(context_);
  for (const Lease& unit : units) scheduler.Add(unit, 1);
  auto agent = Start(scheduler);
  EXPECT_TRUE(scheduler.Until([&] { return scheduler.outcomes.size() == 3; }));
  scheduler.Say({{"type", "end"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent); }));
  EXPECT_EQ(agent.get(), AgentEnd::kDone);
}

TEST_F(AgentTest, DeliversWhatItKeptAfterABrokenLink) {
  // As many as are wanted at once, so that they come in one message.
  const std::vector<Lease> units = MakeUnits(static_cast<int>(2 * 3 * context_.batch));
  SmallScheduler scheduler(context_);
  for (const Lease& unit : units) scheduler.Add(unit, 1);
  std::atomic<bool> begun{false}, open{false};
  auto agent = Start(scheduler, {.batch = 1, .before = [&](const InferWork&) {
                                   begun = true;
                                   while (!open) std::this_thread::sleep_for(1ms);
                                 }});
  // The leases have arrived, and none are on their way.
  ASSERT_TRUE(scheduler.Until([&] { return begun && scheduler.renewals > 0; }));
  scheduler.CutLink();
  open = true;
  std::this_thread::sleep_for(30ms);
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.outcomes.size() == units.size(); }));
  EXPECT_EQ(scheduler.joined, 2);
  scheduler.Say({{"type", "end"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent); }));
}

TEST_F(AgentTest, GivesUpWhenTheSchedulerIsGone) {
  auto scheduler = std::make_unique<SmallScheduler>(context_);
  auto agent = Start(*scheduler, {}, 0.5);
  ASSERT_TRUE(scheduler->Until([&] { return scheduler->wants > 0; }));
  scheduler.reset();
  ASSERT_EQ(agent.wait_for(10s), std::future_status::ready);
  EXPECT_EQ(agent.get(), AgentEnd::kLost);
}

TEST_F(AgentTest, FinishesOnADrainWhatIsBegunAndNothingElse) {
  const std::vector<Lease> units = MakeUnits(20);
  SmallScheduler scheduler(context_);
  for (const Lease& unit : units) scheduler.Add(unit, 1);
  auto agent =
      Start(scheduler,
            {.batch = 1, .before = [](const InferWork&) { std::this_thread::sleep_for(200ms); }});
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.leased_tiles > 2; }));
  scheduler.Say({{"type", "drain"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent) && !scheduler.bye.is_null(); }));
  EXPECT_EQ(agent.get(), AgentEnd::kDone);
  EXPECT_GE(scheduler.outcomes.size(), 1u);
  EXPECT_LE(scheduler.outcomes.size(), 8u);
  EXPECT_EQ(Names(out_).size(), scheduler.outcomes.size());
}

TEST_F(AgentTest, AbandonsOnADrainWhatTakesTooLong) {
  const std::vector<Lease> units = MakeUnits(6);
  SmallScheduler scheduler(context_);
  for (const Lease& unit : units) scheduler.Add(unit, 1);
  options_.drain_s = 0.3;
  auto agent =
      Start(scheduler,
            {.batch = 1, .before = [](const InferWork&) { std::this_thread::sleep_for(700ms); }});
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.leased_tiles > 2; }));
  scheduler.Say({{"type", "drain"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent) && !scheduler.bye.is_null(); }));
  EXPECT_EQ(agent.get(), AgentEnd::kDone);
  EXPECT_LE(scheduler.outcomes.size(), 2u) << "of three that were begun";
  EXPECT_EQ(Names(out_).size(), scheduler.outcomes.size());
}

TEST_F(AgentTest, SaysWhyItCanNotStartAndWhetherItEverWill) {
  const std::vector<std::pair<Fault, AgentEnd>> faults = {{Fault::kModel, AgentEnd::kRefused},
                                                          {Fault::kUsage, AgentEnd::kRefused},
                                                          {Fault::kInput, AgentEnd::kRefused},
                                                          {Fault::kTransient, AgentEnd::kFailed},
                                                          {Fault::kInternal, AgentEnd::kFailed}};
  for (const auto& [fault, end] : faults) {
    SmallScheduler scheduler(context_);
    auto agent = std::async(std::launch::async, [&, fault = fault, start = scheduler.Start()] {
      AgentOptions options;
      options.engine = [fault](const WorkerContext&, const WorkerStart&,
                               Profile&) -> std::unique_ptr<Engine> {
        throw Error(fault, "m.pt: its output has 5 channels, the contract says 3");
      };
      return RunAgent(start, options);
    });
    ASSERT_TRUE(scheduler.Until([&] { return Ended(agent) && !scheduler.bye.is_null(); }));
    EXPECT_EQ(agent.get(), end) << FaultName(fault);
    EXPECT_THAT(scheduler.bye.at("reason").get<std::string>(), HasSubstr("5 channels"));
  }
}

TEST_F(AgentTest, EndsByACodeOfItsOwnWhereTheDeviceHasNotTheMemory) {
  // kModel: at batch 1 not even that fits which had been proven before the run.
  for (const Fault fault : {Fault::kTransient, Fault::kModel}) {
    SmallScheduler scheduler(context_);
    auto agent = std::async(std::launch::async, [&, fault = fault, start = scheduler.Start()] {
      AgentOptions options;
      options.engine = [fault](const WorkerContext&, const WorkerStart&,
                               Profile&) -> std::unique_ptr<Engine> {
        throw OutOfDeviceMemory(fault, "m.pt failed: asked 5 bytes, 3 free");
      };
      return RunAgent(start, options);
    });
    ASSERT_TRUE(scheduler.Until([&] { return Ended(agent) && !scheduler.bye.is_null(); }));
    EXPECT_EQ(agent.get(), AgentEnd::kNoMemory);
    EXPECT_EQ(static_cast<int>(AgentEnd::kNoMemory), kNoMemoryExit);
    EXPECT_EQ(scheduler.bye.at("reason"), "m.pt failed: asked 5 bytes, 3 free");
  }
}

TEST_F(AgentTest, PublishesNothingOnceRenewalsAreNotAnswered) {
  const std::vector<Lease> units = MakeUnits(2);
  SmallScheduler scheduler(context_, 0.8);
  for (const Lease& unit : units) scheduler.Add(unit, 1);
  std::atomic<bool> open{false};
  auto agent = Start(scheduler, {.batch = 1, .before = [&](const InferWork&) {
                                   while (!open) std::this_thread::sleep_for(1ms);
                                 }});
  ASSERT_TRUE(
      scheduler.Until([&] { return scheduler.leased_tiles == 2 && scheduler.renewals > 1; }));
  scheduler.silent = true;
  const int before = scheduler.renewals;
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.renewals > before + 5; }));
  open = true;
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.outcomes.size() == 2; }));
  for (const auto& [lease, outcome] : scheduler.outcomes) {
    const Outcome parsed = OutcomeFromJson(outcome);
    ASSERT_TRUE(std::holds_alternative<Retry>(parsed)) << outcome.dump();
    EXPECT_THAT(std::get<Retry>(parsed).reason, HasSubstr("lease"));
  }
  EXPECT_TRUE(Names(out_).empty());
  scheduler.Say({{"type", "end"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent); }));
}

TEST_F(AgentTest, TakesNoWorkBeforeARenewalIsAnswered) {
  const std::vector<Lease> units = MakeUnits(8);
  SmallScheduler scheduler(context_);
  for (const Lease& unit : units) scheduler.Add(unit, 1);
  scheduler.silent = true;
  auto agent = Start(scheduler);
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.renewals > 2; }));
  EXPECT_EQ(scheduler.wants, 0);
  scheduler.silent = false;
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.outcomes.size() == units.size(); }));
  for (const auto& [lease, outcome] : scheduler.outcomes) {
    EXPECT_TRUE(std::holds_alternative<Done>(OutcomeFromJson(outcome))) << outcome.dump();
  }
  scheduler.Say({{"type", "end"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent); }));
}

TEST_F(AgentTest, AbandonsADroppedLeaseWithoutAnOutcome) {
  const std::vector<Lease> units = MakeUnits(3);
  context_.batch = 1;
  SmallScheduler scheduler(context_);
  for (const Lease& unit : units) scheduler.Add(unit, 1);
  std::atomic<bool> open{false};
  auto agent = Start(scheduler, {.batch = 1, .before = [&](const InferWork&) {
                                   while (!open) std::this_thread::sleep_for(1ms);
                                 }});
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.leased_tiles == 3; }));
  const int before = scheduler.renewals;
  scheduler.Say({{"type", "drop"}, {"leases", {units[1].lease}}});
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.renewals > before + 1; }));
  open = true;
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.outcomes.size() == 2; }));
  scheduler.Say({{"type", "end"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent); }));
  EXPECT_FALSE(scheduler.outcomes.contains(units[1].lease));
  EXPECT_EQ(Names(out_).size(), 2u);
}

TEST_F(AgentTest, TakesBricksThatFollowAndBeginsAnewAfterABrokenLink) {
  const auto samples = Noise(16 * 16 * 16, 40);
  const auto input = Write("v.npy", "npy", DType::kU8, 1, {16, 16, 16}, samples);
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({8, 8, 8}, {2, 2, 2}));
  const TestItem item = MakeItem(input, "v.npy", params, 4);
  SmallScheduler scheduler(context_);
  std::vector<Lease> infer;
  for (int64_t block = 0; block < item.infer_units; ++block) {
    infer.push_back(LeaseOf(item, UnitKind::kInfer, block));
    scheduler.Add(infer.back(), 1);
  }
  auto agent = Start(scheduler);
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.outcomes.size() == infer.size(); }));
  std::vector<Outcome> outcomes;
  for (const Lease& lease : infer)
    outcomes.push_back(OutcomeFromJson(scheduler.outcomes.at(lease.lease)));

  const auto lease_early = [&] {
    Lease lease = AssembleLease(item, outcomes);
    lease.work.bricks_missing = static_cast<int64_t>(std::exchange(lease.work.bricks, {}).size());
    const Json leases = {{{"lease", lease.lease},
                          {"unit", lease.unit},
                          {"attempt", lease.attempt},
                          {"work", ToJson(lease.work)}}};
    scheduler.Say({{"type", "leases"}, {"leases", leases}, {"more", false}});
    return lease.lease;
  };
  const auto say_bricks = [&](int64_t lease) {
    const Json bricks = ToJson(AssembleLease(item, outcomes).work.bricks);
    scheduler.Say({{"type", "bricks"}, {"lease", lease}, {"bricks", bricks}});
  };
  const int64_t first = lease_early();
  scheduler.Say({{"type", "drop"}, {"leases", Json::array()}, {"early", true}});
  say_bricks(first);
  const int64_t second = lease_early();
  say_bricks(second);
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.outcomes.contains(second); }));
  EXPECT_FALSE(scheduler.outcomes.contains(first));
  EXPECT_EQ(ReadAll(item.base.output), samples);
  scheduler.Say({{"type", "end"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent); }));
}

// Long before the time that a drain may take.
TEST_F(AgentTest, ADrainEndsAsSoonAsWhatWaitsForBricksIsAbandoned) {
  const auto input = Write("v.npy", "npy", DType::kU8, 1, {16, 16, 16}, Noise(16 * 16 * 16, 41));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({8, 8, 8}, {2, 2, 2}));
  const TestItem item = MakeItem(input, "v.npy", params, 4);
  SmallScheduler scheduler(context_);
  options_.drain_s = 600;
  auto agent = Start(scheduler);
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.wants > 0; }));
  Lease lease = AssembleLease(item, {});
  lease.work.bricks_missing = item.infer_units;
  const Json leases = {{{"lease", lease.lease},
                        {"unit", lease.unit},
                        {"attempt", lease.attempt},
                        {"work", ToJson(lease.work)}}};
  scheduler.Say({{"type", "leases"}, {"leases", leases}, {"more", false}});
  const int wants = scheduler.wants;
  ASSERT_TRUE(scheduler.Until([&] { return scheduler.wants > wants; }));  // it is held
  scheduler.Say({{"type", "drain"}});
  ASSERT_TRUE(scheduler.Until([&] { return Ended(agent); }));
  EXPECT_TRUE(scheduler.outcomes.empty());
}

}  // namespace
}  // namespace tilery
