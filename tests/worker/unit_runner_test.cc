// Units from file to file, in one process, over an engine without Torch.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>

#include "scheduler/attempt_name.h"
#include "tests/worker/worker_fixture.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using UnitRunnerTest = WorkerTest;

TEST_F(UnitRunnerTest, PublishesASmallPictureInOneUnit) {
  const Index shape{1, 50, 70};
  const auto samples = Noise(50 * 70 * 3, 1);
  const auto input = Write("a.png", "png", DType::kU8, 3, shape, samples);
  const int32_t params = AddParams("png", DType::kU8, 3, Tiles({1, 32, 32}, {0, 8, 8}));
  StartRunner();
  const TestItem item = MakeItem(input, "a.png", params);
  const Outcome outcome = Run(LeaseOf(item, UnitKind::kInfer));
  const Done& done = AsDone(outcome);
  EXPECT_EQ(done.file, item.base.output);
  EXPECT_EQ(done.tiles, 2 * 3);
  EXPECT_EQ(done.published.hash, HashFile(item.base.output));
  EXPECT_EQ(done.published.stamp, StampOf(item.base.output).value());
  EXPECT_EQ(ReadAll(item.base.output), samples);
  EXPECT_THAT(Names(out_), ElementsAre("a.png"));
  EXPECT_THAT(Names(scratch_), IsEmpty());
}

TEST_F(UnitRunnerTest, MeetsNoTemporaryOfAJobWithAnotherWorkFolder) {
  const auto input = Write("a.npy", "npy", DType::kU8, 1, {2, 8, 8}, Noise(128, 21));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({2, 8, 8}, {0, 0, 0}));
  StartRunner();
  const TestItem item = MakeItem(input, "a.npy", params);
  const Lease lease = LeaseOf(item, UnitKind::kInfer);
  // What a killed job left beside its output, or writes there now.
  const fs::path other =
      out_ / (".tilery-" + AttemptName(dir_ / "other", lease.unit, 7, lease.attempt) + ".part");
  std::ofstream(other) << "half";
  AsDone(Run(lease));
  EXPECT_THAT(Names(out_), ElementsAre(other.filename().native(), "a.npy"));
}

TEST_F(UnitRunnerTest, ScalesAPictureAndKeepsItsType) {
  const Index shape{1, 37, 41};
  const auto samples = Noise(37 * 41 * 2, 2);
  const auto input = Write("g16.png", "png", DType::kU16, 1, shape, samples);
  const Tiling tiling = Tiles({1, 16, 16}, {0, 4, 4}, 2);
  const int32_t params = AddParams("png", DType::kU16, 1, tiling);
  StartRunner();
  const TestItem item = MakeItem(input, "g.png", params);
  AsDone(Run(LeaseOf(item, UnitKind::kInfer)));
  Header header;
  const auto result = ReadAll(item.base.output, &header);
  EXPECT_EQ(header.dtype, DType::kU16);
  EXPECT_EQ(header.shape, (Index{1, 74, 82}));
  EXPECT_EQ(result, Nearest(samples, shape, 2, tiling.scale));
}

TEST_F(UnitRunnerTest, AssemblesAVolumeFromBricksExactly) {
  const Index shape{40, 50, 60};
  const auto samples = Noise(40 * 50 * 60 * 2, 3);
  const auto input = Write("v.npy", "npy", DType::kU16, 1, shape, samples);
  const int32_t params = AddParams("npy", DType::kU16, 1, Tiles({16, 16, 16}, {4, 6, 8}));
  StartRunner({.batch = 4, .before = {}});
  const TestItem item = MakeItem(input, "v.npy", params, 6);
  ASSERT_GT(item.infer_units, 4);
  const Outcome outcome = RunItem(item);
  EXPECT_EQ(AsDone(outcome).tiles, 0);
  EXPECT_EQ(ReadAll(item.base.output), samples);
  EXPECT_EQ(Names(scratch_).size(), static_cast<size_t>(item.infer_units));
}

