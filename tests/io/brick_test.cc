#include "io/brick.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "io/error.h"
#include "tests/io/expect_error.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

using ::testing::HasSubstr;

const char kKey[] = "0123456789abcdef0123456789abcdef";

struct Samples {
  BrickArray array;
  std::vector<std::byte> bytes;

  Samples(const std::string& name, DType dtype, int64_t channels, const Box& box, uint32_t seed)
      : array{name, dtype, channels, box},
        bytes(static_cast<size_t>(box.voxels() * channels) * DTypeSize(dtype)) {
    std::mt19937 random(seed);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  }
  ConstView view() const {
    return DenseView(bytes.data(), array.dtype, array.channels, array.box.shape(),
                     Layout::kInterleaved);
  }
};

Published WriteBrick(const std::filesystem::path& path, const std::vector<Samples>& all) {
  BrickWriter writer(path, "u.1.1", kKey);
  for (const Samples& samples : all) writer.Add(samples.array, samples.view());
  return writer.Finish();
}

std::vector<std::byte> ReadRegion(const BrickReader& reader, size_t index, const Box& region) {
  const BrickArray& array = reader.arrays()[index];
  std::vector<std::byte> bytes(static_cast<size_t>(region.voxels() * array.channels) *
                               DTypeSize(array.dtype));
  reader.Read(
      index, region,
      DenseView(bytes.data(), array.dtype, array.channels, region.shape(), Layout::kInterleaved));
  return bytes;
}

std::vector<std::byte> Expected(const Samples& samples, const Box& region) {
  std::vector<std::byte> bytes(static_cast<size_t>(region.voxels() * samples.array.channels) *
                               DTypeSize(samples.array.dtype));
  const Index& corner = samples.array.box.begin;
  CopyView(samples.view().Crop(Shift(region, {-corner[0], -corner[1], -corner[2]})),
           DenseView(bytes.data(), samples.array.dtype, samples.array.channels, region.shape(),
                     Layout::kInterleaved));
  return bytes;
}

TEST(Brick, ReturnsEveryArrayWithItsNameTypeAndBox) {
  const TempFolder folder;
  const std::vector<Samples> all = {
      {"interior", DType::kU8, 3, {{0, 10, 20}, {1, 30, 50}}, 1},
      {"seam.0", DType::kF32, 3, {{0, 30, 20}, {1, 34, 50}}, 2},
      {"seam.1", DType::kF32, 1, {{5, -7, 0}, {9, 2, 3}}, 3},
      {"empty", DType::kF16, 2, {{4, 4, 4}, {4, 8, 8}}, 4},
  };
  const Published published = WriteBrick(folder / "b", all);
  EXPECT_EQ(published.hash, HashFile(folder / "b"));
  EXPECT_EQ(published.stamp, *StampOf(folder / "b"));
  const BrickReader reader(folder / "b", kKey);
  ASSERT_EQ(reader.arrays().size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(reader.arrays()[i].name, all[i].array.name);
    EXPECT_EQ(reader.arrays()[i].dtype, all[i].array.dtype);
    EXPECT_EQ(reader.arrays()[i].channels, all[i].array.channels);
    EXPECT_EQ(reader.arrays()[i].box, all[i].array.box);
    EXPECT_EQ(ReadRegion(reader, i, all[i].array.box), all[i].bytes);
  }
  VerifyBrick(folder / "b", kKey);
}

TEST(Brick, ABrickWithoutArraysIsABrick) {
  const TempFolder folder;
  WriteBrick(folder / "b", {});
  EXPECT_TRUE(BrickReader(folder / "b", kKey).arrays().empty());
}

