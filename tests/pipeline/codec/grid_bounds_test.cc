#include "pipeline/codec/grid_bounds.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

using Kind = GridBound::Kind;

VdbGrid Named(const std::string& name, const std::string& label = "") {
  VdbGrid grid;
  grid.name = name;
  grid.label = label.empty() ? name : label;
  return grid;
}

TEST(GridBoundsTest, OnePercentOfTheRangeIfNobodySaysOtherwise) {
  EXPECT_EQ(GridBounds{}.For(Named("density")), (GridBound{Kind::kShare, 0.01}));
  EXPECT_EQ(ParseGridBounds("1%"), GridBounds{});
}

TEST(GridBoundsTest, SharesNumbersAndLossless) {
  EXPECT_EQ(ParseGridBounds("5%").standard, (GridBound{Kind::kShare, 0.05}));
  EXPECT_EQ(ParseGridBounds(" 0.5 % ").standard, (GridBound{Kind::kShare, 0.005}));
  EXPECT_EQ(ParseGridBounds("0.01").standard, (GridBound{Kind::kAbsolute, 0.01}));
  EXPECT_EQ(ParseGridBounds("1e-3").standard, (GridBound{Kind::kAbsolute, 1e-3}));
  EXPECT_EQ(ParseGridBounds("lossless").standard.kind, Kind::kExact);
  EXPECT_EQ(ParseGridBounds("0").standard.kind, Kind::kExact);
  EXPECT_EQ(ParseGridBounds("0%").standard.kind, Kind::kExact);
}

TEST(GridBoundsTest, GridByGrid) {
  const GridBounds bounds = ParseGridBounds("density=2%, vel=0.01,flame=lossless,a=b=3");
  EXPECT_EQ(bounds.For(Named("density")), (GridBound{Kind::kShare, 0.02}));
  EXPECT_EQ(bounds.For(Named("vel")), (GridBound{Kind::kAbsolute, 0.01}));
  EXPECT_EQ(bounds.For(Named("flame")).kind, Kind::kExact);
  EXPECT_EQ(bounds.For(Named("a=b")), (GridBound{Kind::kAbsolute, 3}));
  EXPECT_EQ(bounds.For(Named("other")), GridBound{});
  EXPECT_EQ(ParseGridBounds("vel=1,7%").For(Named("other")), (GridBound{Kind::kShare, 0.07}));
}

TEST(GridBoundsTest, OneOfSeveralGridsOfANameIsMeantByItsLabel) {
  const GridBounds bounds = ParseGridBounds("d=2%,d[1]=3%");
  EXPECT_EQ(bounds.For(Named("d", "d[0]")), (GridBound{Kind::kShare, 0.02}));
  EXPECT_EQ(bounds.For(Named("d", "d[1]")), (GridBound{Kind::kShare, 0.03}));
}

TEST(GridBoundsTest, MistakesAreNamedWithTheWayOut) {
  for (const char* text : {"", "-1", "-3%", "100%", "1 percent", "nan", "inf", "1e999", "1%,2%",
                           "d=", "d=1,d=2", "1%%"}) {
    const std::string said = ErrorOf(Fault::kUsage, [&] { ParseGridBounds(text); });
    EXPECT_NE(said.find("write it as"), std::string::npos) << said;
    EXPECT_NE(said.find(text), std::string::npos) << said;
  }
}

TEST(GridBoundsTest, SharesBecomeNumbersByTheRangesOfASequence) {
  const GridBounds resolved =
      Resolve(ParseGridBounds("10%,vel=0.5,flat=1%"),
              {Named("density"), Named("vel"), Named("flat"), Named("unmeasured"), Named("none")},
              {{"density", {-1, 3}}, {"vel", {0, 9}}, {"flat", {2, 2}}, {"none", {1, -1}}});
  EXPECT_EQ(resolved.For(Named("density")), (GridBound{Kind::kAbsolute, 0.1 * 4}));
  EXPECT_EQ(resolved.For(Named("vel")), (GridBound{Kind::kAbsolute, 0.5}));
  EXPECT_EQ(resolved.For(Named("flat")).kind, Kind::kExact);
  EXPECT_EQ(resolved.For(Named("none")).kind, Kind::kExact);
  EXPECT_EQ(resolved.For(Named("unmeasured")), (GridBound{Kind::kShare, 0.1}));
}

TEST(GridBoundsTest, WordsForPeople) {
  EXPECT_EQ(GridBounds{}.Words(), "within 1 % of the range");
  EXPECT_EQ(ParseGridBounds("5%,vel=0.25,flame=lossless").Words(),
            "within 5 % of the range, vel within 0.25, flame exactly");
}

}  // namespace
}  // namespace tilery
