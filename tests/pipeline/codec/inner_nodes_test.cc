#include "pipeline/codec/inner_nodes.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

namespace tilery {
namespace {

std::string BytesOf(float number) {
  std::string bytes(sizeof number, '\0');
  std::memcpy(bytes.data(), &number, sizeof number);
  return bytes;
}

// One of so many places has a node below, one of so many others is active; values by `value`.
template <typename Value>
VdbNode MakeNode(VdbLevel level, unsigned child_of, unsigned active_of, const Value& value,
                 unsigned seed) {
  std::mt19937 random(seed);
  VdbNode node;
  node.level = level;
  node.children = node.active = VdbMask(VdbPlaces(level));
  for (int place = 0; place < VdbPlaces(level); ++place) {
    float number = 0;
    if (child_of > 0 && random() % child_of == 0) {
      node.children.SetOn(place);
    } else {
      const bool active = active_of > 0 && random() % active_of == 0;
      if (active) node.active.SetOn(place);
      number = value(place, active, random);
    }
    const std::string bytes = BytesOf(number);
    for (const char byte : bytes) node.values.push_back(static_cast<std::byte>(byte));
  }
  return node;
}

size_t BytesOf(const std::vector<VdbNode>& nodes, float background) {
  std::vector<std::byte> bytes;
  RangeEncoder encoder(&bytes);
  const VdbLevel level = nodes.front().level;
  InnerNodeModel model(level, BytesOf(background));
  for (const VdbNode& node : nodes) model.Encode(&encoder, node);
  encoder.Finish();
  RangeDecoder decoder(bytes);
  InnerNodeModel again(level, BytesOf(background));
  for (const VdbNode& node : nodes) {
    VdbNode is;
    again.Decode(&decoder, &is);
    EXPECT_TRUE(is == node);
  }
  return bytes.size();
}

const auto kBackground = [](int, bool, std::mt19937&) { return 0.5f; };

TEST(InnerNodes, ComeBackWhateverTheyHold) {
  const auto any = [](int, bool, std::mt19937& random) { return static_cast<float>(random()); };
  const auto tiles = [](int place, bool active, std::mt19937&) {
    return active ? 1.0f + static_cast<float>(place / 1000) : place % 7 == 0 ? -0.5f : 0.5f;
  };
  for (const VdbLevel level : {VdbLevel::kUpper, VdbLevel::kLower}) {
    BytesOf({MakeNode(level, 10, 3, any, 1), MakeNode(level, 0, 1, tiles, 2),
             MakeNode(level, 1, 0, kBackground, 3), MakeNode(level, 30, 2, tiles, 4)},
            0.5f);
  }
}

TEST(InnerNodes, EmptySpaceTakesNextToNothing) {
  // A hundred nodes below an upper one of 32,768 places: some 10 bits to say where each is.
  EXPECT_LT(BytesOf({MakeNode(VdbLevel::kUpper, 330, 0, kBackground, 5)}, 0.5f), 200u);
  EXPECT_LT(BytesOf({MakeNode(VdbLevel::kUpper, 0, 0, kBackground, 6)}, 0.5f), 60u);
}

TEST(InnerNodes, DamagedBytesGiveASoundNode) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::byte> bytes(random() % 500);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    RangeDecoder decoder(bytes);
    InnerNodeModel model(VdbLevel::kLower, BytesOf(1.0f));
    VdbNode node;
    model.Decode(&decoder, &node);
    EXPECT_EQ(node.values.size(), 4096u * sizeof(float));
    for (size_t i = 0; i < node.active.words().size(); ++i)
      EXPECT_EQ(node.active.words()[i] & node.children.words()[i], 0u);
  }
}

}  // namespace
}  // namespace tilery
