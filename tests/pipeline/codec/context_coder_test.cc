// The context model on each device: the same bytes, and the same numbers from them.
#include "pipeline/codec/context_coder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "pipeline/codec/value_coding.h"
#include "tests/pipeline/codec/other_device.h"

namespace tilery {
namespace {

using Numbers = std::function<int32_t(size_t component, int x, int y, int z)>;
using Active = std::function<bool(int x, int y, int z)>;

BlockNumbers BlockOf(size_t components, const Numbers& numbers, const Active& active) {
  BlockNumbers block(components);
  for (int place = 0; place < 64; ++place) {
    LeafMask mask{};
    const auto at = [place](int voxel) {
      return std::array{place / 16 * 8 + voxel / 64, place / 4 % 4 * 8 + voxel / 8 % 8,
                        place % 4 * 8 + voxel % 8};
    };
    for (int voxel = 0; voxel < 512; ++voxel) {
      const auto [x, y, z] = at(voxel);
      if (active(x, y, z)) mask[static_cast<size_t>(voxel / 64)] |= uint64_t{1} << (voxel % 64);
    }
    if (mask == LeafMask{}) continue;
    block.Add(place, mask);
    for (size_t c = 0; c < components; ++c) {
      for (int voxel = 0; voxel < 512; ++voxel) {
        const auto [x, y, z] = at(voxel);
        if (active(x, y, z))
          block.values[c].back()[static_cast<size_t>(voxel)] = numbers(c, x, y, z);
      }
    }
  }
  return block;
}

bool Everywhere(int, int, int) { return true; }

struct Case {
  const char* name;
  std::vector<BlockNumbers> blocks;
};

std::vector<Case> Cases() {
  std::mt19937 random(5);
  const auto below = [&random](int most) {
    return static_cast<int32_t>(random() % static_cast<unsigned>(most));
  };
  std::vector<Case> cases;
  const auto wave = [](size_t c, int x, int y, int z) {
    return static_cast<int32_t>(
        std::lround(40 * std::sin(0.2 * x + 0.1 * y + static_cast<double>(c)) + 0.5 * z));
  };
  for (const size_t components : {1u, 2u, 3u})
    cases.push_back({"smooth", {BlockOf(components, wave, Everywhere)}});
  cases.push_back({"one voxel",
                   {BlockOf(
                       1, [](size_t, int, int, int) { return 70; },
                       [](int x, int y, int z) { return x + y + z == 0; })}});
  cases.push_back({"nothing", {BlockNumbers(1)}});
  cases.push_back({"all the same",
                   {BlockOf(
                       1, [](size_t, int, int, int) { return -3; }, Everywhere)}});
  cases.push_back({"noise",
                   {BlockOf(
                       3, [&](size_t, int, int, int) { return below(2001) - 1000; },
                       [](int x, int y, int z) { return x * x * 7 % 5 + y * z * z % 3 < 3; })}});
  cases.push_back({"largest",
                   {BlockOf(
                       3,
                       [&](size_t, int, int, int) {
                         return below(2) == 0 ? kLargestCodedValue : -kLargestCodedValue;
                       },
                       Everywhere)}});
  cases.push_back({"rare leaps",
                   {BlockOf(
                       1,
                       [&](size_t c, int x, int y, int z) {
                         return below(500) == 0 ? below(1 << 26) : wave(c, x, y, z);
                       },
                       Everywhere)}});
  Case many{"many", {}};
  for (int i = 0; i < 9; ++i) {
    const int cut = 4 * i;
    many.blocks.push_back(BlockOf(
        2, [&](size_t c, int x, int y, int z) { return wave(c, x + cut, y, z) + below(3); },
        [cut](int x, int y, int z) { return x + y / 2 + z < 80 - cut; }));
  }
  cases.push_back(std::move(many));
  return cases;
}

std::vector<ContextComponent> FitOf(const Case& one) {
  ContextFit fit(one.blocks[0].values.size(), 0);
  for (const BlockNumbers& block : one.blocks) fit.Add(block);
  return fit.Components();
}

std::vector<std::byte> Encoded(const BlockNumbers& block,
                               std::span<const ContextComponent> components) {
  std::vector<std::byte> stream;
  RangeEncoder encoder(&stream);
  ContextCoder(components).Encode(&encoder, block);
  encoder.Finish();
  return stream;
}

BlockNumbers LeavesOf(const BlockNumbers& block) {
  BlockNumbers leaves(block.values.size());
  for (size_t i = 0; i < block.places.size(); ++i) leaves.Add(block.places[i], block.masks[i]);
  return leaves;
}

TEST(ContextCoder, WhatOneDeviceWritesTheOtherReads) {
  const auto other = OtherDevice();
  if (!other) GTEST_SKIP() << "there is no other device";
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.name);
    const std::vector<ContextComponent> components = FitOf(one);
    const auto there = other->Encode(one.blocks, components);
    std::vector<std::vector<std::byte>> here;
    for (const BlockNumbers& block : one.blocks) here.push_back(Encoded(block, components));
    EXPECT_TRUE(there == here);
    std::vector<std::span<const std::byte>> streams(here.begin(), here.end());
    std::vector<BlockNumbers> back;
    for (size_t b = 0; b < one.blocks.size(); ++b) {
      back.push_back(LeavesOf(one.blocks[b]));
      RangeDecoder decoder(here[b]);
      ContextCoder(components).Decode(&decoder, &back[b]);
      EXPECT_TRUE(back[b].values == one.blocks[b].values);
      back[b] = LeavesOf(one.blocks[b]);
    }
    other->Decode(streams, components, back);
    for (size_t b = 0; b < back.size(); ++b) EXPECT_TRUE(back[b].values == one.blocks[b].values);
  }
}

