// The method vq: the same codes and numbers on each device, and bytes that tell them.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>

#include "pipeline/codec/vq_codes.h"
#include "pipeline/codec/vq_region.h"
#include "tests/pipeline/codec/other_device.h"

namespace tilery {
namespace {

using Leaf = BlockNumbers::Leaf;

struct Leaves {
  std::vector<LeafMask> masks;
  std::vector<Leaf> numbers;

  void Add(const LeafMask& mask, const auto& number) {
    masks.push_back(mask);
    numbers.emplace_back();
    ForOn(mask, [&](size_t voxel) {
      numbers.back()[voxel] =
          number(static_cast<double>(voxel / 64), static_cast<double>(voxel / 8 % 8),
                 static_cast<double>(voxel % 8));
    });
  }
};

template <typename T>
auto Pointers(std::vector<T>& values) {
  std::vector<T*> all;
  for (T& value : values) all.push_back(&value);
  return all;
}
template <typename T>
auto Pointers(const std::vector<T>& values) {
  std::vector<const T*> all;
  for (const T& value : values) all.push_back(&value);
  return all;
}

Leaves SomeLeaves() {
  std::mt19937_64 random(3);
  Leaves leaves;
  const auto uniform = [&] { return std::uniform_real_distribution<double>(-1, 1)(random); };
  LeafMask full;
  full.fill(~uint64_t{0});
  for (int round = 0; round < 60; ++round) {
    LeafMask mask = full;
    if (round % 3 == 1) {
      for (uint64_t& word : mask) word = random() & random();
      mask[0] |= 1;
    }
    const double size = std::pow(10, 1 + round % 6), at = size * 3 * uniform();
    const double a = uniform(), b = uniform(), c = uniform(), d = uniform();
    leaves.Add(mask, [&](double x, double y, double z) {
      return static_cast<int32_t>(std::lround(at + size * std::sin(a * x + b * y + c * z + 6 * d)));
    });
  }
  leaves.Add(full, [](double, double, double) { return 77; });
  leaves.Add(full, [](double x, double, double) { return x == 0 ? 1 : 0; });
  leaves.Add(full, [&](double, double, double) {
    return random() % 2 == 0 ? kLargestCodedValue : -kLargestCodedValue;
  });
  LeafMask one{};
  one[7] = uint64_t{1} << 63;
  leaves.Add(one, [](double, double, double) { return -5; });
  LeafMask two = one;
  two[0] = 1;
  leaves.Add(two, [](double x, double, double) { return x == 0 ? -kLargestCodedValue : 12; });
  return leaves;
}

struct Coded {
  std::vector<VqLeaf> leaves;
  std::vector<Leaf> restored;
};

Coded Encode(const Leaves& leaves, const VqGoal& goal, VqDevice& device) {
  Coded coded;
  coded.restored.resize(leaves.masks.size());
  for (Leaf& leaf : coded.restored) leaf.fill(-1);  // what was there does not matter
  coded.leaves = device.Encode(Pointers(leaves.masks), Pointers(leaves.numbers), goal,
                               Pointers(coded.restored));
  return coded;
}

std::vector<Leaf> Decode(const Leaves& leaves, const Coded& coded, VqDevice& device) {
  std::vector<Leaf> numbers(leaves.masks.size());
  for (Leaf& leaf : numbers) leaf.fill(-1);
  device.Decode(Pointers(leaves.masks), coded.leaves, Pointers(numbers));
  return numbers;
}

double Square(const Leaves& leaves, const Coded& coded, size_t leaf) {
  double sum = 0;
  ForOn(leaves.masks[leaf], [&](size_t voxel) {
    const double off = coded.restored[leaf][voxel] - double{0} - leaves.numbers[leaf][voxel];
    sum += off * off;
  });
  return sum / CountOn(leaves.masks[leaf]);
}

TEST(Vq, ModelIsTheOneThatFilesName) { EXPECT_EQ(VqModelHash(), 0xc6611b7d81ed9019u); }

TEST(Vq, EachDeviceMakesTheSameCodesAndNumbers) {
  const auto other = OtherVqDevice();
  if (!other) GTEST_SKIP() << "there is no other device";
  const Leaves leaves = SomeLeaves();
  VqCpu cpu;
  for (const VqGoal& goal : {VqGoal{0, 4}, VqGoal{400, 4}, VqGoal{1e8, 2}, VqGoal{0, 0}}) {
    const Coded here = Encode(leaves, goal, cpu), there = Encode(leaves, goal, *other);
    for (size_t i = 0; i < leaves.masks.size(); ++i) {
      SCOPED_TRACE(i);
      EXPECT_EQ(here.leaves[i].place.scale, there.leaves[i].place.scale);
      EXPECT_EQ(here.leaves[i].place.offset, there.leaves[i].place.offset);
      ASSERT_EQ(here.leaves[i].stages, there.leaves[i].stages);
      EXPECT_EQ(here.leaves[i].codes, there.leaves[i].codes);
      EXPECT_EQ(here.restored[i], there.restored[i]);
    }
    EXPECT_EQ(Decode(leaves, here, *other), here.restored);
    EXPECT_EQ(Decode(leaves, there, cpu), here.restored);
  }
}

TEST(Vq, SeveralThreadsMayCodeAtOnce) {
  const auto other = OtherVqDevice();
  if (!other) GTEST_SKIP() << "there is no other device";
  const Leaves leaves = SomeLeaves();
  const Coded wanted = Encode(leaves, {400, 4}, *other);
  std::vector<std::thread> threads;
  std::vector<int> same(4);
  for (size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 3; ++round) {
        const Coded coded = Encode(leaves, {400, 4}, *other);
        same[t] +=
            coded.restored == wanted.restored && Decode(leaves, coded, *other) == wanted.restored;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(same, std::vector<int>(4, 3));
}

TEST(Vq, MoreStagesComeNearerUntilTheGoalIsReached) {
  const Leaves leaves = SomeLeaves();
  VqCpu cpu;
  double sums[kVqStages + 1] = {};
  for (int stages = 0; stages <= kVqStages; ++stages) {
    const Coded coded = Encode(leaves, {0, stages}, cpu);
    for (size_t i = 0; i < 60; ++i) {
      EXPECT_LE(coded.leaves[i].stages, stages);
      // In the unit of the leaf's own spread.
      const double spread = static_cast<double>(VqSpread(coded.leaves[i].place.scale)) / 16;
      sums[stages] += Square(leaves, coded, i) / (spread * spread) / 60;
    }
  }
  EXPECT_GT(sums[0], 1);
  for (int stages = 1; stages <= kVqStages; ++stages) EXPECT_LT(sums[stages], sums[stages - 1]);
  EXPECT_LT(sums[kVqStages], 0.1 * sums[0]);

  const VqGoal goal{900, kVqStages};
  const Coded coded = Encode(leaves, goal, cpu);
  int reached = 0;
  for (size_t i = 0; i < leaves.masks.size(); ++i) {
    if (coded.leaves[i].stages < kVqStages) {
      EXPECT_LE(Square(leaves, coded, i), goal.square);
      ++reached;
    }
  }
  EXPECT_GT(reached, 10);
}

TEST(Vq, ALeafOfOneNumberNeedsNoCodes) {
  Leaves leaves;
  LeafMask mask{};
  mask[3] = 0xff00ff;
  leaves.Add(mask, [](double, double, double) { return -123456; });
  VqCpu cpu;
  const Coded coded = Encode(leaves, {0, kVqStages}, cpu);
  EXPECT_EQ(coded.leaves[0].stages, 0);
  EXPECT_EQ(coded.restored, leaves.numbers);
}

TEST(VqCodes, BytesTellTheLeavesUnderEachKernel) {
  const Leaves leaves = SomeLeaves();
  VqCpu cpu;
  const Coded coded = Encode(leaves, {400, 4}, cpu);
  std::vector<std::byte> bytes[2];
  const VqKernel kernels[] = {VqKernel::kPortable, FastestVqKernel()};
  for (size_t k = 0; k < 2; ++k) {
    RangeEncoder coder(&bytes[k]);
    VqCodesModel model(2, kernels[k]);
    for (size_t i = 0; i < leaves.masks.size(); ++i)
      model.Encode(&coder, i % 2, leaves.masks[i], coded.leaves[i]);
    coder.Finish();
  }
  ASSERT_EQ(bytes[0], bytes[1]);
  for (const VqKernel kernel : kernels) {
    RangeDecoder coder(bytes[0]);
    VqCodesModel model(2, kernel);
    for (size_t i = 0; i < leaves.masks.size(); ++i) {
      SCOPED_TRACE(i);
      const VqLeaf leaf = model.Decode(&coder, i % 2, leaves.masks[i]);
      EXPECT_EQ(leaf.place.scale, coded.leaves[i].place.scale);
      EXPECT_EQ(VqOffset(leaf.place), VqOffset(coded.leaves[i].place));
      ASSERT_EQ(leaf.stages, coded.leaves[i].stages);
      ASSERT_EQ(leaf.codes, coded.leaves[i].codes);
    }
  }
}

TEST(VqCodes, DamagedBytesGiveSomeLeavesInBoundedTime) {
  const Leaves leaves = SomeLeaves();
  VqCpu cpu;
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes(random() % 400);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    RangeDecoder coder(bytes);
    VqCodesModel model(1);
    Coded coded;
    for (const LeafMask& mask : leaves.masks) {
      coded.leaves.push_back(model.Decode(&coder, 0, mask));
      ASSERT_LE(coded.leaves.back().stages, kVqStages);
    }
    for (const Leaf& leaf : Decode(leaves, coded, cpu)) {
      for (const int32_t number : leaf) ASSERT_LE(std::abs(int64_t{number}), kLargestCodedValue);
    }
  }
}

}  // namespace
}  // namespace tilery
