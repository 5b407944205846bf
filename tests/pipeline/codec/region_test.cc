#include "pipeline/codec/region.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "io/error.h"

namespace tilery {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

void Append(double number, const RegionCoding& coding, std::vector<std::byte>* to) {
  for (int c = 0; c < coding.numbers.components; ++c) {
    double value = number * (1 + 0.1 * c);
    if (coding.half) value = HalfToFloat(FloatToHalf(static_cast<float>(value)));
    const auto single = static_cast<float>(value);
    const auto bytes = coding.numbers.dtype == DType::kF64 ? std::as_bytes(std::span(&value, 1))
                                                           : std::as_bytes(std::span(&single, 1));
    to->insert(to->end(), bytes.begin(), bytes.end());
  }
}

RegionCoding CodingOf(DType dtype, int components, bool half, double background) {
  RegionCoding coding;
  coding.numbers = {dtype, components};
  coding.half = half;
  std::vector<std::byte> bytes;
  Append(background, coding, &bytes);
  coding.background.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  ValueWeights near{};
  near[0] = near[1] = near[2] = 1365;  // the mean of those that touch
  coding.weights.assign(static_cast<size_t>(components), near);
  return coding;
}

// A cloud in some leaves; inactive values of different kinds by leaf; `wild` ones among the active.
Region Cloud(const RegionCoding& coding, unsigned seed, const std::vector<double>& wild = {}) {
  std::mt19937 random(seed);
  Region region;
  region.node.level = VdbLevel::kLower;
  region.node.origin = {-128, 256, 0};
  region.node.children = region.node.active = VdbMask(4096);
  for (int place = 0; place < 4096; ++place) {
    const bool child = place % 61 < 3 && random() % 3 == 0;
    if (child) region.node.children.SetOn(place);
    const bool active = !child && random() % 300 == 0;
    if (active) region.node.active.SetOn(place);
    const size_t begin = region.node.values.size();
    Append(active ? 2.5 : random() % 500 == 0 ? -3 : 0.5, coding, &region.node.values);
    if (child)
      std::fill(region.node.values.begin() + static_cast<long>(begin), region.node.values.end(),
                std::byte{0});
    if (!child) continue;
    LeafMask mask{};
    const unsigned kind = random() % 7;
    for (int voxel = 0; voxel < 512; ++voxel) {
      const int x = voxel / 64, y = voxel / 8 % 8, z = voxel % 8;
      const bool on = (x - 4) * (x - 4) + y * y + (z - 3) * (z - 3) < 25;
      if (on) mask[static_cast<size_t>(x)] |= uint64_t{1} << (voxel % 64);
      double value = std::sin(0.3 * x + 0.2 * y) * std::cos(0.25 * z) * 10 +
                     0.02 * static_cast<double>(random() % 100);
      if (!wild.empty() && random() % 400 == 0) value = wild[random() % wild.size()];
      const double others[7][2] = {{0.5, 0.5}, {-0.5, -0.5}, {7, 7}, {0.5, -0.5},
                                   {9, 0.5},   {3, 4},       {0, 0}};
      const double inactive =
          kind == 6 ? static_cast<double>(random() % 1000) : others[kind][random() % 2];
      Append(on ? value : inactive, coding, &region.values);
    }
    region.masks.push_back(mask);
  }
  return region;
}

double NumberAt(const std::vector<std::byte>& values, size_t index, DType dtype) {
  if (dtype == DType::kF64) {
    double value;
    std::memcpy(&value, &values[index * 8], 8);
    return value;
  }
  float value;
  std::memcpy(&value, &values[index * 4], 4);
  return value;
}

// Codes it; all but active values has to come back exactly, and those within the bound.
size_t Check(const Region& region, const Region* other, const RegionCoding& coding) {
  CodingError error;
  const std::vector<std::byte> bytes = EncodeRegion(region, other, coding, &error);
  EXPECT_EQ(EncodeRegion(region, other, coding, nullptr), bytes);
  const Region is = DecodeRegion(bytes, region.node.origin, other, coding, false);
  EXPECT_TRUE(is.node == region.node);
  EXPECT_EQ(is.masks, region.masks);
  EXPECT_EQ(DecodeRegion(bytes, region.node.origin, other, coding, true).masks, region.masks);
  EXPECT_EQ(is.values.size(), region.values.size());
  const auto components = static_cast<size_t>(coding.numbers.components);
  double most = 0;
  for (size_t i = 0; i < region.masks.size() * 512 * components; ++i) {
    const size_t voxel = i / components % 512, leaf = i / components / 512;
    const size_t size = DTypeSize(coding.numbers.dtype);
    const bool same = std::memcmp(&is.values[i * size], &region.values[i * size], size) == 0;
    const bool on = region.masks[leaf][voxel / 64] >> (voxel % 64) & 1;
    if (same) continue;
    EXPECT_TRUE(on && coding.step > 0) << leaf << " " << voxel;
    const double off = std::abs(NumberAt(is.values, i, coding.numbers.dtype) -
                                NumberAt(region.values, i, coding.numbers.dtype));
    EXPECT_LE(off, coding.bound);
    most = std::max(most, off);
  }
  EXPECT_EQ(error.most, most);
  return bytes.size();
}

const auto kKinds = [] {
  std::vector<RegionCoding> all;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const int components : {1, 3}) {
      for (const bool half : {false, true}) all.push_back(CodingOf(dtype, components, half, 0.5));
    }
  }
  return all;
}();

