// The functions that the kernels over many tiles consist of, run on the host: a warp is a loop over
// its lanes. What is left to the GPU are the launch and the exchange between lanes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "io/error.h"
#include "pipeline/cuda/blend_tiles.cuh"
#include "pipeline/cuda/finish_tiles.cuh"
#include "pipeline/cuda/gather_tiles.cuh"
#include "pipeline/cuda/quantise.cuh"
#include "pipeline/cuda/staging.cuh"
#include "pipeline/cuda/tile_launch.cuh"
#include "tests/pipeline/tile_cases.h"

namespace tilery {
namespace {

using cuda::kLanes;

struct alignas(256) Block {
  std::byte bytes[256];
};

class OnHost final : public TileBackend {
 public:
  void* Copy(const void* bytes, size_t size) override {
    memory_.push_back(std::make_unique<Block[]>(size / sizeof(Block) + 1));
    if (size > 0) std::memcpy(memory_.back().get(), bytes, size);
    return memory_.back().get();
  }
  void Read(const void* from, void* to, size_t size) override {
    if (size > 0) std::memcpy(to, from, size);
  }

  void Gather(const cuda::GatherTask& task, const cuda::TileStarts& starts,
              const cuda::TileRun& run) override {
    const cuda::GatherLaunch launch = cuda::MakeGatherLaunch(task, starts, run);
    cuda::OnStored(task.dtype, [&](auto stored) { GatherAs<decltype(stored)>(launch); });
  }

  void Blend(const cuda::BlendTilesTask& task, const cuda::TileRun& run) override {
    cuda::OnModelType(task.type, [&](auto value) {
      using Value = decltype(value);
      const int32_t n = task.out_count;
      if (n > cuda::kMaxFused) {
        for (int32_t k = 0; k < n; k += cuda::kMaxFused) Blend(cuda::PartOf(task, k), run);
        return;
      }
      if (n == 1) return BlendAs<Value, 1, 4>(task, run);
      if (n == 2) return BlendAs<Value, 2, 4>(task, run);
      if (n == 3) return BlendAs<Value, 3, 4>(task, run);
      if (n == 4) return BlendAs<Value, 4, 4>(task, run);
      if (n <= 8) return BlendAs<Value, 8, 1>(task, run);
      return BlendAs<Value, cuda::kMaxFused, 1>(task, run);
    });
  }

 private:
  template <typename Stored>
  void GatherAs(const cuda::GatherLaunch& t) {
    std::vector<Block> staged(t.staging / sizeof(Block) + 1);
    auto* memory = reinterpret_cast<char*>(staged.data());
    for (int k = 0; k < t.run.count; ++k) {
      const cuda::GatherPlace place = cuda::PlaceOf(t, k);
      if (t.task.layout == cuda::ModelLayout::kPlanar) {
        for (uint32_t begin = 0; begin < t.voxels; begin += cuda::kGatherVoxels) {
          for (int lane = 0; lane < kLanes; ++lane) {
            cuda::GatherPlanar<Stored>(t, place, begin, lane);
          }
        }
        continue;
      }
      for (uint32_t begin = 0; begin < t.voxels; begin += kLanes) {
        char* to = cuda::GatheredAt(t, place, begin);
        const int offset = cuda::StagingOffset(to);
        for (int lane = 0; lane < kLanes; ++lane) {
          cuda::StageVoxel<Stored>(t, place, begin, lane, offset, memory);
        }
        const int bytes = cuda::GatheredBytes(t) * cuda::GatheredCount(t, begin);
        for (int lane = 0; lane < kLanes; ++lane) {
          cuda::CopyStaged(memory, offset, bytes, to, lane);
        }
      }
    }
  }

  template <typename Value, int N, int K>
  void BlendAs(const cuda::BlendTilesTask& task, const cuda::TileRun& run) {
    const cuda::BlendLaunch t = cuda::MakeBlendLaunch(task, run, K);
    std::vector<Block> staged(t.staging / sizeof(Block) + 1);
    auto* memory = reinterpret_cast<char*>(staged.data());
    for (int32_t z = t.region_begin[0]; z < t.region_end[0]; ++z) {
      for (int32_t y = t.region_begin[1]; y < t.region_end[1]; ++y) {
        for (int32_t x = t.x_begin; x < t.region_end[2]; x += kLanes * K) {
          BlendSegment<Value, N, K>(t, z, y, x, memory);
        }
      }
    }
  }