TEST(ContextCoder, DamagedStreamsGiveTheSameWrongNumbersOnEachDevice) {
  const auto other = OtherDevice();
  if (!other) GTEST_SKIP() << "there is no other device";
  std::mt19937 random(6);
  for (const Case& one : Cases()) {
    SCOPED_TRACE(one.name);
    const std::vector<ContextComponent> components = FitOf(one);
    for (int round = 0; round < 6; ++round) {
      std::vector<std::vector<std::byte>> damaged;
      for (const BlockNumbers& block : one.blocks) {
        damaged.push_back(Encoded(block, components));
        std::vector<std::byte>& stream = damaged.back();
        if (round == 0) stream.clear();
        if (round == 1) stream.assign(64, std::byte{0xff});
        if (round > 1 && !stream.empty()) stream[random() % stream.size()] ^= std::byte{0x5a};
        if (round > 3) stream.resize(stream.size() / 2);
      }
      std::vector<BlockNumbers> here, there;
      std::vector<std::span<const std::byte>> streams(damaged.begin(), damaged.end());
      for (size_t b = 0; b < damaged.size(); ++b) {
        here.push_back(LeavesOf(one.blocks[b]));
        there.push_back(here.back());
        RangeDecoder decoder(damaged[b]);
        ContextCoder(components).Decode(&decoder, &here.back());
        for (const auto& component : here.back().values) {
          for (const BlockNumbers::Leaf& leaf : component) {
            for (const int32_t number : leaf) EXPECT_LE(std::abs(number), kLargestCodedValue);
          }
        }
      }
      other->Decode(streams, components, there);
      for (size_t b = 0; b < here.size(); ++b) EXPECT_TRUE(here[b].values == there[b].values);
    }
  }
}

