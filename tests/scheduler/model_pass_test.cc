// Who passes a model's file on to whom.
#include "scheduler/model_pass.h"

#include <gtest/gtest.h>

#include <map>

namespace tilery {
namespace {

class ModelPassTest : public testing::Test {
 protected:
  void Ask(ModelPass& pass, int32_t worker, const std::string& host,
           const std::string& card = "17:0", bool can = true, double now = 0) {
    pass.Ask({worker, host, card}, can, now);
  }
  static std::map<int32_t, Json> Answers(ModelPass& pass, const ModelPass::There& there,
                                         double now) {
    std::map<int32_t, Json> answers;
    for (auto& answer : pass.Look(there, now)) {
      EXPECT_FALSE(answers.contains(answer.worker)) << "answered twice at once";
      answers[answer.worker] = answer.message;
    }
    return answers;
  }
  static Json Root() { return {{"type", "model"}, {"root", true}}; }
  static Json Read() { return {{"type", "model"}, {"id", ""}}; }
  static Json Seat(const std::string& id, int rank, int size) {
    return {{"type", "model"}, {"id", id}, {"rank", rank}, {"size", size}};
  }
  using Map = std::map<int32_t, Json>;
};

TEST_F(ModelPassTest, BringsAllTogetherOnceAllHaveAsked) {
  ModelPass pass({.on = true, .hosts = 2});
  Ask(pass, 4, "a");
  Ask(pass, 7, "b", "cuda:0");
  EXPECT_EQ(Answers(pass, {3, 2}, 0.1), Map()) << "one has not asked yet";
  Ask(pass, 5, "b", "cuda:1", true, 0.2);
  EXPECT_EQ(Answers(pass, {3, 2}, 0.2), (Map{{4, Root()}}));
  EXPECT_EQ(Answers(pass, {3, 2}, 0.3), Map());
  pass.TakeId(7, "another's");
  EXPECT_EQ(Answers(pass, {3, 2}, 0.3), Map()) << "nobody asked that one";
  pass.TakeId(4, "c0ffee");
  EXPECT_EQ(Answers(pass, {3, 2}, 0.4),
            (Map{{4, Seat("c0ffee", 0, 3)}, {7, Seat("c0ffee", 1, 3)}, {5, Seat("c0ffee", 2, 3)}}));
  // Who comes later reads the file.
  Ask(pass, 9, "c");
  EXPECT_EQ(Answers(pass, {4, 3}, 1), (Map{{9, Read()}}));
}

TEST_F(ModelPassTest, WaitsForHostsThatAreExpectedButNotForEver) {
  ModelPass pass({.on = true, .hosts = 3});
  Ask(pass, 0, "a", "cuda:0", true, 10);
  Ask(pass, 1, "b", "cuda:0", true, 11);
  EXPECT_EQ(Answers(pass, {2, 2}, 14.9), Map());
  EXPECT_EQ(Answers(pass, {2, 2}, 10 + ModelPass::kGather_s), (Map{{0, Root()}}));
}

TEST_F(ModelPassTest, OneHostHasTheFileInItsMemoryAnyway) {
  ModelPass pass({.on = true});
  Ask(pass, 0, "a", "cuda:0");
  Ask(pass, 1, "a", "cuda:1");
  EXPECT_EQ(Answers(pass, {2, 1}, 0), (Map{{0, Read()}, {1, Read()}}));
  ModelPass always({.on = true, .least_hosts = 1});
  Ask(always, 0, "a", "cuda:0");
  Ask(always, 1, "a", "cuda:1");
  EXPECT_EQ(Answers(always, {2, 1}, 0), (Map{{0, Root()}}));
}

TEST_F(ModelPassTest, OneAloneReads) {
  ModelPass pass({.on = true, .least_hosts = 1});
  Ask(pass, 0, "a");
  EXPECT_EQ(Answers(pass, {1, 1}, 0), (Map{{0, Read()}}));
}

TEST_F(ModelPassTest, OfTwoOnOneCardTheSecondReads) {
  ModelPass pass({.on = true});
  Ask(pass, 0, "a");
  Ask(pass, 1, "a");
  Ask(pass, 2, "b");
  EXPECT_EQ(Answers(pass, {3, 2}, 0), (Map{{0, Root()}, {1, Read()}}));
  pass.TakeId(0, "1d");
  EXPECT_EQ(Answers(pass, {3, 2}, 0), (Map{{0, Seat("1d", 0, 2)}, {2, Seat("1d", 1, 2)}}));
}

TEST_F(ModelPassTest, WhoAsksAgainAfterABrokenLinkIsOne) {
  ModelPass pass({.on = true});
  Ask(pass, 0, "a");
  Ask(pass, 0, "a");
  EXPECT_EQ(Answers(pass, {2, 2}, 0), Map());
  Ask(pass, 1, "b");
  EXPECT_EQ(Answers(pass, {2, 2}, 0), (Map{{0, Root()}}));
  // Nor does one count that has ended.
  ModelPass other({.on = true});
  Ask(other, 0, "a");
  other.Left(0);
  Ask(other, 1, "b");
  EXPECT_EQ(Answers(other, {2, 2}, 0), Map());
}

TEST_F(ModelPassTest, WhoCannotTakePartIsNotWaitedFor) {
  ModelPass pass({.on = true});
  Ask(pass, 0, "a");
  Ask(pass, 1, "b");
  Ask(pass, 2, "c", "cuda:0", false);
  EXPECT_EQ(Answers(pass, {3, 3}, 0), (Map{{0, Root()}}));
}

TEST_F(ModelPassTest, AllReadIfTheirRootMakesNoIdOrEnds) {
  ModelPass without({.on = true}), late({.on = true}), dead({.on = true});
  for (ModelPass* pass : {&without, &late, &dead}) {
    Ask(*pass, 0, "a");
    Ask(*pass, 1, "b");
    EXPECT_EQ(Answers(*pass, {2, 2}, 1), (Map{{0, Root()}}));
  }
  without.TakeId(0, "");
  EXPECT_EQ(Answers(without, {2, 2}, 1), (Map{{0, Read()}, {1, Read()}}));
  EXPECT_EQ(Answers(late, {2, 2}, 2.9), Map());
  EXPECT_EQ(Answers(late, {2, 2}, 1 + ModelPass::kId_s), (Map{{0, Read()}, {1, Read()}}));
  late.TakeId(0, "too late");
  EXPECT_EQ(Answers(late, {2, 2}, 4), Map());
  dead.Left(0);
  EXPECT_EQ(Answers(dead, {2, 2}, 1), (Map{{1, Read()}}));
}

TEST_F(ModelPassTest, WhoEndsBeforeTheGroupIsMadeHasNoSeat) {
  ModelPass pass({.on = true});
  for (int32_t worker = 0; worker < 3; ++worker) Ask(pass, worker, std::string(1, 'a' + worker));
  pass.Left(1);
  EXPECT_EQ(Answers(pass, {3, 3}, 1), Map()) << "another process may take its place";
  EXPECT_EQ(Answers(pass, {3, 3}, ModelPass::kGather_s), (Map{{0, Root()}}));
  pass.TakeId(0, "1d");
  EXPECT_EQ(Answers(pass, {3, 3}, 6), (Map{{0, Seat("1d", 0, 2)}, {2, Seat("1d", 1, 2)}}));
}

}  // namespace
}  // namespace tilery