  template <typename Value, int N, int K>
  void BlendSegment(const cuda::BlendLaunch& t, int32_t z, int32_t y, int32_t x, char* memory) {
    float sum[kLanes][K][N];
    cuda::Blended done[kLanes];
    int first = kLanes * K, last = -1, count = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      done[lane] = cuda::BlendVoxels<Value>(t, z, y, x + lane * K, sum[lane]);
      cuda::KeepSums(t, z, y, x + lane * K, done[lane], sum[lane]);
      for (int i = 0; i < K; ++i) {
        if (!(done[lane].finished >> i & 1)) continue;
        first = std::min(first, lane * K + i);
        last = lane * K + i;
        ++count;
      }
    }
    if (count == 0) return;
    ASSERT_EQ(count, last - first + 1) << "finished voxels are not one run";
    char* to = cuda::FinishedAt(t, z, y, x + first);
    const int offset = cuda::FinishedOffset(t, to);
    for (int lane = 0; lane < kLanes; ++lane) {
      if (done[lane].finished == 0) continue;
      cuda::StageFinished(t, done[lane].finished, sum[lane],
                          offset + (lane * K - first) * t.voxel_bytes, memory);
    }
    for (int lane = 0; lane < kLanes; ++lane) {
      cuda::CopyFinished(t, memory, offset, count, to, lane);
    }
  }

  std::vector<std::unique_ptr<Block[]>> memory_;
};

TEST(TileFunctions, GatherTheBitsOfTheCpuInRandomUnitsAndBatches) {
  for (uint32_t seed = 0; seed < 150; ++seed) {
    OnHost host;
    ASSERT_EQ(CheckGathering(host, RandomTileCase(seed), 2), "");
  }
}

TEST(TileFunctions, BlendTheBitsOfTheCpuInRandomUnitsAndBatches) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    OnHost host;
    ASSERT_EQ(CheckBlending(host, RandomTileCase(seed), 2), "");
  }
}

TEST(TileFunctions, ManySumsAreFinishedInPartsOnlyIfEachNeedsNoOther) {
  using cuda::PostKind;
  cuda::BlendTilesTask task{};
  task.out_count = task.channels = task.finalize.colours = task.finalize.out_channels = 40;
  for (int c = 0; c < 40; ++c) task.out[c] = task.finalize.accumulator[c] = c;
  task.finalize.dtype = DType::kF16;
  EXPECT_TRUE(cuda::FinishesInParts(task.finalize));
  const cuda::BlendTilesTask part = cuda::PartOf(task, cuda::kMaxFused);
  EXPECT_EQ(part.out_count, 8);
  EXPECT_EQ(part.stored_channels, 40);

  task.finalize.posts = 2;
  task.finalize.post[0].kind = PostKind::kScale;
  for (const auto alone :
       {PostKind::kClamp, PostKind::kSigmoid, PostKind::kThreshold, PostKind::kScale}) {
    task.finalize.post[1].kind = alone;
    EXPECT_TRUE(cuda::FinishesInParts(task.finalize)) << static_cast<int>(alone);
  }
  for (const auto together : {PostKind::kSoftmax, PostKind::kArgmax}) {
    task.finalize.post[1].kind = together;
    EXPECT_FALSE(cuda::FinishesInParts(task.finalize)) << static_cast<int>(together);
    EXPECT_THROW(cuda::PartOf(task, 0), Error);
    task.keep = true;
    EXPECT_EQ(cuda::PartOf(task, 0).out_count, cuda::kMaxFused);
    task.keep = false;
  }
  task.finalize.posts = 0;
  task.finalize.colours = 0;
  task.finalize.alphas = 40;
  EXPECT_FALSE(cuda::FinishesInParts(task.finalize));
}

TEST(TileFunctions, DivisorsDivideExactly) {
  std::mt19937 random(3);
  std::vector<uint32_t> numbers{0, 1, 2, 3, 7, 2147483646, 2147483647};
  for (int i = 0; i < 2000; ++i) numbers.push_back(random() >> (1 + random() % 31));
  for (uint32_t d : numbers) {
    if (d == 0) continue;
    const cuda::Divisor divisor = cuda::MakeDivisor(d);
    for (uint32_t n : numbers) ASSERT_EQ(cuda::Divide(n, divisor), n / d) << n << " / " << d;
    for (uint32_t k : {1u, 2u, 1000u}) {
      const uint64_t multiple = uint64_t{d} * k;
      if (multiple > 2147483647) continue;
      const auto n = static_cast<uint32_t>(multiple);
      ASSERT_EQ(cuda::Divide(n, divisor), k);
      ASSERT_EQ(cuda::Divide(n - 1, divisor), k - 1) << n << " " << d;
    }
  }
}

