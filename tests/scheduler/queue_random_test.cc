// Random schedules against what must always hold: no unit with two holders but a slow one with
// exactly two, none accepted twice,
// dependencies in order, scratch within its limit, and an end.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "scheduler/queue.h"
#include "tests/scheduler/coord_support.h"

namespace tilery {
namespace {

struct Model {
  std::map<int64_t, std::pair<int, int64_t>> held;  // lease -> worker, unit
  std::set<int64_t> done;                           // accepted and not lost since
  std::set<int64_t> failed;                         // items
};

class RandomSchedule : public testing::TestWithParam<int> {};

TEST_P(RandomSchedule, KeepsEveryPromiseAndEnds) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  std::vector<ItemSpec> specs(static_cast<size_t>(1 + pick(12)));
  for (ItemSpec& spec : specs) {
    spec.tiles = pick(3) == 0 ? 1 : 1 + pick(6);
    spec.staged = pick(4) == 0;
    spec.scratch_bytes = spec.tiles > 1 ? 1 + pick(50) : 0;
  }
  const Plan plan = MakeTestPlan(specs, "/data");
  const int64_t limit = 60;
  UnitQueue q(plan.items, {.lease_s = 5, .max_attempts = 4, .scratch_limit = limit});
  Model model;
  std::vector<UnitQueue::WorkerIndex> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(q.AddWorker());
  double now = 0;

  const auto fail = [&](int64_t item) {
    if (!q.ItemOpen(item)) return;
    for (const auto& dropped : q.Fail(item)) {
      ASSERT_TRUE(model.held.contains(dropped.lease));
      model.held.erase(dropped.lease);
    }
    model.failed.insert(item);
  };
  const auto came_back = [&](const UnitQueue::CameBack& back) {
    if (back.back == UnitQueue::Back::kSpent) fail(back.item);
  };
  const auto take_withdrawn = [&] {
    for (const auto& withdrawn : q.TakeWithdrawn()) model.held.erase(withdrawn.lease);
  };

  const int calm_after = pick(2) == 0 ? 2000 : pick(60);
  int steps = 0;
  for (; !q.AllDone() && steps < 20000; ++steps) {
    now += 0.3;
    // Towards the end only progress, so that it ends; and of one worker, for whom nobody does what
    // it waits for.
    const bool calm = steps > calm_after;
    const int w = calm ? 0 : pick(3);
    const int action = pick(100);
    if (action < 50 || calm) {
      const Room room{.infer = pick(5) != 0, .stage = pick(5) != 0, .assemble = pick(5) != 0};
      if (const auto grant = q.Lease(workers[w], room, now)) {
        const auto holders =
            std::count_if(model.held.begin(), model.held.end(),
                          [&](const auto& h) { return h.second.second == grant->unit; });
        ASSERT_EQ(holders, grant->twice ? 1 : 0);
        ASSERT_FALSE(model.done.contains(grant->unit));
        ASSERT_FALSE(model.failed.contains(grant->item));
        const Item& item = plan.items[static_cast<size_t>(grant->item)];
        for (int64_t unit = item.first_unit; unit < grant->unit; ++unit) {
          const bool needed =
              grant->kind == UnitKind::kAssemble
                  ? q.Find(unit).kind == UnitKind::kInfer && !grant->early
                  : grant->kind == UnitKind::kInfer && q.Find(unit).kind == UnitKind::kStage;
          ASSERT_TRUE(!needed || model.done.contains(unit)) << grant->unit << " before " << unit;
        }
        model.held[grant->lease] = {w, grant->unit};
      }
    }
    take_withdrawn();
    if (model.held.empty()) continue;
    auto it = model.held.begin();
    std::advance(it, pick(static_cast<int>(model.held.size())));
    const auto [lease, holder] = *it;
    if (q.Waits(lease) && ((action >= 50 && action < 80) || calm)) {
      // It can't be done yet.
    } else if ((action >= 50 && action < 80) || calm) {
      std::vector<UnitQueue::Dropped> dropped;
      const int64_t item = q.ItemOf(holder.second);
      ASSERT_TRUE(q.Finish(lease, holder.second, dropped));
      ASSERT_FALSE(q.Finish(lease, holder.second, dropped)) << "accepted twice";
      model.held.erase(lease);
      model.done.insert(holder.second);
      for (const auto& d : dropped) model.held.erase(d.lease);
      if (!q.ItemOpen(item)) {
        for (int64_t u = plan.items[item].first_unit;
             u < plan.items[item].first_unit + plan.items[item].units(); ++u) {
          model.done.insert(u);
        }
      }
    } else if (action < 85) {
      const int other = (holder.first + 1) % 3;
      ASSERT_EQ(q.Return(lease, workers[other], true).back, UnitQueue::Back::kNotHeld);
      model.held.erase(lease);
      came_back(q.Return(lease, workers[holder.first], true));
    } else if (action < 90) {
      const int64_t item = q.ItemOf(holder.second);
      const int64_t lost = plan.items[item].first_unit + pick(plan.items[item].units());
      if (lost >= holder.second || !model.done.contains(lost)) continue;
      model.held.erase(lease);
      model.done.erase(lost);
      came_back(q.LoseResult(lease, workers[holder.first], lost));
    } else if (action < 93) {
      std::erase_if(model.held, [&](const auto& entry) { return entry.second.first == w; });
      for (const auto& back : q.WorkerDied(workers[w])) came_back(back);
    } else if (action < 96) {
      now += 4;
      const auto expired = q.Expire(now);
      std::erase_if(model.held, [&](const auto& entry) {
        return !q.Holds(entry.first, workers[entry.second.first]);
      });
      for (const auto& back : expired) came_back(back);
    } else {
      q.Renew(workers[w], now);
    }
    take_withdrawn();
    std::set<int64_t> leased;
    for (const auto& [its_lease, its_holder] : model.held) leased.insert(its_holder.second);
    ASSERT_EQ(q.counts().leased, static_cast<int64_t>(leased.size()));
    ASSERT_LE(q.scratch_used(), limit);
    ASSERT_EQ(q.counts().waiting + q.counts().leased + q.counts().done + q.counts().failed,
              q.units());
  }
  EXPECT_TRUE(q.AllDone()) << "no end after " << steps << " steps";
  EXPECT_EQ(q.scratch_used(), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomSchedule, testing::Range(0, 300));

}  // namespace
}  // namespace tilery
