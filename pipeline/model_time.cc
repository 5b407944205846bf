#include "pipeline/model_time.h"

#include <algorithm>

namespace tilery {
namespace {

constexpr size_t kRunsKept = 20'000;   // for stages that began long ago
constexpr size_t kSettleEvery = 4096;  // intervals that wait

double Seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

IdleCause CauseOf(const UnitsAt& units) {
  if (units.computing > 0) return IdleCause::kEngine;
  if (units.reading > 0) return IdleCause::kRead;
  return units.writing + units.waiting > 0 ? IdleCause::kWrite : IdleCause::kLease;
}

std::array<int64_t, kQueues> Depths(const UnitsAt& units) {
  return {units.waiting, units.reading, units.computing, units.writing};
}

}  // namespace

const char* QueueName(int queue) {
  static constexpr const char* kNames[kQueues] = {"waiting", "reading", "computing", "writing"};
  return kNames[queue];
}

const char* IdleCauseName(IdleCause cause) {
  static constexpr const char* kNames[kIdleCauses] = {"start", "lease", "read", "engine", "write"};
  return kNames[static_cast<size_t>(cause)];
}

void ModelTime::Ended(Time began) {
  const auto its = under_way_.find(began);
  if (its != under_way_.end()) under_way_.erase(its);
}

void ModelTime::Ran(Time begin, Time end) {
  if (begin < end) fresh_.push_back({begin, end});
  if (fresh_.size() >= kSettleEvery) Settle(end);
}

void ModelTime::Other(size_t stage, Time begin, Time end) {
  others_.push_back({{begin, end}, stage});
  if (others_.size() >= kSettleEvery) Settle(end);
}

void ModelTime::Now(const UnitsAt& units, Time now) {
  CountDepths(now);
  units_ = units;
  const auto depths = Depths(units);
  for (int q = 0; q < kQueues; ++q) totals_.most[q] = std::max(totals_.most[q], depths[q]);
  const IdleCause cause = CauseOf(units);
  if (causes_.back().cause != cause) causes_.push_back({now, cause});
  if (causes_.size() >= kSettleEvery) Settle(now);
}

void ModelTime::CountDepths(Time now) {
  const double passed = Seconds(now - depth_since_);
  const auto depths = Depths(units_);
  for (int q = 0; q < kQueues; ++q) totals_.mean[q] += passed * static_cast<double>(depths[q]);
  depth_since_ = now;
}

void ModelTime::Idle(Time begin, Time end) {
  if (begin >= end) return;
  if (!started_) {
    totals_.idle_s[static_cast<size_t>(IdleCause::kStart)] += Seconds(end - begin);
    return;
  }
  for (size_t i = 0; i < causes_.size(); ++i) {
    const Time from = i == 0 ? begin : std::max(begin, causes_[i].since);
    const Time to = i + 1 < causes_.size() ? std::min(end, causes_[i + 1].since) : end;
    if (from < to) totals_.idle_s[static_cast<size_t>(causes_[i].cause)] += Seconds(to - from);
  }
}

double ModelTime::UnderModel(const Interval& time) const {
  double s = 0;
  auto run = std::lower_bound(runs_.begin(), runs_.end(), time.begin,
                              [](const Interval& r, Time at) { return r.end <= at; });
  for (; run != runs_.end() && run->begin < time.end; ++run)
    s += Seconds(std::min(run->end, time.end) - std::max(run->begin, time.begin));
  return s;
}

void ModelTime::Settle(Time now) {
  const Time horizon = under_way_.empty() ? now : std::min(now, *under_way_.begin());
  std::sort(fresh_.begin(), fresh_.end(),
            [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
  // Runs up to the horizon; one that reaches beyond it is settled as far and stays.
  std::vector<Interval> left;
  for (const Interval& run : fresh_) {
    if (run.begin >= horizon) {
      left.push_back(run);
      continue;
    }
    const Time end = std::min(run.end, horizon);
    if (run.end > horizon) left.push_back({horizon, run.end});
    const Time begin = std::max(run.begin, settled_until_);
    if (end <= begin) continue;  // beside another run that covers it
    Idle(settled_until_, begin);
    started_ = true;
    totals_.model_s += Seconds(end - begin);
    if (!runs_.empty() && runs_.back().end == begin)
      runs_.back().end = end;
    else
      runs_.push_back({begin, end});
    settled_until_ = end;
  }
  fresh_ = std::move(left);
  Idle(settled_until_, horizon);
  settled_until_ = std::max(settled_until_, horizon);
  while (causes_.size() > 1 && causes_[1].since <= settled_until_) causes_.pop_front();

  std::erase_if(others_, [&](const OtherInterval& other) {
    if (other.time.end > settled_until_) return false;
    if (totals_.under_model_s.size() <= other.stage) totals_.under_model_s.resize(other.stage + 1);
    totals_.under_model_s[other.stage] += UnderModel(other.time);
    return true;
  });
  while (runs_.size() > kRunsKept) runs_.pop_front();
}

ModelTime::Totals ModelTime::totals(Time now) {
  Settle(now);
  CountDepths(now);
  Totals totals = totals_;
  const double alive = Seconds(now - start_);
  for (double& mean : totals.mean) mean = alive > 0 ? mean / alive : 0;
  return totals;
}

}  // namespace tilery