TEST_F(UnitRunnerTest, AgreesWithADirectComputationForAnyShapeTileWindowAndUnitSize) {
  std::mt19937 random(4);
  const auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  struct Case {
    TestItem item;
    std::vector<std::byte> expected;
  };
  std::vector<Case> cases;
  for (int i = 0; i < 30; ++i) {
    const bool volume = i % 2 == 0;
    const Index shape{volume ? pick(1, 20) : 1, pick(1, 40), pick(1, 40)};
    const int64_t channels = pick(1, 3);
    Index tile{1, 1, 1}, overlap{0, 0, 0}, trim{0, 0, 0};
    for (int axis = volume ? 0 : 1; axis < 3; ++axis) {
      tile[axis] = pick(2, 14);
      overlap[axis] = pick(0, tile[axis] - 1);
      trim[axis] = overlap[axis] == 0 ? 0 : pick(0, (overlap[axis] - 1) / 2);
    }
    Tiling tiling = Tiles(tile, overlap, pick(1, 2));
    tiling.trim = trim;
    tiling.window = static_cast<WindowKind>(pick(0, 4));
    const DType dtype = i % 3 == 0 ? DType::kU16 : DType::kU8;
    const int64_t voxel_bytes = channels * static_cast<int64_t>(DTypeSize(dtype));
    const auto samples = Noise(static_cast<size_t>(Product(shape) * voxel_bytes), 100 + i);
    const std::string name = std::to_string(i) + (volume ? ".npy" : ".tif");
    const std::string format = volume ? "npy" : "tiff";
    const auto input = Write(name, format, dtype, static_cast<int32_t>(channels), shape, samples);
    const int32_t params = AddParams(format, dtype, static_cast<int32_t>(channels), tiling);
    cases.push_back({MakeItem(input, name, params, pick(1, 9)),
                     Nearest(samples, shape, voxel_bytes, tiling.scale)});
  }
  StartRunner({.batch = 3, .before = {}});
  int64_t bricks = 0;
  for (const Case& c : cases) {
    AsDone(RunItem(c.item));
    EXPECT_EQ(ReadAll(c.item.base.output), c.expected) << c.item.base.input;
    bricks += c.item.infer_units;
  }
  EXPECT_GT(bricks, 100);
}

TEST_F(UnitRunnerTest, DecodesAnInputWithoutRandomAccessOnceForAllItsUnits) {
  const Index shape{1, 301, 203};
  const auto samples = Noise(301 * 203 * 3, 5);
  const auto input = Write("big.png", "png", DType::kU8, 3, shape, samples);
  const int32_t params = AddParams("png", DType::kU8, 3, Tiles({1, 48, 48}, {0, 16, 16}));
  StartRunner({.batch = 4, .before = {}});
  const TestItem item = MakeItem(input, "big.png", params, 8, true);
  ASSERT_EQ(item.base.header.access, Access::kRows);
  ASSERT_GT(item.infer_units, 4);
  AsDone(RunItem(item));
  EXPECT_EQ(ReadAll(item.base.output), samples);
}

TEST_F(UnitRunnerTest, RunsTheStageUnitAgainWhenItsFileIsLostOrCutShort) {
  const auto input = Write("s.png", "png", DType::kU8, 1, {1, 100, 100}, Noise(100 * 100, 6));
  const int32_t params = AddParams("png", DType::kU8, 1, Tiles({1, 32, 32}, {0, 8, 8}));
  StartRunner();
  const TestItem item = MakeItem(input, "s.png", params, 4, true);
  const Outcome missing = Run(LeaseOf(item, UnitKind::kInfer, 1));
  EXPECT_EQ(std::get<LostBrick>(missing).unit, item.first_unit);
  AsDone(Run(LeaseOf(item, UnitKind::kStage)));
  fs::resize_file(scratch_ / item.base.stage_file, 5000);
  const Outcome cut = Run(LeaseOf(item, UnitKind::kInfer, 2));
  EXPECT_EQ(std::get<LostBrick>(cut).unit, item.first_unit);
  EXPECT_THAT(std::get<LostBrick>(cut).reason, HasSubstr("5000"));
}

TEST_F(UnitRunnerTest, FailsATruncatedPictureByNameAndPublishesNothing) {
  const auto input = Write("cut.png", "png", DType::kU8, 3, {1, 120, 120}, Noise(120 * 120 * 3, 7));
  fs::resize_file(input, fs::file_size(input) / 2);
  const int32_t params = AddParams("png", DType::kU8, 3, Tiles({1, 64, 64}, {0, 8, 8}));
  StartRunner();
  for (const bool staged : {false, true}) {
    const TestItem item = MakeItem(input, "cut.png", params, staged ? 1 : 0, staged);
    const Outcome outcome = Run(LeaseOf(item, staged ? UnitKind::kStage : UnitKind::kInfer));
    const Failed& failed = std::get<Failed>(outcome);
    EXPECT_EQ(failed.fault, Fault::kInput);
    EXPECT_EQ(failed.stage, "decode");
    EXPECT_THAT(failed.reason, HasSubstr("cut.png"));
    EXPECT_THAT(Names(out_), IsEmpty());
    EXPECT_THAT(Names(scratch_), IsEmpty());
  }
}