// Large enough for several blocks in every way of cutting: planes in groups, rows of one plane,
// rows longer than a block.
TEST(Brick, AnyRegionOfAnyShapeReadsRight) {
  const TempFolder folder;
  const std::vector<Samples> all = {
      {"planes", DType::kU16, 1, {{3, 0, 0}, {43, 200, 300}}, 1},      // 120 kB planes
      {"rows", DType::kF32, 3, {{0, 5, 7}, {2, 405, 507}}, 2},         // 2.4 MB planes of 6 kB rows
      {"long rows", DType::kF64, 1, {{0, 0, 0}, {1, 3, 150'000}}, 3},  // 1.2 MB rows
  };
  WriteBrick(folder / "b", all);
  const BrickReader reader(folder / "b", kKey);
  std::mt19937_64 random(11);
  for (int round = 0; round < 150; ++round) {
    const size_t index = static_cast<size_t>(round) % all.size();
    const Box& box = all[index].array.box;
    Box region;
    for (int axis = 0; axis < 3; ++axis) {
      std::uniform_int_distribution<int64_t> at(box.begin[axis], box.end[axis]);
      region.begin[axis] = at(random);
      region.end[axis] = at(random);
      if (region.begin[axis] > region.end[axis]) std::swap(region.begin[axis], region.end[axis]);
      if (round % 5 == 0) region.begin[axis] = box.begin[axis], region.end[axis] = box.end[axis];
    }
    ASSERT_EQ(ReadRegion(reader, index, region), Expected(all[index], region)) << ToString(region);
  }
}

TEST(Brick, PlanarAndCroppedViewsAreWrittenAndReadLikeDenseOnes) {
  const TempFolder folder;
  const Samples samples("interior", DType::kU16, 3, {{0, 0, 0}, {2, 30, 40}}, 5);
  std::vector<std::byte> planar(samples.bytes.size());
  const Index shape = samples.array.box.shape();
  CopyView(samples.view(), DenseView(planar.data(), DType::kU16, 3, shape, Layout::kPlanar));
  WriteBrick(folder / "dense", {samples});
  BrickWriter writer(folder / "planar", "2", kKey);
  writer.Add(samples.array, DenseView(static_cast<const std::byte*>(planar.data()), DType::kU16, 3,
                                      shape, Layout::kPlanar));
  writer.Finish();
  EXPECT_EQ(ContentOf(folder / "planar"), ContentOf(folder / "dense"));

  const BrickReader reader(folder / "planar", kKey);
  std::vector<std::byte> back(planar.size());
  reader.Read(0, samples.array.box, DenseView(back.data(), DType::kU16, 3, shape, Layout::kPlanar));
  EXPECT_EQ(back, planar);
}

TEST(Brick, ARegionReadsOnlyTheBlocksItTouches) {
  const TempFolder folder;
  const Samples samples("interior", DType::kU8, 1, {{0, 0, 0}, {8, 1024, 1024}}, 6);  // 8 blocks
  WriteBrick(folder / "b", {samples});
  std::string bytes = ContentOf(folder / "b");
  bytes[bytes.size() / 2] ^= 1;  // in the middle: block 4
  MakeFile(folder / "b", bytes);
  const BrickReader reader(folder / "b", kKey);
  int damaged = 0;
  for (int64_t z = 0; z < 8; ++z) {
    const Box plane{{z, 100, 100}, {z + 1, 200, 200}};
    try {
      EXPECT_EQ(ReadRegion(reader, 0, plane), Expected(samples, plane));
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kTransient);
      EXPECT_THAT(error.what(), HasSubstr("interior"));
      ++damaged;
    }
  }
  EXPECT_EQ(damaged, 1);
  ErrorOf(Fault::kTransient, [&] { VerifyBrick(folder / "b", kKey); });
}

class SmallBrick : public ::testing::Test {
 protected:
  SmallBrick() {
    WriteBrick(folder_ / "b", all_);
    bytes_ = ContentOf(folder_ / "b");
  }
  // True if all of the brick reads; then it must be what was written.
  bool Reads(const std::string& bytes) {
    // A new file each time: some file systems flush a file that is cut and written again.
    std::filesystem::remove(folder_ / "x");
    MakeFile(folder_ / "x", bytes);
    try {
      const BrickReader reader(folder_ / "x", kKey);
      EXPECT_EQ(reader.arrays().size(), all_.size());
      for (size_t i = 0; i < reader.arrays().size(); ++i) {
        EXPECT_EQ(ReadRegion(reader, i, all_[i].array.box), all_[i].bytes);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kTransient) << error.what();
      return false;
    }
    return true;
  }
  TempFolder folder_;
  std::vector<Samples> all_ = {{"interior", DType::kU8, 2, {{0, 0, 0}, {2, 3, 4}}, 1},
                               {"seam.0", DType::kF32, 2, {{0, 3, 0}, {2, 4, 4}}, 2}};
  std::string bytes_;
};

TEST_F(SmallBrick, CutAtAnyByteIsNoBrick) {
  ASSERT_TRUE(Reads(bytes_));
  for (size_t size = 0; size < bytes_.size(); ++size) {
    EXPECT_FALSE(Reads(bytes_.substr(0, size))) << size;
  }
}

TEST_F(SmallBrick, WithAnyByteFlippedIsNoBrick) {
  for (size_t at = 0; at < bytes_.size(); ++at) {
    for (const char flip : {'\x01', '\x80', '\xff'}) {
      std::string bytes = bytes_;
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      EXPECT_FALSE(Reads(bytes)) << at;
    }
  }
}

TEST_F(SmallBrick, WithBytesMoreLessOrMovedIsNoBrick) {
  EXPECT_FALSE(Reads(bytes_ + '\0'));
  EXPECT_FALSE(Reads('\0' + bytes_));
  EXPECT_FALSE(Reads(bytes_ + bytes_));
  for (size_t at = 0; at < bytes_.size(); ++at) {
    EXPECT_FALSE(Reads(bytes_.substr(0, at) + bytes_.substr(at + 1))) << at;
  }
  EXPECT_FALSE(Reads(std::string(bytes_.size(), '\0')));
  EXPECT_FALSE(Reads(std::string(bytes_.size(), '\xff')));
}

TEST_F(SmallBrick, OfAnotherUnitIsNotTaken) {
  EXPECT_THAT(ErrorOf(Fault::kTransient,
                      [&] { BrickReader(folder_ / "b", "0123456789abcdef0123456789abcdee"); }),
              HasSubstr("another unit"));
}

TEST_F(SmallBrick, MissingOrNoFileIsTransient) {
  ErrorOf(Fault::kTransient, [&] { BrickReader(folder_ / "gone", kKey); });
  ErrorOf(Fault::kTransient, [&] { BrickReader(folder_.path(), kKey); });
}

TEST_F(SmallBrick, CutWhileOpenIsNoticedOnReading) {
  const BrickReader reader(folder_ / "b", kKey);
  std::filesystem::resize_file(folder_ / "b", 50);
  ErrorOf(Fault::kTransient, [&] { ReadRegion(reader, 0, all_[0].array.box); });
}

TEST_F(SmallBrick, RequestsThatDoNotFitAreFaultsOfOurs) {
  const BrickReader reader(folder_ / "b", kKey);
  ErrorOf(Fault::kInternal, [&] { ReadRegion(reader, 0, {{0, 0, 0}, {2, 3, 5}}); });
  std::vector<std::byte> bytes(64);
  ErrorOf(Fault::kInternal, [&] {
    reader.Read(0, all_[0].array.box,
                DenseView(bytes.data(), DType::kI8, 2, {2, 3, 4}, Layout::kInterleaved));
  });
  ErrorOf(Fault::kInternal, [&] { reader.Read(2, all_[0].array.box, {}); });
  BrickWriter writer(folder_ / "c", "2", kKey);
  ErrorOf(Fault::kInternal, [&] { writer.Add(all_[0].array, all_[1].view()); });
  ErrorOf(Fault::kInternal, [&] { BrickWriter(folder_ / "d", "3", "short"); });
}

TEST(Brick, UnfinishedLeavesNothing) {
  const TempFolder folder;
  const Samples samples("interior", DType::kU8, 1, {{0, 0, 0}, {1, 10, 10}}, 6);
  { BrickWriter(folder / "b", "1", kKey).Add(samples.array, samples.view()); }
  EXPECT_EQ(EntriesOf(folder.path()), 0);
}

TEST(Brick, ManyThreadsReadOneReader) {
  const TempFolder folder;
  const Samples samples("interior", DType::kU8, 1, {{0, 0, 0}, {8, 512, 1024}}, 6);
  WriteBrick(folder / "b", {samples});
  const BrickReader reader(folder / "b", kKey);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      const Box region{{t, t * 10, t * 20}, {t + 4, 500, 1000}};
      if (ReadRegion(reader, 0, region) == Expected(samples, region)) ++right;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

}  // namespace
}  // namespace tilery
