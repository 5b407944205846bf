#include "scheduler/tiling_rules.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"
#include "tests/scheduler/expect_words.h"
#include "tests/scheduler/plan_inputs.h"

namespace tilery {
namespace {

using Values = std::vector<int64_t>;

class TilingRulesTest : public testing::Test {
 protected:
  ResolvedTiling Resolve(int dims = 2) { return ResolveTiling(job_, contract_, dims); }
  std::string Mistake(int dims = 2) {
    return ErrorOf(Fault::kUsage, [&] { Resolve(dims); });
  }

  Job job_ = JobOf();
  Contract contract_ = ContractOf(3, 3);
};

TEST_F(TilingRulesTest, TileIsTheModelsSuggestionElseASensibleSize) {
  EXPECT_EQ(Resolve(2).tile, (Values{256, 256}));
  EXPECT_EQ(Resolve(3).tile, (Values{96, 96, 96}));
  contract_.multiple = Values{7};
  EXPECT_EQ(Resolve(2).tile, (Values{259, 259}));
  contract_.tile = Values{126, 70};
  EXPECT_EQ(Resolve(2).tile, (Values{126, 70}));
  job_.tiling.tile = Voxels({14});
  EXPECT_EQ(Resolve(2).tile, (Values{14, 14}));
}

TEST_F(TilingRulesTest, PicturesHaveNoTilingAlongZ) {
  const Tiling tiling = Resolve(2).tiling;
  EXPECT_EQ(tiling.tile, (Index{1, 256, 256}));
  EXPECT_EQ(tiling.overlap[0], 0);
  EXPECT_EQ(tiling.scale[0], Rational{});
}

TEST_F(TilingRulesTest, AutoOverlapIsTwiceTheRadiusUpToHalfATileElseAQuarter) {
  EXPECT_EQ(Resolve().overlap, (Values{64, 64}));  // no radius known: T/4
  contract_.radius = Values{10};
  EXPECT_EQ(Resolve().overlap, (Values{20, 20}));
  contract_.radius = Values{64};
  EXPECT_EQ(Resolve().overlap, (Values{128, 128}));
  contract_.radius = Values{65};
  EXPECT_EQ(Resolve().overlap, (Values{64, 64}));
  contract_.radius = Values{0};
  EXPECT_EQ(Resolve().overlap, (Values{0, 0}));
  EXPECT_TRUE(Resolve().exact);
  contract_.radius = Values{3};
  contract_.multiple = Values{8};
  EXPECT_EQ(Resolve().overlap, (Values{8, 8}));
}

TEST_F(TilingRulesTest, TheModelsOverlapCountsWithItsTileOnly) {
  contract_.tile = Values{128};
  contract_.overlap = Values{24};
  EXPECT_EQ(Resolve().overlap, (Values{24, 24}));
  job_.tiling.tile = Voxels({64});
  EXPECT_EQ(Resolve().overlap, (Values{16, 16}));
}

TEST_F(TilingRulesTest, APercentageIsOfTheTileOfEachAxis) {
  job_.tiling.tile = Voxels({4, 4, 1});
  job_.tiling.overlap = {Extent::Kind::kPercent, {25}};
  EXPECT_EQ(Resolve(3).overlap, (Values{1, 1, 0}));
  job_.tiling.overlap = {Extent::Kind::kPercent, {99.9999999999}};
  EXPECT_EQ(Resolve(3).overlap, (Values{3, 3, 0}));
}

TEST_F(TilingRulesTest, AutoTrimIsTheRadiusWhereTheOverlapCoversIt) {
  job_.tiling.tile = Voxels({64});
  job_.tiling.overlap = Voxels({16});
  contract_.radius = Values{8};
  EXPECT_EQ(Resolve().trim, (Values{8, 8}));
  EXPECT_TRUE(Resolve().exact);
  EXPECT_EQ(Resolve().inexact_reason, "");
  contract_.radius = Values{9};
  EXPECT_EQ(Resolve().trim, (Values{4, 4}));
  EXPECT_FALSE(Resolve().exact);
  EXPECT_EQ(Resolve().inexact_reason, "not exact: exact needs overlap 18");
  contract_.radius.reset();
  EXPECT_EQ(Resolve().trim, (Values{0, 0}));
  ExpectWords(Resolve().inexact_reason, {"not exact", "model.radius"});
}

TEST_F(TilingRulesTest, AModelThatShrinksTrimsByItsStep) {
  contract_ = ContractOf(3, 3, Rational::Of(1, 8));
  contract_.radius = Values{3};
  job_.tiling.tile = Voxels({64});
  job_.tiling.overlap = Voxels({16});
  EXPECT_EQ(Resolve().trim, (Values{8, 8}));
  EXPECT_TRUE(Resolve().exact);
  contract_.radius = Values{9};
  EXPECT_EQ(Resolve().trim, (Values{0, 0}));  // 16 / 4 rounded down to a multiple of 8
  EXPECT_EQ(Resolve().inexact_reason, "not exact: exact needs overlap 32");
}

TEST_F(TilingRulesTest, AnExplicitTrimIsExactIfItCoversTheRadius) {
  job_.tiling.tile = Voxels({64});
  job_.tiling.overlap = Voxels({16});
  job_.tiling.trim = Voxels({5});
  contract_.radius = Values{5};
  EXPECT_TRUE(Resolve().exact);
  contract_.radius = Values{6};
  EXPECT_EQ(Resolve().inexact_reason, "not exact: exact needs trim 6");
  job_.tiling.trim = Voxels({9});
  ExpectWords(Mistake(), {"tiling.trim", "9", "16", "at most 8"});
}

TEST_F(TilingRulesTest, AxesMayDiffer) {
  job_.tiling.tile = Voxels({8, 32, 48});
  job_.tiling.overlap = Voxels({2, 8, 16});
  job_.tiling.trim = Voxels({0});
  contract_.multiple = Values{1, 2, 4};
  const ResolvedTiling resolved = Resolve(3);
  EXPECT_EQ(resolved.tile, (Values{8, 32, 48}));
  EXPECT_EQ(resolved.overlap, (Values{2, 8, 16}));
  EXPECT_EQ(resolved.tiling.multiple, (Index{1, 2, 4}));
}

TEST_F(TilingRulesTest, MistakesNameBothNumbersAndTheNextValidValues) {
  job_.tiling.tile = Voxels({64});
  job_.tiling.overlap = Voxels({64});
  ExpectWords(Mistake(), {"tiling.overlap", "overlap of 64", "tile of 64"});
  job_.tiling.overlap = Voxels({12});
  contract_.multiple = Values{8};
  ExpectWords(Mistake(), {"tiling.overlap", "12", "multiple of 8", "8 or 16"});
  job_.tiling.tile = Voxels({60});
  ExpectWords(Mistake(), {"tiling.tile", "60", "multiple of 8", "56 or 64"});
  job_.tiling.tile = Voxels({5});
  ExpectWords(Mistake(), {"tiling.tile", "5", "next valid: 8"});
  job_.tiling.tile = Voxels({64, 64, 64});
  ExpectWords(Mistake(), {"tiling.tile", "3 values", "2 dimensions", "model.dims"});
}

TEST_F(TilingRulesTest, ATileOfAbsurdSizeIsRefusedByItsKey) {
  job_.tiling.tile = Voxels({static_cast<double>(int64_t{1} << 40)});
  ExpectWords(Mistake(), {"tiling.tile", "1099511627776", "1048576"});
  job_.tiling.tile = {};
  contract_.tile = Values{int64_t{1} << 40};
  ExpectWords(Mistake(), {"model.tiling.tile", "1099511627776", "1048576"});
}

TEST_F(TilingRulesTest, AScaleFractionAndAMultipleBothCount) {
  contract_ = ContractOf(3, 3, Rational::Of(1, 6));
  contract_.multiple = Values{4};
  job_.tiling.tile = Voxels({64});
  ExpectWords(Mistake(), {"64", "multiple of 12", "60 or 72"});
}

}  // namespace
}  // namespace tilery
