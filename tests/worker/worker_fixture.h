// A worker without processes: files in a folder of their own, units made as a scheduler would, a runner over
// the fake engine.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "io/format.h"
#include "tests/worker/fake_engine.h"
#include "worker/unit_runner.h"

namespace tilery {

// One input of a test and the units that make its output.
struct TestItem {
  UnitWork base;          // kind infer, block 0, whole
  Index output_shape{1, 1, 1};
  int64_t infer_units = 1;
  int64_t first_unit = 0;
  bool staged = false;

  int64_t unit_of_block(int64_t block) const { return first_unit + (staged ? 1 : 0) + block; }
  int64_t assemble_unit() const { return unit_of_block(infer_units); }
};

class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest();
  ~WorkerTest() override;

  // Parameters of an identity or nearest model: all channels in one pass, output type = input type.
  int32_t AddParams(const std::string& format, DType dtype, int32_t channels, const Tiling& tiling);
  static Tiling Tiles(const Index& tile, const Index& overlap, int64_t scale = 1);

  // Samples [z,y,x,c] that look like noise; the same for the same seed.
  static std::vector<std::byte> Noise(size_t bytes, uint32_t seed);
  // Writes a container through the format's own writer.
  std::filesystem::path Write(const std::string& name, const std::string& format, DType dtype,
                              int32_t channels, const Index& shape,
                              const std::vector<std::byte>& samples);
  std::vector<std::byte> ReadAll(const std::filesystem::path& path, Header* header = nullptr);
  static std::vector<std::byte> Nearest(const std::vector<std::byte>& samples, const Index& shape,
                                        int64_t voxel_bytes, const Scale& scale);

  // `tiles`: largest unit; 0: one unit for the whole item.
  TestItem MakeItem(const std::filesystem::path& input, const std::string& output, int32_t params,
                    int64_t tiles = 0, bool staged = false);
  Lease LeaseOf(const TestItem& item, UnitKind kind, int64_t block = 0);

  void StartRunner(FakeEngine::Options engine = {}, RunnerOptions options = {});
  void Submit(const Lease& lease) { runner_->Submit(lease); }
  // Waits for the outcome of a lease; fails the test after 20 s.
  Outcome Await(const Lease& lease);
  bool Reported(const Lease& lease);
  Outcome Run(const Lease& lease) {
    Submit(lease);
    return Await(lease);
  }
  // Runs all units of the item and returns the last outcome; bricks go into bricks_.
  Outcome RunItem(const TestItem& item);
  std::vector<Outcome> RunInfer(const TestItem& item);
  Lease AssembleLease(const TestItem& item, const std::vector<Outcome>& infer);

  // Names of all files in a folder, sorted.
  static std::vector<std::string> Names(const std::filesystem::path& folder);

  std::filesystem::path dir_, scratch_, out_;
  WorkerContext context_;
  Profile profile_;
  FakeEngine* engine_ = nullptr;
  std::unique_ptr<UnitRunner> runner_;

 private:
  int64_t next_lease_ = 1, next_unit_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int64_t, Outcome> outcomes_;  // by lease
};

}  // namespace tilery
