#include <gtest/gtest.h>

#include "io/byte_order.h"
#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"

namespace tilery {
namespace {

// An .npy file by hand.
std::string Npy(int version, const std::string& dict, const std::string& data) {
  std::string file = std::string("\x93NUMPY", 6) + static_cast<char>(version) + '\0';
  std::string length(version == 1 ? 2 : 4, '\0');
  length[0] = static_cast<char>(dict.size());
  length[1] = static_cast<char>(dict.size() >> 8);
  return file + length + dict + data;
}

std::string Dict(const std::string& dtype, bool fortran, const std::string& shape) {
  return "{'descr': '" + dtype + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }\n";
}

// i2 samples of a 5 x 9 x 7 volume (z,y,x), counting from -100.
constexpr Index kShape{5, 9, 7};
int16_t Value(int64_t z, int64_t y, int64_t x) {
  return static_cast<int16_t>((z * 9 + y) * 7 + x - 100);
}

std::string Volume(bool big_endian, bool fortran) {
  std::string data;
  const auto add = [&](int64_t z, int64_t y, int64_t x) {
    char bytes[2];
    Store(bytes, Value(z, y, x), big_endian);
    data.append(bytes, 2);
  };
  if (fortran) {
    for (int64_t x = 0; x < 7; ++x)
      for (int64_t y = 0; y < 9; ++y)
        for (int64_t z = 0; z < 5; ++z) add(z, y, x);
  } else {
    for (int64_t z = 0; z < 5; ++z)
      for (int64_t y = 0; y < 9; ++y)
        for (int64_t x = 0; x < 7; ++x) add(z, y, x);
  }
  return data;
}

class NpyTest : public testing::Test {
 protected:
  Picture Read(const std::string& content) {
    PutFile(folder_ / "v.npy", content);
    return ReadPicture(folder_ / "v.npy");
  }
  std::string Refusal(const std::string& content) {
    return ErrorOf(Fault::kInput, [&] { Read(content); });
  }
  TempFolder folder_;
};

TEST_F(NpyTest, ByteOrderAxisOrderAndVersionGiveTheSameVoxels) {
  for (const int version : {1, 2, 3}) {
    for (const bool big : {false, true}) {
      for (const bool fortran : {false, true}) {
        Picture got = Read(
            Npy(version, Dict(big ? ">i2" : "<i2", fortran, "(5, 9, 7)"), Volume(big, fortran)));
        EXPECT_EQ(got.header.shape, kShape);
        EXPECT_EQ(got.header.dims, 3);
        EXPECT_EQ(got.header.dtype, DType::kI16);
        EXPECT_EQ(got.metadata.fortran_order, fortran);
        for (int64_t z = 0; z < 5; ++z)
          for (int64_t y = 0; y < 9; ++y)
            for (int64_t x = 0; x < 7; ++x) ASSERT_EQ(got.at<int16_t>(0, z, y, x), Value(z, y, x));
      }
    }
  }
}

TEST_F(NpyTest, RegionsOfFortranOrderedVolumesAreRight) {
  PutFile(folder_ / "v.npy", Npy(1, Dict(">i2", true, "(5, 9, 7)"), Volume(true, true)));
  const auto reader = OpenReader(folder_ / "v.npy");
  for (const Box& box :
       {Box{{2, 0, 0}, {3, 9, 7}}, Box{{0, 4, 3}, {5, 6, 4}}, Box{{1, 2, 3}, {4, 8, 7}}}) {
    std::vector<int16_t> samples(static_cast<size_t>(box.voxels()));
    const View view = DenseView(reinterpret_cast<std::byte*>(samples.data()), DType::kI16, 1,
                                box.shape(), Layout::kPlanar);
    reader->Read(box, view);
    size_t i = 0;
    for (int64_t z = box.begin[0]; z < box.end[0]; ++z)
      for (int64_t y = box.begin[1]; y < box.end[1]; ++y)
        for (int64_t x = box.begin[2]; x < box.end[2]; ++x) ASSERT_EQ(samples[i++], Value(z, y, x));
  }
}

TEST_F(NpyTest, RankDecidesBetweenPictureVolumeAndChannels) {
  const std::string data(24, '\1');
  EXPECT_EQ(Read(Npy(1, Dict("|u1", false, "(4, 6)"), data)).header.dims, 2);
  EXPECT_EQ(Read(Npy(1, Dict("|u1", false, "(4, 6)"), data)).header.shape, (Index{1, 4, 6}));
  // A first axis of 3 or 1 is still z.
  EXPECT_EQ(Read(Npy(1, Dict("|u1", false, "(3, 4, 2)"), data)).header.shape, (Index{3, 4, 2}));
  EXPECT_EQ(Read(Npy(1, Dict("|u1", false, "(1, 4, 6)"), data)).header.dims, 3);
  const Header channels = Read(Npy(1, Dict("|u1", false, "(2, 3, 2, 2)"), data)).header;
  EXPECT_EQ(channels.channels, 2);
  EXPECT_EQ(channels.shape, (Index{3, 2, 2}));
  EXPECT_NE(Refusal(Npy(1, Dict("|u1", false, "(24,)"), data)).find("rank 1"), std::string::npos);
  EXPECT_NE(Refusal(Npy(1, Dict("|u1", false, "(1, 1, 2, 3, 4)"), data)).find("rank 5"),
            std::string::npos);
}

TEST_F(NpyTest, BooleansReadAsZeroAndOne) {
  Picture got = Read(Npy(1, Dict("|b1", false, "(1, 3)"), std::string("\0\1\1", 3)));
  EXPECT_EQ(got.header.dtype, DType::kU8);
  EXPECT_EQ(got.at<uint8_t>(0, 0, 0, 2), 1);
}

TEST_F(NpyTest, OtherTypesAreRefusedByNameAndFile) {
  for (const char* dtype : {"|O", "<c8", "<i8", ">u8", "|S4", "<U3", "<M8[ns]", "<f16"}) {
    const std::string message = Refusal(Npy(1, Dict(dtype, false, "(4, 6)"), std::string(24, 'x')));
    EXPECT_NE(message.find(dtype), std::string::npos) << message;
    EXPECT_NE(message.find("v.npy"), std::string::npos) << message;
  }
  const std::string record =
      "{'descr': [('a', '<f4'), ('b', '<i2')], 'fortran_order': False, 'shape': (2, 2), }\n";
  EXPECT_NE(Refusal(Npy(1, record, std::string(24, 'x'))).find("('a','<f4')"), std::string::npos);
}

TEST_F(NpyTest, AByteTooFewOrTooManyIsAnErrorWithBothSizes) {
  const std::string good = Npy(1, Dict("<i2", false, "(5, 9, 7)"), Volume(false, false));
  const std::string promised = std::to_string(good.size());
  for (const std::string& bad : {good.substr(0, good.size() - 1), good + "x"}) {
    const std::string message = Refusal(bad);
    EXPECT_NE(message.find(promised), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(bad.size())), std::string::npos) << message;
  }
}

