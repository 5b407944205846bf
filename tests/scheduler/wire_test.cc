#include "scheduler/wire.h"

#include <gtest/gtest.h>

#include "tests/io/expect_error.h"

namespace tilery {
namespace {

ItemParams OddParams() {
  ItemParams p;
  p.dims = 3;
  p.tiling = {{8, 16, 32},
              {2, 4, 8},
              {1, 2, 4},
              {1, 2, 2},
              {Rational{2, 1}, Rational{1, 8}, Rational{3, 2}},
              WindowKind::kGaussian,
              PadMode::kZero};
  p.transfer.in_dtype = DType::kI16;
  p.transfer.raw_lo = -1.0 / 3;
  p.transfer.mean = {0.1, 0.2};
  p.transfer.std = {1e-300, 3};
  p.transfer.passes = {{Pass::Op::kResize, Pass::Reduce::kMean, {2, 1, 0}, {0}, 1, 2, true}, {}};
  p.transfer.post = {{PostOp::Kind::kClamp, {0, 1}}, {PostOp::Kind::kArgmax, {}}};
  p.transfer.out_dtype = DType::kF16;
  p.transfer.labels = true;
  p.transfer.nonfinite = Transfer::NonFinite::kFail;
  p.output.format = "nifti";
  p.output.alpha = AlphaKind::kAssociated;
  p.raw = RawLayout{DType::kU32, {1, 2, 3}, 4, true, 5};
  p.allow_losses = true;
  return p;
}

// Through the bytes of a frame, as on the wire.
Json Sent(const Json& json) {
  return DecodeBody(EncodeFrame({{"type", "x"}, {"it", json}}).substr(4)).at("it");
}

TEST(Wire, ParametersComeBackEqual) {
  const ItemParams p = OddParams();
  const ItemParams q = ItemParamsFromJson(Sent(ToJson(p)));
  EXPECT_EQ(q, p);
  EXPECT_EQ(q.transfer.std[0], 1e-300);
  EXPECT_EQ(ItemParamsFromJson(Sent(ToJson(ItemParams{}))), ItemParams{});
}

TEST(Wire, TheContextComesBackEqual) {
  WorkerContext c;
  c.work = "/w\xff";
  c.scratch = "/s";
  c.model = "/m";
  c.tile = {1, 2, 3};
  c.scale = {Rational{1, 1}, Rational{1, 4}, Rational{2, 1}};
  c.batch = 8;
  c.slots = "0-6";
  c.lanes = 3;
  c.graph = false;
  c.device_memory = 1LL << 36;
  c.layout = "nhwc";
  c.libraries = {{"/l/b.so", "hb"}, {"/l/a.so", "ha"}};
  c.compiled_only = true;
  c.grids = true;
  c.package = "/w/model.pt2";
  c.package_hash = "hash";
  c.device_kind = "cpu/x";
  ItemParams grids;
  grids.grids.kind = GridTask::Kind::kCompress;
  grids.grids.bounds = ParseGridBounds("5%,density=0.1,flame=lossless");
  grids.grids.bounds.named.emplace_back("\xff[1]", GridBound{});
  c.params = {OddParams(), ItemParams{}, grids};
  const WorkerContext d = ContextFromJson(Sent(ToJson(c)));
  EXPECT_EQ(d.work, c.work);
  EXPECT_EQ(d.tile, c.tile);
  EXPECT_EQ(d.scale, c.scale);
  EXPECT_EQ(d.batch, 8);
  EXPECT_EQ(d.slots, "0-6");
  EXPECT_EQ(d.lanes, 3);
  EXPECT_FALSE(d.graph);
  EXPECT_EQ(d.device_memory, 1LL << 36);
  EXPECT_EQ(d.layout, "nhwc");
  EXPECT_EQ(d.libraries, c.libraries);
  EXPECT_TRUE(d.compiled_only);
  EXPECT_TRUE(d.grids);
  EXPECT_EQ(d.package, "/w/model.pt2");
  EXPECT_EQ(d.package_hash, "hash");
  EXPECT_EQ(d.params, c.params);
}

TEST(Wire, UnitsComeBackEqualAndSmallOnesAreSmall) {
  UnitWork w;
  w.kind = UnitKind::kAssemble;
  w.item = 1LL << 40;
  w.input = std::string("in\0\xfe", 4);
  w.output = "out";
  w.item_key = "k";
  w.stamp = {1, -2, 3, UINT64_MAX};
  w.header.format = "tiff";
  w.header.shape = {9, 8, 7};
  w.header.access = Access::kRows;
  w.sizing = {3, 4, 5, 6};
  w.block = 12;
  w.bricks = {{0, "f0", "k0"}, {1, "f1", "k1"}};
  w.bricks_missing = 5;
  const UnitWork v = UnitWorkFromJson(Sent(ToJson(w)));
  EXPECT_EQ(v.kind, w.kind);
  EXPECT_EQ(v.item, w.item);
  EXPECT_EQ(v.input, w.input);
  EXPECT_EQ(v.stamp, w.stamp);
  EXPECT_EQ(v.header.shape, w.header.shape);
  EXPECT_EQ(v.header.access, w.header.access);
  EXPECT_EQ(v.sizing, w.sizing);
  EXPECT_EQ(v.block, 12);
  ASSERT_EQ(v.bricks.size(), 2u);
  EXPECT_EQ(v.bricks[1].file, "f1");
  EXPECT_EQ(v.bricks_missing, 5);
  EXPECT_FALSE(v.whole);

  UnitWork small;
  small.input = small.output = std::string(40, 'p');
  small.whole = true;
  EXPECT_LT(EncodeFrame(ToJson(small)).size(), 250u);
}

TEST(Wire, OutcomesComeBackEqual) {
  const Done done{"f", {5, "h", {5, 1, 2, 3}}, 7, 8, 9, 6};
  const auto back = std::get<Done>(OutcomeFromJson(Sent(ToJson(Outcome(done)))));
  EXPECT_EQ(back.file, "f");
  EXPECT_EQ(back.published.stamp, done.published.stamp);
  EXPECT_EQ(back.tiles, 7);
  EXPECT_EQ(back.repeated, 8);
  EXPECT_EQ(back.nonfinite_in, 9);
  EXPECT_EQ(back.careful, 6);
  const auto failed =
      std::get<Failed>(OutcomeFromJson(Sent(ToJson(Outcome(Failed{"s", "r", Fault::kModel})))));
  EXPECT_EQ(failed.fault, Fault::kModel);
  const auto lost =
      std::get<LostBrick>(OutcomeFromJson(Sent(ToJson(Outcome(LostBrick{"k", "r", 4})))));
  EXPECT_EQ(lost.unit, 4);
  EXPECT_EQ(std::get<Retry>(OutcomeFromJson(Sent(ToJson(Outcome(Retry{"s", "r"}))))).reason, "r");
}

TEST(Wire, WrongValuesAreErrorsInWords) {
  EXPECT_NE(ErrorOf(Fault::kInternal,
                    [] {
                      OutcomeFromJson({{"is", "what"}});
                    })
                .find("what"),
            std::string::npos);
  ErrorOf(Fault::kInternal, [] { OutcomeFromJson(Json::array()); });
  ErrorOf(Fault::kInternal, [] { UnitWorkFromJson({{"input", 1}}); });
  ErrorOf(Fault::kInternal, [] { StampFromJson({1, 2}); });
  Json json = ToJson(UnitWork{});
  json["kind"] = 77;
  EXPECT_NE(ErrorOf(Fault::kInternal, [&] { UnitWorkFromJson(json); }).find("77"),
            std::string::npos);
}

TEST(Wire, ListsOfBricksComeBackAndCutOnesAreErrors) {
  const std::vector<Brick> bricks = {{0, "a.brick", "k0"}, {12, "b c.brick", "k1"}};
  const std::string text = BricksToText(bricks);
  const auto back = BricksFromText(text);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[1].block, 12);
  EXPECT_EQ(back[1].file, "b c.brick");
  EXPECT_EQ(back[1].key, "k1");
  ErrorOf(Fault::kTransient, [&] { BricksFromText(text.substr(0, text.size() - 1)); });
}

}  // namespace
}  // namespace tilery
