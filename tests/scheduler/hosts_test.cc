#include "scheduler/hosts.h"

#include <gtest/gtest.h>

#include "tests/scheduler/expect_words.h"

namespace tilery {
namespace {

const char* const kCard = "NVIDIA H200";

HostOffer Offer(int cpus, bool rank, std::vector<std::string> cards = {}) {
  HostOffer offer{cpus, rank, {}};
  for (size_t k = 0; k < cards.size(); ++k)
    offer.cards.push_back(
        {"cuda:" + std::to_string(k), "GPU-" + std::to_string(k), std::move(cards[k])});
  return offer;
}

Json Hello(const std::string& host, int64_t pid, const HostOffer& offer) {
  return {{"role", "host"}, {"host", host}, {"pid", pid}, {"offer", ToJson(offer)}};
}

// "w0:cuda:1:8 ..." of all that it may start, or why it may not.
std::string Words(const HostOrder& order) {
  if (!order.refused.empty()) return "refused: " + order.refused;
  std::string words;
  for (const HostOrder::Worker& worker : order.workers)
    words += (words.empty() ? "" : " ") + worker.id + ":" + worker.device + ":" +
             std::to_string(worker.threads);
  return words;
}

HostPolicy Policy(const std::string& card, std::optional<int> workers = {},
                  std::optional<int> threads = {}) {
  return {card, "fp16", {"/w", "/s"}, workers, threads};
}

TEST(HostDesk, OnCpusAHostHasOneWorkerWithAllThreadsUnlessTheJobSaysMore) {
  HostDesk desk(Policy(""), 3);
  const auto first = desk.Admit(7, Hello("a", 1, Offer(16, false, {kCard})));
  EXPECT_EQ(Words(first.order), "w3:cpu:16") << "the run is one on CPUs, whatever the host has";
  EXPECT_EQ(first.order.folders, (std::vector<std::string>{"/w", "/s"}));
  EXPECT_EQ(first.order.precision, "fp16");
  EXPECT_FALSE(first.order.fixed_threads);
  EXPECT_FALSE(first.again);
  EXPECT_EQ(Words(desk.Admit(8, Hello("a", 2, Offer(16, false))).order), "w4:cpu:16");
  HostDesk many(Policy("", 3), 0);
  EXPECT_EQ(Words(many.Admit(1, Hello("a", 1, Offer(16, true))).order),
            "w0:cpu:5 w1:cpu:5 w2:cpu:5");
  HostDesk bound(Policy("", 2, 6), 0);
  EXPECT_EQ(Words(bound.Admit(1, Hello("a", 1, Offer(16, false))).order), "w0:cpu:3 w1:cpu:3");
  EXPECT_TRUE(bound.Admit(2, Hello("b", 1, Offer(16, false))).order.fixed_threads);
}

TEST(HostDesk, EachCardHasOneWorkerAndEachRankOneCard) {
  HostDesk whole(Policy(kCard), 0);
  EXPECT_EQ(Words(whole.Admit(1, Hello("a", 1, Offer(8, false, {kCard, kCard}))).order),
            "w0:cuda:0:4 w1:cuda:1:4");
  ExpectWords(Words(whole.Admit(2, Hello("a", 2, Offer(8, false, {kCard, kCard}))).order),
              {"refused: a has 2", "has a worker already", "--workers N"});

  HostDesk ranks(Policy(kCard), 0);
  EXPECT_EQ(Words(ranks.Admit(1, Hello("a", 1, Offer(4, true, {kCard, kCard}))).order),
            "w0:cuda:0:4");
  EXPECT_EQ(Words(ranks.Admit(2, Hello("b", 1, Offer(4, true, {kCard}))).order), "w1:cuda:0:4")
      << "another host has cards of its own";
  EXPECT_EQ(Words(ranks.Admit(3, Hello("a", 2, Offer(4, true, {kCard, kCard}))).order),
            "w2:cuda:1:4");
  ExpectWords(Words(ranks.Admit(4, Hello("a", 3, Offer(4, true, {kCard, kCard}))).order),
              {"refused: a has 2", kCard, "start fewer processes"});
}

TEST(HostDesk, RanksThatAreShownOneCardEachGetThatOne) {
  HostDesk desk(Policy(kCard), 0);
  const auto shown = [](const char* device) {
    HostOffer offer{4, true, {{device, std::string("GPU-") + device, kCard}}};
    return offer;
  };
  EXPECT_EQ(Words(desk.Admit(1, Hello("a", 1, shown("cuda:3"))).order), "w0:cuda:3:4");
  EXPECT_EQ(Words(desk.Admit(2, Hello("a", 2, shown("cuda:1"))).order), "w1:cuda:1:4");
}

TEST(HostDesk, MoreWorkersThanCardsShareThemEvenlyIfTheJobSaysSo) {
  HostDesk desk(Policy(kCard, 2), 0);
  EXPECT_EQ(Words(desk.Admit(1, Hello("a", 1, Offer(8, true, {kCard, kCard, kCard}))).order),
            "w0:cuda:0:4 w1:cuda:1:4");
  EXPECT_EQ(Words(desk.Admit(2, Hello("a", 2, Offer(8, true, {kCard, kCard, kCard}))).order),
            "w2:cuda:2:4 w3:cuda:0:4");
}

TEST(HostDesk, CardsOfAnotherKindAreLeftOutAndNamed) {
  HostDesk desk(Policy(kCard), 0);
  EXPECT_EQ(Words(desk.Admit(1, Hello("a", 1, Offer(8, false, {"NVIDIA L4", kCard}))).order),
            "w0:cuda:1:8");
  ExpectWords(
      Words(desk.Admit(2, Hello("b", 1, Offer(8, false, {"NVIDIA L4", "NVIDIA T4"}))).order),
      {"refused: b has no GPU of this run's kind, NVIDIA H200", "NVIDIA L4, NVIDIA T4"});
  ExpectWords(Words(desk.Admit(3, Hello("c", 1, Offer(8, false))).order),
              {"it has none that may be used"});
}

TEST(HostDesk, AHostThatComesBackKeepsItsWorkersAndOneThatLeftFreesItsCards) {
  HostDesk desk(Policy(kCard), 0);
  auto first = desk.Admit(1, Hello("a", 5, Offer(8, false, {kCard})));
  first.host->peer = 0;  // its link broke
  const auto again = desk.Admit(2, Hello("a", 5, Offer(8, false, {kCard})));
  EXPECT_TRUE(again.again);
  EXPECT_EQ(again.host, first.host);
  EXPECT_EQ(Words(again.order), "w0:cuda:0:8");
  EXPECT_EQ(desk.Of(2), first.host);
  EXPECT_EQ(desk.Of(1), nullptr);
  EXPECT_EQ(desk.OfWorker("w0"), first.host);

  desk.Leave(*first.host);
  EXPECT_EQ(desk.Of(2), nullptr);
  EXPECT_EQ(desk.OfWorker("w0"), nullptr);
  EXPECT_EQ(Words(desk.Admit(3, Hello("a", 6, Offer(8, false, {kCard}))).order), "w1:cuda:0:8");
}

TEST(HostDesk, ACardThatFailedItsWorkerStaysTaken) {
  HostDesk desk(Policy(kCard), 0);
  const auto host = desk.Admit(1, Hello("a", 5, Offer(8, true, {kCard, kCard})));
  HostDesk::Forget(*host.host, "w0");
  EXPECT_EQ(desk.OfWorker("w0"), nullptr);
  desk.Leave(*host.host);
  EXPECT_EQ(Words(desk.Admit(2, Hello("a", 6, Offer(8, true, {kCard, kCard}))).order),
            "w1:cuda:1:8");
}

TEST(HostDesk, FormsKeepAllTheyHold) {
  const HostOffer offer = Offer(7, true, {kCard, "b"});
  EXPECT_EQ(ToJson(HostOfferFromJson(ToJson(offer))), ToJson(offer));
  const HostOrder order{"no", "tf32", {"/w/x", "/s"}, {{"w9", "cuda:1", 3}}, true};
  EXPECT_EQ(ToJson(HostOrderFromJson(ToJson(order))), ToJson(order));
  EXPECT_THROW(HostOfferFromJson({{"cpus", 1}}), Json::exception);
  EXPECT_THROW(HostOrderFromJson({{"workers", 1}}), Json::exception);
}

}  // namespace
}  // namespace tilery
