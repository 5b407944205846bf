// What the engine on a GPU adds to the contract of all devices: agreement with the CPU, lanes,
// narrow types, and that nothing is allocated once it runs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "io/error.h"
#include "pipeline/cuda/cuda_device.h"
#include "pipeline/cuda/gpu_model.h"
#include "tests/pipeline/engine_support.h"

namespace tilery {
namespace {

using testing::Item;
using testing::MakePicture;
using testing::OptionsFor;
using testing::RunAll;
using testing::RunItem;
using testing::WorksOf;

// The largest difference of u8 results, and how many differ.
struct Difference {
  int largest = 0;
  double share = 0;
};
Difference Between(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  EXPECT_EQ(a.size(), b.size());
  Difference difference;
  size_t differ = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const int d = std::abs(static_cast<int>(a[i]) - static_cast<int>(b[i]));
    difference.largest = std::max(difference.largest, d);
    differ += d > 0 ? 1 : 0;
  }
  difference.share = static_cast<double>(differ) / static_cast<double>(a.size());
  return difference;
}

std::vector<std::byte> OnCpu(const Item& item, const EngineOptions& options) {
  Profile profile;
  EngineOptions cpu = options;
  cpu.numerics.precision = "fp32";
  cpu.numerics.layout = "nchw";
  const auto engine = Engine::Create(cpu, profile);
  return Assemble(item, RunAll(*engine, WorksOf(item)));
}

TEST(CudaEngine, AgreesWithTheCpuInEveryPrecisionAndLayout) {
  const Item item = MakePicture({1, 300, 411}, 3, DType::kU8, DType::kU8, 96, 32);
  const auto want = OnCpu(item, OptionsFor(item, "unet2d", 4));
  for (const char* precision : {"fp32", "tf32", "fp16", "bf16"}) {
    for (const char* layout : {"nchw", "nhwc"}) {
      EngineOptions options = OptionsFor(item, "unet2d", 4);
      options.numerics.precision = precision;
      options.numerics.layout = layout;
      const auto got = RunItem(item, options);
      const Difference d = Between(got, want);
      const std::string what = std::string(precision) + " " + layout;
      const std::string type = precision;
      EXPECT_LE(d.largest, type == "fp32" ? 1 : type == "bf16" ? 16 : 2) << what;
      EXPECT_LE(d.share, type == "fp32" ? 1e-3 : 1.0) << what;
      EXPECT_TRUE(RunItem(item, options) == got) << what << ": the same again";
    }
  }
}

TEST(CudaEngine, VolumesAgreeWithTheCpu) {
  const Item item = MakePicture({70, 81, 64}, 1, DType::kU16, DType::kF32, 48, 16);
  EngineOptions options = OptionsFor(item, "dilated3d", 2);
  const auto want = testing::As<float>(OnCpu(item, options));
  const auto got = testing::As<float>(RunItem(item, options));
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << i;
}

TEST(CudaEngine, TwoLanesGiveTheBytesOfOne) {
  const Item item = MakePicture({1, 400, 500}, 3, DType::kU8, DType::kF32, 64, 24);
  for (const char* model : {"unet2d", "conv"}) {
    EngineOptions options = OptionsFor(item, model, 4, 1);
    options.numerics.precision = "fp16";
    const auto one = RunItem(item, options);
    options.lanes = 2;
    EXPECT_TRUE(RunItem(item, options) == one) << model;
  }
}

TEST(CudaEngine, BatchesOfManySmallItemsNeedNoMoreUnitsThanThereAre) {
  std::vector<Item> items;
  for (int k = 0; k < 40; ++k) {
    items.push_back(MakePicture({1, 20 + k, 30}, 3, DType::kU8, DType::kU8, 32, 8, k));
    items.back().id = k;
  }
  Profile profile;
  const EngineOptions options = OptionsFor(items[0], "identity", 16);
  const auto engine = testing::CreateEngine(options, profile);
  std::vector<InferWork> works;
  for (const Item& item : items) {
    for (InferWork& work : WorksOf(item, static_cast<int64_t>(works.size()))) {
      works.push_back(std::move(work));
    }
  }
  const auto results = RunAll(*engine, std::move(works));
  size_t at = 0;
  for (const Item& item : items) {
    const size_t units = WorksOf(item).size();
    EXPECT_EQ(Assemble(item, {results.begin() + at, results.begin() + at + units}), item.samples)
        << item.shape[1];
    at += units;
  }
}

TEST(CudaEngine, NothingIsAllocatedOverAThousandBatches) {
  Item item = MakePicture({1, 1024, 1024}, 3, DType::kU8, DType::kU8, 64, 16);
  item.sizing.tiles = 64;
  EngineOptions options = OptionsFor(item, "conv", 4);
  options.numerics.precision = "fp16";
  Profile profile;
  cuda::CudaDeviceOptions device_options;
  device_options.engine = options;
  auto device = cuda::MakeCudaDevice(device_options, profile);
  const cuda::CudaDevice* const gpu = device.get();
  const auto engine = MakeEngine(options, std::move(device), profile);
  const auto first = Assemble(item, RunAll(*engine, WorksOf(item)));
  // Warm: as many buffers as are ever under way at a time.
  for (int round = 0; round < 30; ++round) RunAll(*engine, WorksOf(item));
  const cuda::Allocations before = gpu->allocations();
  const cuda::GpuMemory torch_before = cuda::MemoryOf(0);
  const int64_t batches = engine->finished_batches();
  while (engine->finished_batches() < batches + 1000) {
    ASSERT_TRUE(Assemble(item, RunAll(*engine, WorksOf(item))) == first);
  }
  EXPECT_EQ(gpu->allocations().device, before.device);
  EXPECT_EQ(gpu->allocations().pinned, before.pinned);
  EXPECT_EQ(cuda::MemoryOf(0).segments, torch_before.segments);
  EXPECT_EQ(cuda::MemoryOf(0).retries, torch_before.retries);
}

TEST(CudaEngine, WhatOverflowsInF16RunsOnceMoreInF32) {
  // A value of 70,000 does not fit f16 but is an ordinary f32.
  Item item = MakePicture({1, 64, 200}, 1, DType::kF32, DType::kF32, 32, 8);
  auto* const samples = reinterpret_cast<float*>(item.samples.data());
  samples[30 * 200 + 100] = 70000.0f;
  EngineOptions options = OptionsFor(item, "identity", 2);
  options.numerics.precision = "fp16";
  Profile profile;
  const auto engine = testing::CreateEngine(options, profile);
  const auto results = RunAll(*engine, WorksOf(item));
  int64_t careful = 0;
  for (const InferResult& result : results) {
    ASSERT_TRUE(std::holds_alternative<InferOutput>(result));
    careful += std::get<InferOutput>(result).careful;
  }
  EXPECT_GE(careful, 1);
  EXPECT_EQ(testing::As<float>(Assemble(item, results))[30 * 200 + 100], 70000.0f);
}

TEST(CudaEngine, TheF32FormThatFindsNoMemoryIsAWantOfMemoryAndNoFaultOfTheModel) {
  // Values of one tile: 8 MiB in fp16, 16 MiB in fp32, which no gap between the former holds.
  Item item = MakePicture({1, 2048, 2048}, 1, DType::kF32, DType::kF32, 2048, 0);
  reinterpret_cast<float*>(item.samples.data())[5] = 70000.0f;
  EngineOptions options = OptionsFor(item, "identity", 1);
  options.numerics.precision = "fp16";
  Profile profile;
  std::vector<std::string> lost;
  cuda::CudaDeviceOptions device;
  device.engine = options;
  device.lost = [&](Loss loss, const std::string& why) {
    EXPECT_EQ(loss, Loss::kMemory);
    lost.push_back(why);
  };
  const auto engine = MakeEngine(options, cuda::MakeCudaDevice(device, profile), profile);
  cuda::FreeCaches();
  cuda::LimitMemory(0, cuda::MemoryOf(0).reserved);
  const auto refused = RunAll(*engine, WorksOf(item));
  cuda::LimitMemory(0, 0);
  ASSERT_EQ(refused.size(), 1u);
  try {
    std::rethrow_exception(std::get<std::exception_ptr>(refused[0]));
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), Fault::kTransient) << e.what();
    EXPECT_NE(std::string(e.what()).find("beside its form in fp16"), std::string::npos) << e.what();
  }
  ASSERT_EQ(lost.size(), 1u);
  EXPECT_NE(lost[0].find("asked "), std::string::npos) << lost[0];

  const auto results = RunAll(*engine, WorksOf(item));
  EXPECT_EQ(std::get<InferOutput>(results.at(0)).careful, 1);
  EXPECT_EQ(testing::As<float>(Assemble(item, results))[5], 70000.0f);
}