TEST_F(UnitRunnerTest, NoticesATruncationThatLiesBehindTheLastRow) {
  const auto input = Write("end.png", "png", DType::kU8, 1, {1, 64, 64}, Noise(64 * 64, 8));
  fs::resize_file(input, fs::file_size(input) - 12);  // without the closing chunk
  const int32_t params = AddParams("png", DType::kU8, 1, Tiles({1, 64, 64}, {0, 0, 0}));
  StartRunner();
  const Outcome outcome = Run(LeaseOf(MakeItem(input, "end.png", params), UnitKind::kInfer));
  EXPECT_THAT(std::get<Failed>(outcome).reason, HasSubstr("end.png"));
  EXPECT_THAT(Names(out_), IsEmpty());
}

TEST_F(UnitRunnerTest, FailsAnInputThatChangedSinceThePlan) {
  const auto samples = Noise(64 * 64, 9);
  const auto input = Write("c.png", "png", DType::kU8, 1, {1, 64, 64}, samples);
  const int32_t params = AddParams("png", DType::kU8, 1, Tiles({1, 64, 64}, {0, 0, 0}));
  StartRunner();
  const TestItem item = MakeItem(input, "c.png", params);
  fs::last_write_time(input, fs::last_write_time(input) + std::chrono::seconds(1));
  const Outcome touched = Run(LeaseOf(item, UnitKind::kInfer));
  EXPECT_THAT(std::get<Failed>(touched).reason, HasSubstr("changed during the run"));

  std::ofstream(input) << "something else";
  const Outcome replaced = Run(LeaseOf(item, UnitKind::kInfer));
  EXPECT_THAT(std::get<Failed>(replaced).reason, HasSubstr("changed during the run"));
  fs::remove(input);
  const Outcome gone = Run(LeaseOf(item, UnitKind::kInfer));
  EXPECT_THAT(std::get<Failed>(gone).reason, HasSubstr("changed during the run"));
  EXPECT_THAT(std::get<Failed>(gone).reason, HasSubstr("c.png"));
  EXPECT_THAT(Names(out_), IsEmpty());
}

TEST_F(UnitRunnerTest, FailsAnInputThatChangesWhileTheModelRuns) {
  const auto input = Write("w.npy", "npy", DType::kU8, 1, {4, 30, 30}, Noise(3600, 10));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({4, 30, 30}, {0, 0, 0}));
  StartRunner({.batch = 1, .before = [&](const InferWork&) {
                 fs::last_write_time(input, fs::last_write_time(input) + std::chrono::seconds(1));
               }});
  const Outcome outcome = Run(LeaseOf(MakeItem(input, "w.npy", params), UnitKind::kInfer));
  EXPECT_EQ(std::get<Failed>(outcome).fault, Fault::kInput);
  EXPECT_THAT(std::get<Failed>(outcome).reason, HasSubstr("changed during the run"));
  EXPECT_THAT(Names(out_), IsEmpty());
}

TEST_F(UnitRunnerTest, RenamesNothingOnceItsLeaseMayHaveRunOut) {
  const auto input = Write("l.npy", "npy", DType::kU8, 1, {4, 30, 30}, Noise(3600, 11));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({4, 30, 30}, {0, 0, 0}));
  RunnerOptions options;
  options.lease_is_young = [] { return false; };
  StartRunner({}, std::move(options));
  const TestItem item = MakeItem(input, "l.npy", params);
  const Outcome outcome = Run(LeaseOf(item, UnitKind::kInfer));
  EXPECT_THAT(std::get<Retry>(outcome).reason, HasSubstr("lease"));
  EXPECT_THAT(Names(out_), IsEmpty());
}

TEST_F(UnitRunnerTest, NamesTheUnitOfALostOrDamagedBrick) {
  const auto samples = Noise(30 * 30 * 30, 12);
  const auto input = Write("b.npy", "npy", DType::kU8, 1, {30, 30, 30}, samples);
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({12, 12, 12}, {4, 4, 4}));
  StartRunner();
  const TestItem item = MakeItem(input, "b.npy", params, 4);
  const std::vector<Outcome> infer = RunInfer(item);
  Lease lease = AssembleLease(item, infer);
  const fs::path brick = scratch_ / lease.work.bricks[3].file;

  std::fstream file(brick, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(200);
  const int byte = file.get();
  file.seekp(200);
  file.put(static_cast<char>(byte ^ 0x40));
  file.close();
  const Outcome damaged = Run(lease);
  EXPECT_EQ(std::get<LostBrick>(damaged).unit, item.unit_of_block(3));
  EXPECT_EQ(std::get<LostBrick>(damaged).brick_key, lease.work.bricks[3].key);

  fs::remove(brick);
  const Outcome missing = Run(AssembleLease(item, infer));
  EXPECT_EQ(std::get<LostBrick>(missing).unit, item.unit_of_block(3));
  EXPECT_THAT(Names(out_), IsEmpty());

  std::vector<Outcome> again = infer;
  again[3] = Run(LeaseOf(item, UnitKind::kInfer, 3));
  AsDone(Run(AssembleLease(item, again)));
  EXPECT_EQ(ReadAll(item.base.output), samples);
}

