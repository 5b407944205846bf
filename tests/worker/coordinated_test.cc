// Coordinator, ledger and workers together, in one process, over TCP, from files to files.
#include <gmock/gmock.h>

#include <future>
#include <latch>
#include <utility>

#include "scheduler/coordinator.h"
#include "tests/worker/worker_fixture.h"
#include "worker/agent.h"

namespace tilery {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CoordinatedTest : public WorkerTest {
 protected:
  void Add(const TestItem& made) {
    Item item;
    item.input = made.base.input;
    item.output = made.base.output;
    item.stamp = made.base.stamp;
    item.header = made.base.header;
    item.params = made.base.params;
    item.sizing = made.base.sizing;
    item.key = made.base.item_key;
    item.infer_units = static_cast<int32_t>(made.infer_units);
    item.staged = made.staged;
    item.first_unit = plan_.units;
    const ItemGeometry geometry(
        item.header.shape, context_.params[static_cast<size_t>(item.params)].tiling, item.sizing);
    item.tiles = geometry.grid().tiles();
    plan_.tiles += item.tiles;
    plan_.units += item.units();
    plan_.items.push_back(item);
  }

  RunResult RunJob(int workers) {
    plan_.params = context_.params;
    Ledger ledger(context_.work);
    for (const Item& item : plan_.items) ledger.ClaimOutput(item.output, item.key);
    ledger.Commit();
    RunOptions options;
    options.lease_s = 5;
    options.token = NewToken();
    options.work = context_.work;
    options.scratch = context_.scratch;
    Resume resume;
    resume.items.assign(plan_.items.size(), ItemState::kOpen);
    Coordinator coordinator(plan_, resume, ledger, context_, options);
    // Each worker's first unit waits until all of them have one, so that none comes too late.
    const auto all_at_work = std::make_shared<std::latch>(workers);
    std::vector<std::future<AgentEnd>> agents;
    for (int i = 0; i < workers; ++i) {
      WorkerStart start;
      start.token = options.token;
      start.endpoint = {"127.0.0.1", coordinator.port()};
      start.worker = "w" + std::to_string(i);
      start.epoch = ledger.epoch();
      agents.push_back(std::async(std::launch::async, [start, all_at_work] {
        AgentOptions agent;
        agent.engine = [&](const WorkerContext& context, const WorkerStart&, Profile&) {
          return std::make_unique<FakeEngine>(
              FakeEngine::Options{.batch = context.batch,
                                  .before = [all_at_work, first = true](const InferWork&) mutable {
                                    if (std::exchange(first, false)) all_at_work->arrive_and_wait();
                                  }});
        };
        return RunAgent(start, agent);
      }));
    }
    const RunResult result = coordinator.Run({}, {});
    for (auto& agent : agents) EXPECT_EQ(agent.get(), AgentEnd::kDone);
    return result;
  }

  Plan plan_;
};

TEST_F(CoordinatedTest, RunsPicturesAndVolumesOfEveryKindAndFailsTheDamagedOneByName) {
  context_.batch = 4;
  const int32_t rgb = AddParams("png", DType::kU8, 3, Tiles({1, 32, 32}, {0, 8, 8}));
  const int32_t volume = AddParams("npy", DType::kU16, 1, Tiles({12, 12, 12}, {4, 4, 4}, 2));
  std::vector<std::pair<std::string, std::vector<std::byte>>> expected;
  const auto picture = [&](const std::string& name, int64_t side, int64_t tiles, bool staged) {
    const auto samples = Noise(static_cast<size_t>(side * side * 3), static_cast<uint32_t>(side));
    const auto path = Write(name, "png", DType::kU8, 3, {1, side, side}, samples);
    Add(MakeItem(path, name, rgb, tiles, staged));
    expected.emplace_back(name, samples);
  };
  for (int i = 0; i < 20; ++i) picture(std::to_string(i) + ".png", 40 + i, 0, false);
  picture("big.png", 300, 9, true);
  const Index shape{30, 40, 50};
  const auto samples = Noise(30 * 40 * 50 * 2, 99);
  const TestItem v =
      MakeItem(Write("v.npy", "npy", DType::kU16, 1, shape, samples), "v.npy", volume, 10);
  Add(v);
  expected.emplace_back("v.npy", Nearest(samples, shape, 2, context_.params[1].tiling.scale));
  const auto cut = Write("cut.png", "png", DType::kU8, 3, {1, 90, 90}, Noise(90 * 90 * 3, 5));
  fs::resize_file(cut, fs::file_size(cut) - 2000);
  Add(MakeItem(cut, "cut.png", rgb));

  const RunResult result = RunJob(3);
  EXPECT_EQ(result.status, "failed");
  EXPECT_EQ(result.items_done, 22);
  EXPECT_EQ(result.items_failed, 1);
  ASSERT_EQ(result.failures.size(), 1u);
  EXPECT_THAT(result.failures[0].item, HasSubstr("cut.png"));
  EXPECT_EQ(result.failures[0].stage, "decode");
  EXPECT_EQ(result.tiles_inferred, plan_.tiles - plan_.items.back().tiles);
  EXPECT_EQ(result.tiles_repeated, 0);
  for (const auto& [name, bytes] : expected) EXPECT_EQ(ReadAll(out_ / name), bytes) << name;
  EXPECT_EQ(Names(out_).size(), expected.size());
  EXPECT_TRUE(Names(scratch_).empty());
  ASSERT_EQ(result.workers.size(), 3u);
  for (const WorkerReport& worker : result.workers) {
    EXPECT_GT(worker.tiles, 0) << worker.id;
    EXPECT_TRUE(worker.stages.contains("encode")) << worker.stages.dump();
    EXPECT_GT(worker.peak_host_bytes, 1 << 20);
  }
}

TEST_F(CoordinatedTest, GivesTheSameBytesForOneAndForSeveralWorkers) {
  context_.batch = 2;
  const int32_t params = AddParams("npy", DType::kF32, 1, Tiles({8, 10, 12}, {3, 4, 5}));
  const Index shape{25, 37, 41};
  std::vector<std::byte> samples(static_cast<size_t>(Product(shape)) * 4);
  for (int64_t i = 0; i < Product(shape); ++i) {
    reinterpret_cast<float*>(samples.data())[i] = static_cast<float>(i % 997) / 131.0f;
  }
  const auto input = Write("f.npy", "npy", DType::kF32, 1, shape, samples);
  Add(MakeItem(input, "f.npy", params, 5));
  EXPECT_EQ(RunJob(1).status, "done");
  const auto one = ReadAll(out_ / "f.npy");
  fs::remove(out_ / "f.npy");
  fs::remove_all(context_.work);
  fs::create_directories(context_.work);
  EXPECT_EQ(RunJob(4).status, "done");
  EXPECT_EQ(ReadAll(out_ / "f.npy"), one);
}

}  // namespace
}  // namespace tilery
