// Memory of models on a GPU, and what is refused. Skipped where there is no GPU.
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/error.h"
#include "tests/pipeline/engine_support.h"
#include "tests/pipeline/gpu_model_support.h"

namespace tilery::cuda {
namespace {

using namespace tilery::testing;

class TorchGpuLimits : public NeedsGpu {};

TEST_F(TorchGpuLimits, AThousandRunsAllocateNothing) {
  for (const char* name : {"unet2d", "wide_traced", "throws_on_bright"}) {
    for (bool graph : {true, false}) {
      GpuModelOptions o = Options(name);
      o.graph = graph;
      o.autotune = true;
      const auto model = LoadGpuModel(o);
      Expect(cudaStreamSynchronize(model->stream()));
      const GpuMemory before = MemoryOf(0);
      size_t free_before = 0, free_after = 0, total = 0;
      Expect(cudaMemGetInfo(&free_before, &total));
      for (int run = 0; run < 1000; ++run) model->Run(run % o.ring);
      Expect(cudaStreamSynchronize(model->stream()));
      Expect(cudaMemGetInfo(&free_after, &total));
      const GpuMemory after = MemoryOf(0);
      EXPECT_EQ(after.segments, before.segments) << name << ", " << model->how();
      EXPECT_EQ(after.reserved, before.reserved) << name << ", " << model->how();
      EXPECT_EQ(after.retries, before.retries) << name;
      EXPECT_EQ(free_after, free_before) << name << ", " << model->how();
      EXPECT_GT(before.reserved, 0);
      EXPECT_GE(before.peak_reserved, before.reserved);
    }
  }
}

TEST_F(TorchGpuLimits, MemoryOfAModelIsGivenBackWithIt) {
  const GpuModelOptions o = Options("unet2d");
  LoadGpuModel(o);  // workspaces of libraries stay
  FreeCaches();
  const int64_t before = MemoryOf(0).reserved;
  for (int round = 0; round < 3; ++round) LoadGpuModel(o);
  FreeCaches();
  // A workspace of cuBLAS for each new stream, at most 33 MB.
  EXPECT_LE(MemoryOf(0).reserved - before, int64_t{3} * (33 << 20));
}

TEST_F(TorchGpuLimits, AWrongOutputShapeIsRefusedWithBothShapes) {
  const std::string what = WhatOf(Options("valid"), Fault::kModel);
  EXPECT_NE(what.find("[2,3,30,46]"), std::string::npos) << what;
  EXPECT_NE(what.find("[2,3,32,48]"), std::string::npos) << what;
  EXPECT_NE(what.find("valid.pt"), std::string::npos) << what;
  const std::string pair = WhatOf(Options("pair"), Fault::kModel);
  EXPECT_NE(pair.find("Tuple"), std::string::npos) << pair;
}

TEST_F(TorchGpuLimits, WantOfMemoryNamesTheBytesAskedAndFree) {
  GpuModelOptions o = Options("glutton");
  const std::string two = WhatOf(o, Fault::kTransient);
  EXPECT_NE(two.find("batch of 2"), std::string::npos) << two;
  EXPECT_NE(two.find("asked 2199023255552 bytes, "), std::string::npos) << two;
  EXPECT_NE(two.find(" free"), std::string::npos) << two;
  o.batch = 1;
  const std::string one = WhatOf(o, Fault::kModel);
  EXPECT_NE(one.find("asked 1099511627776 bytes, "), std::string::npos) << one;
  // The GPU is as good as before.
  const GpuModelOptions next = Options("conv");
  EXPECT_LE(Difference(Answer(*LoadGpuModel(next), next, 0), OnCpu(next)), 1e-5);
}

TEST_F(TorchGpuLimits, FilesThatAreNoModelAndDevicesThatAreNotThereAreRefusedByName) {
  GpuModelOptions o = Options("missing");
  EXPECT_NE(WhatOf(o, Fault::kModel).find("missing.pt"), std::string::npos);
  o = Options("conv");
  o.device = 63;
  EXPECT_NE(WhatOf(o, Fault::kUsage).find("cuda:63"), std::string::npos);
}

TEST_F(TorchGpuLimits, APackageOfAnotherGpuIsRefusedWithBothNames) {
  const std::vector<GpuInfo> gpus = ListGpus();
  ASSERT_FALSE(gpus.empty());
  GpuModelOptions o = Options("conv");
  o.model = o.model.parent_path() / "other_gpu.pt2";
  const std::string what = WhatOf(o, Fault::kModel);
  EXPECT_NE(what.find("Imaginary 9000 (99.0)"), std::string::npos) << what;
  EXPECT_NE(what.find(gpus[0].name), std::string::npos) << what;
  o.model = o.model.parent_path() / "nameless.pt2";
  const std::string nameless = WhatOf(o, Fault::kModel);
  EXPECT_NE(nameless.find("does not say what it was compiled for"), std::string::npos) << nameless;
}

TEST_F(TorchGpuLimits, CardsAreListedWithWhatTheyAre) {
  int count = 0;
  Expect(cudaGetDeviceCount(&count));
  const std::vector<GpuInfo> gpus = ListGpus();
  ASSERT_EQ(static_cast<int>(gpus.size()), count);
  for (const GpuInfo& gpu : gpus) {
    cudaDeviceProp properties{};
    Expect(cudaGetDeviceProperties(&properties, gpu.device));
    EXPECT_EQ(gpu.name, properties.name);
    EXPECT_EQ(gpu.uuid.size(), 40u) << gpu.uuid;
    EXPECT_EQ(gpu.uuid.rfind("GPU-", 0), 0u) << gpu.uuid;
    EXPECT_EQ(gpu.major, properties.major);
    EXPECT_GT(gpu.free, 0);
    EXPECT_LE(gpu.free, gpu.memory);
    for (const std::string& version : {gpu.driver, gpu.runtime, gpu.cudnn}) {
      EXPECT_NE(version.find('.'), std::string::npos) << version;
    }
  }
}

// These two need no GPU.
TEST(TorchGpuFiles, PackagesAreKnownByTheirMembers) {
  const std::filesystem::path folder = ModelPath("conv").parent_path();
  EXPECT_TRUE(IsPackage(folder / "other_gpu.pt2"));
  EXPECT_TRUE(IsPackage(folder / "nameless.pt2"));
  EXPECT_FALSE(IsPackage(folder / "program.pt2"));  // exported, not compiled
  EXPECT_FALSE(IsPackage(folder / "conv.pt"));
  EXPECT_FALSE(IsPackage(folder / "missing.pt"));
  EXPECT_FALSE(IsPackage(folder));
}

TEST(TorchGpuFiles, WithoutAGpuTheListIsEmptyAndLoadingIsRefused) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0) {
    EXPECT_EQ(static_cast<int>(ListGpus().size()), devices);
    return;
  }
  cudaGetLastError();
  EXPECT_TRUE(ListGpus().empty());
  EXPECT_NE(WhatOf(Options("conv"), Fault::kUsage).find("cuda:0"), std::string::npos);
}

}  // namespace
}  // namespace tilery::cuda
