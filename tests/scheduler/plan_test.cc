#include "scheduler/plan.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

// Items of: one unit; refused; staged with three units; two units.
Plan SmallPlan() {
  Plan plan;
  plan.items.resize(4);
  plan.items[0].infer_units = 1;
  plan.items[1].refused = "damaged";
  plan.items[2].infer_units = 3;
  plan.items[2].staged = true;
  plan.items[3].infer_units = 2;
  for (Item& item : plan.items) {
    item.first_unit = plan.units;
    plan.units += item.units();
  }
  return plan;
}

TEST(PlanTest, UnitsAreNumberedStageInferAssemble) {
  const Plan plan = SmallPlan();
  EXPECT_EQ(plan.units, 1 + 0 + 5 + 3);
  const std::vector<UnitRef> want = {
      {0, UnitKind::kInfer, 0}, {2, UnitKind::kStage, 0}, {2, UnitKind::kInfer, 0},
      {2, UnitKind::kInfer, 1}, {2, UnitKind::kInfer, 2}, {2, UnitKind::kAssemble, 0},
      {3, UnitKind::kInfer, 0}, {3, UnitKind::kInfer, 1}, {3, UnitKind::kAssemble, 0}};
  for (int64_t unit = 0; unit < plan.units; ++unit) {
    const UnitRef ref = plan.Find(unit);
    EXPECT_EQ(ref.item, want[static_cast<size_t>(unit)].item) << unit;
    EXPECT_EQ(ref.kind, want[static_cast<size_t>(unit)].kind) << unit;
    EXPECT_EQ(ref.block, want[static_cast<size_t>(unit)].block) << unit;
    EXPECT_EQ(plan.UnitOf(ref.item, ref.kind, ref.block), unit);
  }
}

TEST(PlanTest, UnitsThatAreNotThereAreAFaultOfOurs) {
  const Plan plan = SmallPlan();
  ErrorOf(Fault::kInternal, [&] { plan.Find(plan.units); });
  ErrorOf(Fault::kInternal, [&] { plan.Find(-1); });
  ErrorOf(Fault::kInternal, [&] { plan.UnitOf(0, UnitKind::kAssemble); });
  ErrorOf(Fault::kInternal, [&] { plan.UnitOf(1, UnitKind::kInfer); });
  ErrorOf(Fault::kInternal, [&] { plan.UnitOf(3, UnitKind::kStage); });
  ErrorOf(Fault::kInternal, [&] { plan.UnitOf(3, UnitKind::kInfer, 2); });
}

TEST(PlanTest, KeysOfUnitsDifferByItemNumericsAndBlock) {
  const std::string key = UnitKey("a", "n", 0);
  EXPECT_EQ(key.size(), 32u);
  EXPECT_EQ(key, UnitKey("a", "n", 0));
  EXPECT_NE(key, UnitKey("a", "n", 1));
  EXPECT_NE(key, UnitKey("a", "m", 0));
  EXPECT_NE(key, UnitKey("b", "n", 0));
}

}  // namespace
}  // namespace tilery
