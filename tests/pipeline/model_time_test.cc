#include "pipeline/model_time.h"

#include <gtest/gtest.h>

namespace tilery {
namespace {

using Time = ModelTime::Time;

Time At(double s) {
  return Time(std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(1000 + s)));
}

double Idle(const ModelTime::Totals& totals, IdleCause cause) {
  return totals.idle_s[static_cast<size_t>(cause)];
}

constexpr double kNear = 1e-6;

TEST(ModelTime, TimeIsTheModelsOrHasACause) {
  ModelTime time(At(0));
  time.Now({.waiting = 2}, At(1));
  time.Now({.reading = 1}, At(2));
  time.Now({.computing = 1}, At(3));
  time.Ran(At(4), At(6));
  time.Now({.reading = 1}, At(6));
  time.Now({.reading = 1, .computing = 1}, At(7));
  time.Ran(At(7.5), At(8));
  time.Now({.writing = 3}, At(8));
  time.Ran(At(9), At(10));
  time.Now({}, At(10));
  const auto totals = time.totals(At(12));
  EXPECT_NEAR(totals.model_s, 3.5, kNear);
  EXPECT_NEAR(Idle(totals, IdleCause::kStart), 4, kNear) << "whatever it waited for";
  EXPECT_NEAR(Idle(totals, IdleCause::kRead), 1, kNear);
  EXPECT_NEAR(Idle(totals, IdleCause::kEngine), 0.5, kNear);
  EXPECT_NEAR(Idle(totals, IdleCause::kWrite), 1, kNear);
  EXPECT_NEAR(Idle(totals, IdleCause::kLease), 2, kNear);
  double all = totals.model_s;
  for (const double s : totals.idle_s) all += s;
  EXPECT_NEAR(all, 12, kNear);
}

TEST(ModelTime, RunsOfSeveralLanesCountOnce) {
  ModelTime time(At(0));
  time.Ran(At(1), At(3));
  time.Ran(At(0.5), At(4));
  time.Ran(At(3.5), At(5));
  time.Ran(At(2), At(2));  // no time at all
  const auto totals = time.totals(At(6));
  EXPECT_NEAR(totals.model_s, 4.5, kNear);
  EXPECT_NEAR(Idle(totals, IdleCause::kStart), 0.5, kNear);
  EXPECT_NEAR(Idle(totals, IdleCause::kLease), 1, kNear);
}

TEST(ModelTime, WhatIsUnderWayIsNotCalledIdle) {
  ModelTime time(At(0));
  time.Begins(At(1));
  time.Begins(At(2));
  EXPECT_NEAR(Idle(time.totals(At(3)), IdleCause::kStart), 1, kNear) << "up to the horizon";
  time.Ran(At(1.5), At(2.5));
  time.Ended(At(1));
  auto totals = time.totals(At(4));
  EXPECT_NEAR(totals.model_s, 0.5, kNear) << "up to 2, when the other was asked for";
  EXPECT_NEAR(Idle(totals, IdleCause::kStart), 1.5, kNear);
  time.Ran(At(2.5), At(5));
  time.Ended(At(2));
  totals = time.totals(At(5));
  EXPECT_NEAR(totals.model_s, 3.5, kNear);
  EXPECT_NEAR(Idle(totals, IdleCause::kLease), 0, kNear);
}

TEST(ModelTime, StagesUnderTheModelAreMeasured) {
  ModelTime time(At(0));
  time.Other(0, At(0), At(2));  // half of it
  time.Other(3, At(1.5), At(1.75));
  time.Begins(At(1));
  time.Ran(At(1), At(4));
  time.Other(0, At(3.5), At(4.5));
  time.Ended(At(1));
  time.Ran(At(5), At(6));
  time.Other(0, At(3), At(6));  // across a gap
  time.Other(1, At(4), At(5));  // in the gap
  const auto totals = time.totals(At(7));
  ASSERT_GE(totals.under_model_s.size(), 4u);
  EXPECT_NEAR(totals.under_model_s[0], 1 + 0.5 + 2, kNear);
  EXPECT_NEAR(totals.under_model_s[1], 0, kNear);
  EXPECT_NEAR(totals.under_model_s[3], 0.25, kNear);
}

TEST(ModelTime, QueuesHaveAMeanOverTimeAndAMost) {
  ModelTime time(At(0));
  time.Now({.waiting = 4, .reading = 1}, At(1));
  time.Now({.waiting = 1, .computing = 2}, At(2));
  time.Now({.writing = 3}, At(4));
  const auto totals = time.totals(At(5));
  EXPECT_NEAR(totals.mean[0], (4 + 2 * 1) / 5.0, kNear);
  EXPECT_NEAR(totals.mean[1], 1 / 5.0, kNear);
  EXPECT_NEAR(totals.mean[2], 4 / 5.0, kNear);
  EXPECT_NEAR(totals.mean[3], 3 / 5.0, kNear);
  EXPECT_EQ(totals.most, (std::array<int64_t, kQueues>{4, 1, 2, 3}));
}

TEST(ModelTime, ManyIntervalsAreSettledAsTheyCome) {
  ModelTime time(At(0));
  for (int i = 0; i < 50'000; ++i) {
    time.Begins(At(i));
    time.Now({.computing = i % 2}, At(i + 0.25));
    time.Ran(At(i), At(i + 0.5));
    time.Other(2, At(i + 0.25), At(i + 0.75));
    time.Ended(At(i));
  }
  const auto totals = time.totals(At(50'000));
  EXPECT_NEAR(totals.model_s, 25'000, 1e-3);
  EXPECT_NEAR(totals.under_model_s[2], 12'500, 1e-3);
  EXPECT_NEAR(Idle(totals, IdleCause::kEngine), 12'500, 1);
  EXPECT_NEAR(Idle(totals, IdleCause::kLease), 12'500, 1);
}

}  // namespace
}  // namespace tilery