TEST(CudaEngine, WhereMemoryRunsOutTwiceUnitsAreTransientAndTheProcessIsToEnd) {
  const Item item = MakePicture({1, 600, 700}, 3, DType::kU8, DType::kU8, 128, 32);
  EngineOptions options = OptionsFor(item, "unet2d", 16);
  options.graph = false;  // a graph asks for nothing any more
  Profile profile;
  std::vector<std::string> lost;
  cuda::CudaDeviceOptions device;
  device.engine = options;
  device.lost = [&](Loss loss, const std::string& why) {
    EXPECT_EQ(loss, Loss::kMemory);
    lost.push_back(why);
  };
  const auto engine = MakeEngine(options, cuda::MakeCudaDevice(device, profile), profile);
  const auto want = Assemble(item, RunAll(*engine, WorksOf(item)));
  EXPECT_TRUE(lost.empty());

  cuda::FreeCaches();
  cuda::LimitMemory(0, cuda::MemoryOf(0).reserved);
  for (const InferResult& result : RunAll(*engine, WorksOf(item))) {
    try {
      std::rethrow_exception(std::get<std::exception_ptr>(result));
    } catch (const Error& e) {
      EXPECT_EQ(e.fault(), Fault::kTransient) << e.what();
      EXPECT_NE(std::string(e.what()).find("batch of 16: asked "), std::string::npos) << e.what();
    }
  }
  ASSERT_FALSE(lost.empty());
  EXPECT_NE(lost.front().find("not enough GPU memory"), std::string::npos) << lost.front();

  cuda::LimitMemory(0, 0);
  EXPECT_TRUE(Assemble(item, RunAll(*engine, WorksOf(item))) == want) << "the same batch again";
}

}  // namespace
}  // namespace tilery