// Values between ties, at them and beside them, and those that are no numbers of the range at all.
TEST(TileFunctions, QuantiseWithoutDivisionAsTheFormulaDoes) {
  const float infinity = std::numeric_limits<float>::infinity();
  struct Range {
    double lo, hi;
  };
  for (DType dtype : {DType::kU8, DType::kI8, DType::kU16, DType::kI16}) {
    for (const Range range : {Range{0, 1}, Range{-1, 1}, Range{0, 255}, Range{0.1, 0.7},
                              Range{-300, 1000}, Range{1000, 1000.25}, Range{0, 1e-30}}) {
      for (bool scaled : {true, false}) {
        const QuantiseTerms terms{range.lo, range.hi - range.lo, HighestOf(dtype), LowestOf(dtype),
                                  scaled};
        const cuda::Quantiser quantiser = cuda::MakeQuantiser(terms);
        int64_t values = 0, doubtful = 0;
        const auto same = [&](float v) {
          bool sure = true;
          const int32_t got = cuda::QuantiseInteger(v, quantiser, &sure);
          ++values;
          doubtful += sure ? 0 : 1;
          return !sure || static_cast<int32_t>(Quantise(v, terms)) == got;
        };
        for (float v : {0.0f, -0.0f, infinity, -infinity, std::nanf(""), 3e38f, -3e38f, 1e-45f}) {
          ASSERT_TRUE(same(v)) << v;
        }
        for (uint32_t half = 0; half < 65536; ++half) {
          ASSERT_TRUE(same(HalfToFloat(static_cast<uint16_t>(half)))) << half;
        }
        std::mt19937 random(5);
        const double lowest = scaled ? 0 : terms.lowest;
        for (int i = 0; i < 20'000; ++i) {
          // Near the tie between two neighbouring integers, and anywhere.
          const double level = lowest + static_cast<double>(random() % 65536);
          const double share = i % 2 == 0 ? 0.5 : random() / 4294967296.0;
          const double at = level + share;
          auto v = static_cast<float>(
              scaled ? at / terms.highest * terms.range_span + terms.range_lo : at);
          for (int step = 0; step < 3; ++step) v = std::nextafter(v, -infinity);
          for (int step = 0; step < 7; ++step, v = std::nextafter(v, infinity)) {
            ASSERT_TRUE(same(v)) << v << " " << DTypeName(dtype) << " " << range.lo;
          }
        }
        if (range.lo == 0 && range.hi >= 1 && scaled) {
          // Half of the values above were sought at ties.
          EXPECT_LT(doubtful, values * 6 / 10) << DTypeName(dtype);
          doubtful = values = 0;
          for (int i = 0; i < 20'000; ++i) {
            ASSERT_TRUE(same(static_cast<float>(random() / 4294967296.0 * range.hi)));
          }
          EXPECT_LT(doubtful, 20) << DTypeName(dtype) << " to " << range.hi;
        }
      }
    }
  }
}

TEST(TileFunctions, RunsOfFewTilesCoverLittle) {
  // Two layers of three rows of four tiles of 10 that share 2.
  const std::vector<int64_t> begin{0, 8, 16, 24}, end{10, 18, 26, 34};
  cuda::TileCovers covers{};
  for (int a = 0; a < 3; ++a) {
    covers.begin[a] = begin.data();
    covers.end[a] = end.data();
    covers.count[a] = 2 + a;
  }
  const auto cover = [&](int64_t first, int32_t count) {
    const cuda::CoverBox b = cuda::CoverOf(covers, {first, count, 0, 1});
    return Box{{b.begin[0], b.begin[1], b.begin[2]},
               {b.begin[0] + b.shape[0], b.begin[1] + b.shape[1], b.begin[2] + b.shape[2]}};
  };
  EXPECT_EQ(cover(5, 2), (Box{{0, 8, 8}, {10, 18, 26}})) << "one row";
  EXPECT_EQ(cover(7, 2), (Box{{0, 8, 0}, {10, 26, 34}})) << "two rows";
  EXPECT_EQ(cover(11, 2), (Box{{0, 0, 0}, {18, 26, 34}})) << "two layers";
  EXPECT_EQ(cover(23, 1), (Box{{8, 16, 24}, {18, 26, 34}})) << "the last tile";
  EXPECT_TRUE(cover(3, 0).empty());
  EXPECT_THROW(cover(23, 2), Error);
}

}  // namespace
}  // namespace tilery
