#include <gtest/gtest.h>
#include <sys/resource.h>

#include <map>

#include "cluster/client.h"
#include "tests/cluster/link_support.h"

namespace tilery {
namespace {

using namespace std::chrono_literals;

Json Hello(const std::string& token) { return {{"token", token}, {"worker", "w0"}, {"epoch", 1}}; }

// The limit only ends a test that fails: a machine may be busy with other things.
void Await(const std::function<bool()>& happened, std::chrono::milliseconds limit = 60s) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (std::chrono::steady_clock::now() < until && !happened()) std::this_thread::sleep_for(2ms);
  EXPECT_TRUE(happened());
}

// Greets, answers renewals, and collects the rest.
struct Collector {
  std::mutex mutex;
  std::vector<Json> messages;
  int64_t epoch = 1;
  bool answers_renewals = true;
  void operator()(ControlServer& server, PeerId peer, const Json& message) {
    const std::lock_guard lock(mutex);
    const std::string type = message.at("type");
    if (type == "hello") server.Send(peer, {{"type", "welcome"}, {"epoch", epoch}});
    if (type == "renew" && answers_renewals)
      server.Send(peer, {{"type", "renewed"}, {"sent_us", message.at("sent_us")}});
    messages.push_back(message);
  }
  size_t Count(const std::string& type) {
    const std::lock_guard lock(mutex);
    return static_cast<size_t>(std::count_if(messages.begin(), messages.end(),
                                             [&](const Json& m) { return m.at("type") == type; }));
  }
};

struct Client {
  std::atomic<int> welcomes{0}, others{0}, losses{0};
  std::mutex mutex;
  std::string why;
  std::unique_ptr<ControlClient> client;
  Client(uint16_t port, const std::string& token, double give_up_s = 60) {
    client = std::make_unique<ControlClient>(
        Endpoint{"127.0.0.1", port}, Hello(token), give_up_s,
        ControlClient::Handlers{
            [this](const Json& m) { ++(m.at("type") == "welcome" ? welcomes : others); },
            [this](const std::string& text) {
              const std::lock_guard lock(mutex);
              why = text;
              ++losses;
            }});
  }
};

TEST(Link, CarriesMessagesBothWaysInOrder) {
  const std::string token = NewToken();
  Collector collector;
  ServerThread server(token, std::ref(collector));
  Client c(server.port(), token);
  Await([&] { return c.welcomes == 1; });  // until then only the newest profiles are kept
  for (int i = 0; i < 5000; ++i) c.client->Send({{"type", "profile"}, {"n", i}});
  Await([&] { return collector.Count("profile") == 5000; });
  server.Stop();
  int next = 0;
  for (const Json& m : collector.messages) {
    if (m.at("type") != "profile") continue;
    ASSERT_EQ(m.at("n"), next++);
  }
  EXPECT_EQ(c.welcomes, 1);
}

TEST(Link, MorePeersComeThanAProcessHasDescriptorsAtFirst) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = 64;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  Collector collector;
  {
    ServerThread server("secret", std::ref(collector));
    std::vector<std::unique_ptr<Client>> clients;
    for (int i = 0; i < 100; ++i)
      clients.push_back(std::make_unique<Client>(server.port(), "secret"));
    for (const auto& client : clients) Await([&] { return client->welcomes > 0; });
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Link, AnAnsweredRenewalIsTheRightToRename) {
  const std::string token = NewToken();
  Collector collector;
  ServerThread server(token, std::ref(collector));
  Client c(server.port(), token);
  EXPECT_FALSE(c.client->LeaseYoungerThan(1000));
  Await([&] { return c.welcomes == 1; });
  c.client->Send({{"type", "renew"}, {"sent_us", ControlClient::NowUs()}});
  Await([&] { return c.client->LeaseYoungerThan(1000); });
  std::this_thread::sleep_for(60ms);
  EXPECT_FALSE(c.client->LeaseYoungerThan(0.05));
}

TEST(Link, OutcomesSurviveBrokenLinksAndComeInOrder) {
  const std::string token = NewToken();
  Collector collector;
  ServerThread server(token, std::ref(collector));
  Relay relay(server.port());
  Client c(relay.port(), token, 60);
  constexpr int kOutcomes = 3000;
  size_t cuts = 0;
  for (int i = 0; i < kOutcomes; ++i) {
    c.client->Send({{"type", "outcome"}, {"n", i}, {"padding", std::string(200, 'p')}});
    if (i % 50 == 0) c.client->Send({{"type", "renew"}, {"sent_us", ControlClient::NowUs()}});
    if (i % 400 == 399) {
      Await([&] { return collector.Count("hello") > cuts; });  // there is a link to be cut
      relay.Cut();
      ++cuts;
    }
    if (i % 10 == 0) std::this_thread::sleep_for(1ms);
  }
  const auto all = [&] {
    const std::lock_guard lock(collector.mutex);
    std::map<int64_t, int> seen;
    for (const Json& m : collector.messages) {
      if (m.at("type") == "outcome") seen.emplace(m.at("seq").get<int64_t>(), m.at("n").get<int>());
    }
    return seen;
  };
  Await([&] { return all().size() == kOutcomes; });
  for (const auto& [seq, n] : all()) EXPECT_EQ(seq, n + 1);
  EXPECT_GE(collector.Count("hello"), cuts);
  EXPECT_EQ(c.welcomes, 1) << "the welcome of a reconnect is not passed on";
  EXPECT_EQ(c.losses, 0);
  // What is sent again is sent in the order of its numbers, so the scheduler needs the highest
  // only.
  server.Stop();
  int64_t highest = 0;
  for (const Json& m : collector.messages) {
    if (m.at("type") != "outcome") continue;
    EXPECT_LE(m.at("seq").get<int64_t>(), highest + 1);
    highest = std::max(highest, m.at("seq").get<int64_t>());
  }
}

TEST(Link, ProvenOutcomesAreNotSentAgainAndTheLastWantIs) {
  const std::string token = NewToken();
  Collector collector;
  ServerThread server(token, std::ref(collector));
  Relay relay(server.port());
  Client c(relay.port(), token);
  c.client->Send({{"type", "outcome"}, {"n", 1}});
  c.client->Send({{"type", "want"}, {"tiles", 7}, {"stages", 1}, {"assembles", 1}});
  c.client->Send({{"type", "want"}, {"tiles", 9}, {"stages", 1}, {"assembles", 1}});
  const auto last_want = [&] {
    const std::lock_guard lock(collector.mutex);
    const auto last = std::find_if(collector.messages.rbegin(), collector.messages.rend(),
                                   [](const Json& m) { return m.at("type") == "want"; });
    return last == collector.messages.rend() ? 0 : last->at("tiles").get<int>();
  };
  Await([&] { return collector.Count("outcome") == 1 && last_want() == 9; });
  c.client->Send({{"type", "renew"}, {"sent_us", ControlClient::NowUs()}});
  Await([&] { return c.client->LeaseYoungerThan(100); });
  const size_t wants = collector.Count("want");
  relay.Cut();
  Await([&] { return collector.Count("hello") == 2 && collector.Count("want") > wants; });
  EXPECT_EQ(collector.Count("outcome"), 1u);
  EXPECT_EQ(collector.Count("want"), wants + 1);
  EXPECT_EQ(last_want(), 9);
}

TEST(Link, GivesUpOnceAfterItsTime) {
  const std::string token = NewToken();
  Collector collector;
  ServerThread server(token, std::ref(collector));
  Relay relay(server.port());
  Client c(relay.port(), token, 0.4);
  Await([&] { return c.welcomes == 1; });
  relay.Block(true);
  relay.Cut();
  Await([&] { return c.losses == 1; });
  std::this_thread::sleep_for(200ms);
  EXPECT_EQ(c.losses, 1);
}

TEST(Link, AWrongTokenIsNeverWelcome) {
  Collector collector;
  ServerThread server(NewToken(), std::ref(collector));
  Client c(server.port(), NewToken(), 0.3);
  Await([&] { return c.losses == 1; });
  EXPECT_EQ(c.welcomes, 0);
  server.Stop();
  EXPECT_GT(server.server().refused(), 0);
  EXPECT_EQ(collector.Count("hello"), 0u);
}

TEST(Link, AnotherRunBehindTheSameAddressEndsTheWorker) {
  const std::string token = NewToken();
  Collector collector;
  ServerThread server(token, std::ref(collector));
  Relay relay(server.port());
  Client c(relay.port(), token);
  Await([&] { return c.welcomes == 1; });
  {
    const std::lock_guard lock(collector.mutex);
    collector.epoch = 2;
  }
  relay.Cut();
  Await([&] { return c.losses == 1; });
  const std::lock_guard lock(c.mutex);
  EXPECT_NE(c.why.find("another run"), std::string::npos) << c.why;
}

TEST(Link, WhatIsQueuedGoesOutBeforeTheClientEnds) {
  const std::string token = NewToken();
  Collector collector;
  ServerThread server(token, std::ref(collector));
  {
    Client c(server.port(), token);
    Await([&] { return c.welcomes == 1; });
    for (int i = 0; i < 1000; ++i) c.client->Send({{"type", "outcome"}, {"n", i}});
    c.client->Send({{"type", "bye"}});
  }
  Await([&] { return collector.Count("bye") == 1; });
  EXPECT_EQ(collector.Count("outcome"), 1000u);
}

}  // namespace
}  // namespace tilery
