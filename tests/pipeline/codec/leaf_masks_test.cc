#include "pipeline/codec/leaf_masks.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

namespace tilery {
namespace {

using Leaves = std::map<int, LeafMask>;  // of one lower node, by place

// The leaves of a ball around `centre` (voxels of the node) that it touches.
Leaves Ball(std::array<int, 3> centre, int radius) {
  Leaves leaves;
  for (int place = 0; place < 4096; ++place) {
    const int at[3] = {place / 256 * 8, place / 16 % 16 * 8, place % 16 * 8};
    LeafMask mask{};
    bool any = false;
    for (int voxel = 0; voxel < 512; ++voxel) {
      const int x = at[0] + voxel / 64 - centre[0], y = at[1] + voxel / 8 % 8 - centre[1],
                z = at[2] + voxel % 8 - centre[2];
      if (x * x + y * y + z * z > radius * radius) continue;
      mask[static_cast<size_t>(voxel / 64)] |= uint64_t{1} << (voxel % 64);
      any = true;
    }
    if (any) leaves[place] = mask;
  }
  return leaves;
}

Leaves Noise(std::mt19937& random, int one_of) {
  Leaves leaves;
  for (int place = 0; place < 4096; ++place) {
    if (random() % 10 != 0) continue;
    LeafMask mask{};
    for (int voxel = 0; voxel < 512; ++voxel)
      if (random() % static_cast<unsigned>(one_of) == 0)
        mask[static_cast<size_t>(voxel / 64)] |= uint64_t{1} << (voxel % 64);
    leaves[place] = mask;
  }
  return leaves;
}

const LeafMask* Of(const Leaves* leaves, int place) {
  if (leaves == nullptr) return nullptr;
  const auto found = leaves->find(place);
  return found == leaves->end() ? nullptr : &found->second;
}

// Codes the nodes, checks that they come back, and returns the bytes taken.
size_t BytesOf(const std::vector<Leaves>& nodes, const std::vector<Leaves>& others = {}) {
  const auto other = [&](size_t i) { return others.empty() ? nullptr : &others[i]; };
  std::vector<std::byte> bytes;
  RangeEncoder encoder(&bytes);
  LeafMaskModel model;
  for (size_t i = 0; i < nodes.size(); ++i) {
    model.BeginNode();
    for (const auto& [place, mask] : nodes[i])
      model.Encode(&encoder, place, mask, Of(other(i), place));
  }
  encoder.Finish();
  RangeDecoder decoder(bytes);
  LeafMaskModel again;
  for (size_t i = 0; i < nodes.size(); ++i) {
    again.BeginNode();
    for (const auto& [place, mask] : nodes[i])
      EXPECT_EQ(again.Decode(&decoder, place, Of(other(i), place)), mask) << i << " " << place;
  }
  return bytes.size();
}

TEST(LeafMasks, ComeBackWhateverTheyAre) {
  std::mt19937 random(1);
  EXPECT_EQ(BytesOf({}), 0u);
  LeafMask all;
  all.fill(~uint64_t{0});
  BytesOf({{{0, all}, {4095, LeafMask{}}}});
  for (const int one_of : {1, 2, 3, 50}) {
    const std::vector<Leaves> nodes = {Noise(random, one_of), Ball({64, 64, 64}, 60),
                                       Noise(random, one_of)};
    const std::vector<Leaves> others = {Noise(random, 2), Ball({60, 70, 66}, 50), nodes[2]};
    BytesOf(nodes);
    BytesOf(nodes, others);
  }
}

// A surface costs a little more than a bit for each voxel that it passes, what is inside nothing.
TEST(LeafMasks, SmoothOnesTakeLittle) {
  const Leaves ball = Ball({64, 64, 64}, 55);
  const double surface = 4 * 3.14159 * 55 * 55;
  EXPECT_LT(static_cast<double>(BytesOf({ball})) * 8, 1.0 * surface);
  EXPECT_LT(BytesOf({ball}) * 15, ball.size() * sizeof(LeafMask));
}

TEST(LeafMasks, TheSameInAnotherGridTakesNextToNothing) {
  std::mt19937 random(2);
  const Leaves noise = Noise(random, 2);
  const size_t alone = BytesOf({noise});
  EXPECT_GT(alone, noise.size() * sizeof(LeafMask) * 9 / 10);
  EXPECT_LT(BytesOf({noise}, {noise}) * 50, alone);
}

// Leaves that touch, also across the border of a leaf, help each other.
TEST(LeafMasks, NeighboursOfOtherLeavesAreUsed) {
  Leaves whole = Ball({64, 64, 64}, 55), apart;
  // The same masks at places that do not touch: every second leaf along each axis, in their order.
  int next = 0;
  for (const auto& [place, mask] : whole) {
    if (next >= 512) break;
    apart[(next / 64 * 2 * 16 + next / 8 % 8 * 2) * 16 + next % 8 * 2] = mask;
    ++next;
  }
  Leaves first;
  for (const auto& [place, mask] : whole) {
    if (static_cast<int>(first.size()) >= next) break;
    first[place] = mask;
  }
  EXPECT_LT(BytesOf({first}) * 5, BytesOf({apart}) * 4);
}

}  // namespace
}  // namespace tilery