TEST_F(UnitRunnerTest, ReadsALongListOfBricksFromItsFile) {
  const auto samples = Noise(20 * 20 * 20, 13);
  const auto input = Write("f.npy", "npy", DType::kU8, 1, {20, 20, 20}, samples);
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({8, 8, 8}, {2, 2, 2}));
  StartRunner();
  const TestItem item = MakeItem(input, "f.npy", params, 2);
  Lease lease = AssembleLease(item, RunInfer(item));
  std::ofstream(fs::path(context_.work) / "bricks.txt") << BricksToText(lease.work.bricks);
  lease.work.bricks.clear();
  lease.work.bricks_file = "bricks.txt";
  AsDone(Run(lease));
  EXPECT_EQ(ReadAll(item.base.output), samples);
}

TEST_F(UnitRunnerTest, FailsTheItemWhenTheDiskIsFullAndLeavesNoTemporaryFile) {
  const auto input = Write("d.npy", "npy", DType::kU8, 1, {20, 100, 100}, Noise(200'000, 14));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({20, 100, 100}, {0, 0, 0}));
  StartRunner();
  const TestItem item = MakeItem(input, "d.npy", params);
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{60'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const Outcome outcome = Run(LeaseOf(item, UnitKind::kInfer));
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(std::get<Failed>(outcome).fault, Fault::kOutput);
  EXPECT_THAT(std::get<Failed>(outcome).reason, HasSubstr("d.npy"));
  EXPECT_THAT(Names(out_), IsEmpty());
  AsDone(Run(LeaseOf(item, UnitKind::kInfer)));  // with space again
}

TEST_F(UnitRunnerTest, RefusesKindsThatAreNotBuiltByName) {
  const auto input = Write("k.npy", "npy", DType::kU8, 1, {2, 4, 4}, Noise(32, 15));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({2, 4, 4}, {0, 0, 0}));
  StartRunner();
  for (const UnitKind kind : {UnitKind::kMeasure, UnitKind::kFinish}) {
    const Outcome outcome = Run(LeaseOf(MakeItem(input, "k.npy", params), kind));
    EXPECT_THAT(std::get<Failed>(outcome).reason, HasSubstr("not supported yet"));
    EXPECT_THAT(std::get<Failed>(outcome).reason, HasSubstr(UnitKindName(kind)));
  }
}

TEST_F(UnitRunnerTest, FailsOnlyTheItemThatTheModelThrowsFor) {
  const auto good = Write("good.npy", "npy", DType::kU8, 1, {2, 8, 8}, Noise(128, 16));
  const auto bad = Write("bad.npy", "npy", DType::kU8, 1, {2, 8, 8}, Noise(128, 17));
  const int32_t params = AddParams("npy", DType::kU8, 1, Tiles({2, 8, 8}, {0, 0, 0}));
  StartRunner({.batch = 1, .before = [](const InferWork& work) {
                 if (work.item_name.find("bad") != std::string::npos) {
                   throw Error(Fault::kModel,
                               work.item_name + ": the model's output is not finite");
                 }
               }});
  const Lease first = LeaseOf(MakeItem(bad, "bad.npy", params), UnitKind::kInfer);
  const Lease second = LeaseOf(MakeItem(good, "good.npy", params), UnitKind::kInfer);
  Submit(first);
  Submit(second);
  EXPECT_EQ(std::get<Failed>(Await(first)).stage, "compute");
  AsDone(Await(second));
  EXPECT_THAT(Names(out_), ElementsAre("good.npy"));
}

TEST_F(UnitRunnerTest, CountsEveryStageItWorksIn) {
  const auto input = Write("p.png", "png", DType::kU8, 3, {1, 64, 64}, Noise(64 * 64 * 3, 20));
  const int32_t params = AddParams("png", DType::kU8, 3, Tiles({1, 64, 64}, {0, 0, 0}));
  StartRunner();
  AsDone(Run(LeaseOf(MakeItem(input, "p.png", params), UnitKind::kInfer)));
  const auto totals = profile_.totals();
  const auto of = [&](Stage stage) { return totals[static_cast<size_t>(stage)]; };
  EXPECT_GE(of(Stage::kRead).bytes, static_cast<int64_t>(fs::file_size(input)));
  EXPECT_EQ(of(Stage::kDecode).bytes, 64 * 64 * 3);
  EXPECT_EQ(of(Stage::kEncode).bytes, 64 * 64 * 3);
  EXPECT_EQ(of(Stage::kWrite).bytes, static_cast<int64_t>(fs::file_size(out_ / "p.png")));
}

}  // namespace
}  // namespace tilery
