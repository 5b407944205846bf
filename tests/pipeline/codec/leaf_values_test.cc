#include "pipeline/codec/leaf_values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace tilery {
namespace {

struct Leaf {
  int place = 0;
  LeafMask mask{};
  std::array<int32_t, 512> values{};
};
using Block = std::vector<Leaf>;

// Values by voxel of the block; active where `active` says so.
Block MakeBlock(const std::function<int32_t(int, int, int)>& value,
                const std::function<bool(int, int, int)>& active) {
  Block block;
  for (int place = 0; place < 64; ++place) {
    Leaf leaf;
    leaf.place = place;
    bool any = false;
    for (int voxel = 0; voxel < 512; ++voxel) {
      const int x = place / 16 * 8 + voxel / 64, y = place / 4 % 4 * 8 + voxel / 8 % 8,
                z = place % 4 * 8 + voxel % 8;
      leaf.values[static_cast<size_t>(voxel)] = value(x, y, z);
      if (!active(x, y, z)) continue;
      leaf.mask[static_cast<size_t>(voxel / 64)] |= uint64_t{1} << (voxel % 64);
      any = true;
    }
    if (any) block.push_back(leaf);
  }
  return block;
}

bool Everywhere(int, int, int) { return true; }
bool InABall(int x, int y, int z) {
  return (x - 16) * (x - 16) + (y - 15) * (y - 15) + (z - 17) * (z - 17) < 220;
}

ValueWeights FitOf(const std::vector<Block>& blocks) {
  WeightsFit fit;
  for (const Block& block : blocks) {
    fit.BeginBlock();
    for (const Leaf& leaf : block) fit.Add(leaf.place, leaf.mask, leaf.values);
  }
  return fit.Weights();
}

// Codes the blocks, checks that what is active comes back and the rest is left alone; bits a voxel.
double BitsOf(const std::vector<Block>& blocks, const ValueWeights& weights) {
  std::vector<std::byte> bytes;
  RangeEncoder encoder(&bytes);
  LeafValueModel model(weights);
  for (const Block& block : blocks) {
    model.BeginBlock();
    for (const Leaf& leaf : block) model.Encode(&encoder, leaf.place, leaf.mask, leaf.values);
  }
  encoder.Finish();
  RangeDecoder decoder(bytes);
  LeafValueModel again(weights);
  int64_t voxels = 0;
  for (const Block& block : blocks) {
    again.BeginBlock();
    for (const Leaf& leaf : block) {
      std::array<int32_t, 512> values;
      values.fill(12345678);
      again.Decode(&decoder, leaf.place, leaf.mask, values);
      for (int voxel = 0; voxel < 512; ++voxel) {
        const bool on = leaf.mask[static_cast<size_t>(voxel / 64)] >> (voxel % 64) & 1;
        EXPECT_EQ(values[static_cast<size_t>(voxel)],
                  on ? leaf.values[static_cast<size_t>(voxel)] : 12345678);
        voxels += on;
      }
    }
  }
  return voxels == 0 ? 0 : static_cast<double>(bytes.size()) * 8 / static_cast<double>(voxels);
}

double BitsOf(const std::vector<Block>& blocks) { return BitsOf(blocks, FitOf(blocks)); }

TEST(LeafValues, ComeBackWhateverTheyAre) {
  std::mt19937 random(1);
  const auto any = [&](int, int, int) {
    return static_cast<int32_t>(random() % (2u * kLargestCodedValue + 1)) - kLargestCodedValue;
  };
  const auto ends = [&](int, int, int) {
    return random() % 2 == 0 ? kLargestCodedValue : -kLargestCodedValue;
  };
  const auto few = [&](int, int, int) { return random() % 10 == 0; };
  EXPECT_EQ(BitsOf({}), 0);
  BitsOf({MakeBlock(any, few), MakeBlock(ends, Everywhere), MakeBlock(any, InABall)});
  ValueWeights wild;
  for (int16_t& weight : wild) weight = static_cast<int16_t>(random());
  BitsOf({MakeBlock(ends, Everywhere), MakeBlock(any, few)}, wild);
}

TEST(LeafValues, ConstantsAndSlopesCostNextToNothing) {
  const auto constant = [](int, int, int) { return -7; };
  const auto slope = [](int x, int y, int z) { return 3 * x - 2 * y + 5 * z; };
  EXPECT_LT(BitsOf({MakeBlock(constant, InABall)}), 0.05);
  // The three faces of a block at which neighbours are missing: a tenth of its voxels.
  EXPECT_LT(BitsOf({MakeBlock(slope, Everywhere)}), 0.4);
}

TEST(LeafValues, SmoothOnesCostLessThanTheirNoise) {
  std::mt19937 random(2);
  std::normal_distribution<double> noise(0, 0.5);
  const auto smooth = [&](int x, int y, int z) {
    return static_cast<int32_t>(std::lround(60 * std::sin(0.2 * x) * std::cos(0.15 * y + 0.1 * z)));
  };
  const auto rough = [&](int x, int y, int z) {
    return smooth(x, y, z) + static_cast<int32_t>(std::lround(noise(random)));
  };
  const double of_smooth = BitsOf({MakeBlock(smooth, InABall)}),
               of_rough = BitsOf({MakeBlock(rough, InABall)});
  EXPECT_LT(of_smooth, 2.0);
  EXPECT_LT(of_rough, 2.8);
  EXPECT_GT(of_rough, 1.4);  // the entropy of the noise alone
}

// Leaves of a block help each other: apart, each begins anew.
TEST(LeafValues, NeighboursOfOtherLeavesAreUsed) {
  const auto smooth = [](int x, int y, int z) {
    return static_cast<int32_t>(std::lround(40 * std::sin(0.25 * x + 0.2 * y - 0.3 * z)));
  };
  const Block whole = MakeBlock(smooth, Everywhere);
  std::vector<Block> apart;
  for (const Leaf& leaf : whole) apart.push_back({leaf});
  EXPECT_LT(BitsOf({whole}) * 1.1, BitsOf(apart));
}

TEST(LeafValues, DamagedBytesGiveNumbersWithinTheLimit) {
  std::mt19937 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> bytes(random() % 3000);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    RangeDecoder decoder(bytes);
    ValueWeights weights;
    for (int16_t& weight : weights) weight = static_cast<int16_t>(random());
    LeafValueModel model(weights);
    model.BeginBlock();
    LeafMask all;
    all.fill(~uint64_t{0});
    for (int place = 0; place < 64; ++place) {
      std::array<int32_t, 512> values{};
      model.Decode(&decoder, place, all, values);
      for (const int32_t value : values) ASSERT_LE(std::abs(value), kLargestCodedValue);
    }
  }
}

}  // namespace
}  // namespace tilery