TEST_F(NpyTest, HeadersThatLieAreErrors) {
  EXPECT_NE(Refusal(Npy(4, Dict("|u1", false, "(1, 1)"), "x")).find("version 4"),
            std::string::npos);
  Refusal(Npy(1, "{'descr': '|u1'}\n", "x"));
  Refusal(Npy(1, "no dictionary at all", "x"));
  Refusal(Npy(1, Dict("|u1", false, "(0, 4)"), ""));
  Refusal(Npy(1, Dict("|u1", false, "(-1, 4)"), "x"));
  Refusal(Npy(1, Dict("<f8", false, "(4294967296, 4294967296)"), "x"));
  Refusal(Npy(1, Dict("<f8", false, "(99999999999999999999, 1)"), "x"));
  Refusal(std::string("\x93NUMPY\2\0\xFF\xFF\xFF\x7F", 12));
}

TEST_F(NpyTest, TheHeaderIsNumPysOwn) {
  WritePicture(folder_ / "v.npy",
               MakePicture({"npy", DType::kF32, 3, AlphaKind::kNone, Access::kRandom, 1, kShape}));
  const std::string content = ContentOf(folder_ / "v.npy");
  EXPECT_EQ(content.size(), 128 + 5 * 9 * 7 * 4u);
  EXPECT_NE(content.find("{'descr': '<f4', 'fortran_order': False, 'shape': (5, 9, 7), }"),
            std::string::npos);
  EXPECT_EQ(content[127], '\n');
}

class RawTest : public NpyTest {};

TEST_F(RawTest, OffsetAndByteOrderAreHeeded) {
  PutFile(folder_ / "v.raw", "header" + Volume(true, false));
  const RawLayout layout{DType::kI16, kShape, 1, true, 6};
  const auto reader = OpenReader(folder_ / "v.raw", layout);
  Picture got = ReadPicture(*reader);
  EXPECT_EQ(got.header.format, "raw");
  EXPECT_EQ(got.header.dims, 3);
  EXPECT_EQ(got.at<int16_t>(0, 0, 0, 0), -100);
  EXPECT_EQ(got.at<int16_t>(0, 4, 8, 6), 214);
}

TEST_F(RawTest, ASizeThatDoesNotFitIsAnErrorWithBothNumbers) {
  for (const size_t size : {629, 631}) {
    PutFile(folder_ / "v.raw", std::string(size, 'x'));
    const std::string message = ErrorOf(Fault::kInput, [&] {
      OpenReader(folder_ / "v.raw", RawLayout{DType::kI16, kShape, 1, false, 0});
    });
    EXPECT_NE(message.find("630"), std::string::npos) << message;
    EXPECT_NE(message.find(std::to_string(size)), std::string::npos) << message;
  }
  ErrorOf(Fault::kUsage, [&] {
    OpenReader(folder_ / "v.raw", RawLayout{DType::kI16, {0, 9, 7}, 1, false, 0});
  });
}

TEST_F(RawTest, MoreThanTwoToThe31VoxelsAreAddressed) {
  const Index shape{2049, 1024, 1024};
  {
    std::ofstream out(folder_ / "v.raw", std::ios::binary);
    for (const int64_t at : {int64_t{1} << 31, Product(shape) - 1}) {
      out.seekp(at);
      out.put('\xC8');
    }
  }
  const auto reader = OpenReader(folder_ / "v.raw", RawLayout{DType::kU8, shape, 1, false, 0});
  const auto voxel = [&](const Index& at) {
    std::byte value{};
    reader->Read({at, {at[0] + 1, at[1] + 1, at[2] + 1}},
                 DenseView(&value, DType::kU8, 1, {1, 1, 1}, Layout::kPlanar));
    return static_cast<int>(value);
  };
  EXPECT_EQ(voxel({2048, 0, 0}), 200);
  EXPECT_EQ(voxel({2048, 1023, 1023}), 200);
  EXPECT_EQ(voxel({2048, 0, 1}), 0);
  EXPECT_EQ(voxel({2047, 1023, 1023}), 0);
}

}  // namespace
}  // namespace tilery