TEST(Region, IsExactWithoutABound) {
  for (const RegionCoding& coding : kKinds) {
    const Region region = Cloud(coding, 1, {kNaN, kInfinity, -kInfinity, 1e30, -0.0, 1e-40});
    const size_t bytes = Check(region, nullptr, coding);
    EXPECT_LT(bytes, region.values.size());
  }
}

TEST(Region, KeepsTheBoundWhateverTheNumbersAre) {
  std::mt19937 random(2);
  for (int round = 0; round < 24; ++round) {
    RegionCoding coding = kKinds[static_cast<size_t>(round) % kKinds.size()];
    coding.bound = std::pow(10.0, -static_cast<int>(random() % 7) + 1);
    coding.step = 2 * coding.bound * (1 - 1e-4);
    const std::vector<double> wild = round % 3 == 0
                                         ? std::vector<double>{}
                                         : std::vector<double>{kNaN, kInfinity, 1e30, 65504, -0.0};
    Check(Cloud(coding, 10 + static_cast<unsigned>(round), wild), nullptr, coding);
  }
}

TEST(Region, TakesLessTheWiderTheBound) {
  RegionCoding coding = kKinds[0];
  size_t before = Check(Cloud(coding, 3), nullptr, coding);
  for (const double bound : {0.001, 0.01, 0.1, 1.0}) {
    coding.bound = bound;
    coding.step = 2 * bound * (1 - 1e-4);
    const size_t bytes = Check(Cloud(coding, 3), nullptr, coding);
    EXPECT_LT(bytes, before);
    before = bytes;
  }
}

TEST(Region, MasksOfAnotherGridHelp) {
  RegionCoding coding = kKinds[0];
  coding.bound = 1;
  coding.step = 2;
  const Region region = Cloud(coding, 4), elsewhere = Cloud(coding, 5);
  const size_t alone = Check(region, nullptr, coding);
  EXPECT_LT(Check(region, &region, coding), alone);
  Check(region, &elsewhere, coding);
}

TEST(Region, WithoutLeavesItIsANodeAlone) {
  const RegionCoding coding = kKinds[0];
  Region region;
  region.node.level = VdbLevel::kLower;
  region.node.children = region.node.active = VdbMask(4096);
  for (int place = 0; place < 4096; ++place) Append(0.5, coding, &region.node.values);
  EXPECT_LT(Check(region, nullptr, coding), 60u);
}

TEST(Region, DamagedBytesEndInAnErrorOrInOtherNumbers) {
  std::mt19937 random(6);
  RegionCoding coding = kKinds[0];
  coding.bound = 0.1;
  coding.step = 0.19;
  const Region region = Cloud(coding, 7);
  const std::vector<std::byte> whole = EncodeRegion(region, nullptr, coding, nullptr);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::byte> bad = whole;
    if (round % 3 == 0) bad.resize(random() % bad.size());
    if (!bad.empty()) bad[random() % bad.size()] ^= static_cast<std::byte>(1 << random() % 8);
    try {
      const Region is = DecodeRegion(bad, region.node.origin, nullptr, coding, false);
      EXPECT_EQ(is.values.size(), is.masks.size() * 512 * 4);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kInput);
    }
  }
}

}  // namespace
}  // namespace tilery