TEST(ContextCoder, SeveralThreadsMayUseADevice) {
  const auto other = OtherDevice();
  if (!other) GTEST_SKIP() << "there is no other device";
  const std::vector<Case> cases = Cases();
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < cases.size(); ++i) {
        const Case& one = cases[(i + 2 * t) % cases.size()];
        const std::vector<ContextComponent> components = FitOf(one);
        const auto streams = other->Encode(one.blocks, components);
        for (size_t b = 0; b < streams.size(); ++b)
          wrong[t] += streams[b] == Encoded(one.blocks[b], components) ? 0 : 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

// Of a velocity without divergence the third component follows from the other two.
TEST(ContextCoder, WhatFollowsFromEarlierComponentsIsPredicted) {
  std::mt19937 random(7);
  std::array<std::array<std::array<std::array<int32_t, 33>, 33>, 33>, 3> flow{};
  for (auto& component : flow) {
    for (auto& plane : component) {
      for (auto& row : plane) {
        for (int32_t& v : row) v = static_cast<int32_t>(random() % 64);
      }
    }
  }
  for (size_t x = 0; x < 32; ++x) {
    for (size_t y = 0; y < 32; ++y) {
      for (size_t z = 0; z < 32; ++z)
        flow[2][x][y][z + 1] = flow[2][x][y][z] - (flow[0][x + 1][y][z] - flow[0][x][y][z]) -
                               (flow[1][x][y + 1][z] - flow[1][x][y][z]);
    }
  }
  // Mean error of the last of `components`, of which the first is `first`, in steps.
  const auto error_of_last = [&flow](size_t first, size_t components) {
    const auto number = [&](size_t c, int x, int y, int z) {
      return flow[first + c][static_cast<size_t>(x)][static_cast<size_t>(y)]
                 [static_cast<size_t>(z)];
    };
    const Case one{"", {BlockOf(components, number, Everywhere)}};
    std::vector<double> errors;
    const std::vector<ContextComponent> fit = FitOf(one);
    ContextCoder(fit).Samples(one.blocks[0],
                              [&](std::span<const int8_t, kContextInputs>, int, int32_t error) {
                                errors.push_back(std::abs(error) / 16.0);
                              });
    EXPECT_EQ(errors.size(), components * 32 * 32 * 32);
    return std::accumulate(errors.end() - 32 * 32 * 32, errors.end(), 0.0) / (32 * 32 * 32);
  };
  // What is left is at the block's sides, whose neighbours lie beyond it, and what that does to the
  // fit.
  const double alone = error_of_last(2, 1), behind = error_of_last(0, 3);
  EXPECT_LT(behind, alone / 3);
}

// Files say by this which model they were made with: a change makes them unreadable.
TEST(ContextModel, IsTheOneThatFilesWereMadeWith) {
  EXPECT_EQ(ContextModelHash(), 12399758837601083369u);
}

TEST(ContextModel, WavesHoldEachVoxelOnceBehindItsNeighbours) {
  const ContextWaves& waves = ContextOrder();
  std::vector<int> wave_of(kContextVoxels, -1);
  for (int wave = 0; wave < kContextWaves; ++wave) {
    EXPECT_LE(waves.begin[wave + 1] - waves.begin[wave], kContextWaveMost);
    for (int32_t i = waves.begin[wave]; i < waves.begin[wave + 1]; ++i) {
      EXPECT_EQ(wave_of[static_cast<size_t>(waves.at[i])], -1);
      wave_of[static_cast<size_t>(waves.at[i])] = wave;
    }
  }
  int voxels = 0;
  for (int place = 0; place < 64; ++place) {
    for (int voxel = 0; voxel < 512; ++voxel) {
      const int at = ContextLeaf(place) + ContextVoxel(voxel);
      const int wave = wave_of[static_cast<size_t>(at)];
      ASSERT_GE(wave, 0);
      ++voxels;
      for (int i = 0; i < kContextCausal; ++i)
        EXPECT_LT(wave_of[static_cast<size_t>(at + context::Causal(i))], wave);
    }
  }
  EXPECT_EQ(voxels, waves.begin[kContextWaves]);
}

}  // namespace
}  // namespace tilery
