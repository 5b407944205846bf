#include <gtest/gtest.h>

#include <atomic>
#include <cstring>

#include "scheduler/inputs.h"
#include "tests/io/png_builder.h"
#include "tests/io/temp_folder.h"

namespace tilery {
namespace {

// A .npy file of u8 with the given shape, written out by hand.
std::string Npy(int z, int y, int x) {
  std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (" + std::to_string(z) +
                       ", " + std::to_string(y) + ", " + std::to_string(x) + "), }";
  header += std::string(63 - (10 + header.size()) % 64, ' ') + "\n";
  std::string file = std::string("\x93NUMPY\x01\x00", 8);
  file += static_cast<char>(header.size() & 255);
  file += static_cast<char>(header.size() >> 8);
  return file + header + std::string(static_cast<size_t>(z) * y * x, 'v');
}

class ReadHeadersTest : public testing::Test {
 protected:
  std::string Make(const std::string& name, const std::string& content) {
    MakeFile(folder_ / name, content);
    return (folder_ / name).string();
  }
  TempFolder folder_;
};

TEST_F(ReadHeadersTest, KeepsTheOrderWithAnyNumberOfThreads) {
  std::vector<std::string> paths;
  for (int k = 0; k < 100; ++k)
    paths.push_back(Make("v" + std::to_string(k) + ".npy", Npy(2, 3, k + 1)));
  for (const int threads : {1, 7}) {
    const std::vector<InputHeader> headers = ReadHeaders(paths, {}, "npy", threads, {});
    ASSERT_EQ(headers.size(), paths.size());
    for (int k = 0; k < 100; ++k) {
      const InputHeader& input = headers[static_cast<size_t>(k)];
      EXPECT_EQ(input.error, "");
      EXPECT_EQ(input.path, paths[static_cast<size_t>(k)]);
      EXPECT_EQ(input.header.shape, (Index{2, 3, k + 1}));
      EXPECT_EQ(input.stamp, StampOf(input.path));
      EXPECT_EQ(input.identity, input.stamp);
    }
  }
}

TEST_F(ReadHeadersTest, ABadFileFailsAloneAndByName) {
  const std::string good = Make("good.npy", Npy(1, 2, 3));
  const std::string empty = Make("empty.npy", "");
  const std::string text = Make("text.npy", "not an image");
  const std::string gone = (folder_ / "gone.npy").string();
  const auto headers = ReadHeaders({good, empty, text, gone}, {}, "npy", 2, {});
  EXPECT_EQ(headers[0].error, "");
  for (size_t k = 1; k < 4; ++k) {
    EXPECT_NE(headers[k].error.find(headers[k].path), std::string::npos) << headers[k].error;
  }
}

// A PNG of one pixel, with an animation of so many frames announced where `frames` is not 0.
std::string Png(uint32_t frames) {
  PngSpec spec{1, 1, 8, 0};
  if (frames > 0) spec.chunks = {{"acTL", BigEndian32(frames) + BigEndian32(0)}};
  return PngFile(spec, std::string("\0\x07", 2));
}

TEST_F(ReadHeadersTest, WhatNoOutputGetsIsALossInTheFormatOfTheInputToo) {
  const auto headers =
      ReadHeaders({Make("still.png", Png(0)), Make("moving.png", Png(5))}, {}, "png", 1, {});
  EXPECT_TRUE(headers[0].losses.empty());
  ASSERT_EQ(headers[1].losses.size(), 1u);
  EXPECT_NE(headers[1].losses[0].find("5 frames"), std::string::npos) << headers[1].losses[0];
}

TEST_F(ReadHeadersTest, AKnownHeaderSparesTheReading) {
  const std::string path = Make("a.npy", "whatever");
  Header known;
  known.format = "npy";
  known.shape = {4, 5, 6};
  std::atomic<int> asked{0};
  const auto cache = [&](const std::string& name, const FileStamp& stamp) -> const Header* {
    EXPECT_EQ(name, path);
    EXPECT_EQ(stamp, StampOf(path));
    ++asked;
    return &known;
  };
  const auto headers = ReadHeaders({path}, {}, "npy", 1, cache);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(headers[0].error, "");
  EXPECT_EQ(headers[0].header.shape, (Index{4, 5, 6}));
}

TEST_F(ReadHeadersTest, ARawFileIsWhatTheJobSaysTodayAndNotWhatIsKnown) {
  const std::string path = Make("v.raw", std::string(2 * 3 * 4, 'x'));
  Header known;
  known.format = "raw";
  known.shape = {1, 2, 12};
  RawLayout raw;
  raw.dtype = DType::kU8;
  raw.shape = {2, 3, 4};
  const auto cache = [&](const std::string&, const FileStamp&) -> const Header* { return &known; };
  for (const char* output : {"", "raw", "npy"}) {
    EXPECT_EQ(ReadHeaders({path}, raw, output, 1, cache)[0].header.shape, (Index{2, 3, 4}))
        << output;
  }
}

TEST_F(ReadHeadersTest, AKnownHeaderDoesNotHideWhatANameOfAnotherFormatLoses) {
  const std::string path = Make("a.png", Npy(1, 2, 3));  // no picture, whatever it is called
  Header known;
  known.format = "npy";
  known.shape = {4, 5, 6};
  const auto cache = [&](const std::string&, const FileStamp&) -> const Header* { return &known; };
  const InputHeader input = ReadHeaders({path}, {}, "", 1, cache)[0];
  EXPECT_EQ(input.error, "");
  EXPECT_EQ(input.header.shape, (Index{1, 2, 3}));
}

TEST_F(ReadHeadersTest, RawFilesTakeTheLayoutOfTheJob) {
  const std::string path = Make("v.raw", std::string(2 * 3 * 4 * 2, 'x'));
  RawLayout raw;
  raw.dtype = DType::kU16;
  raw.shape = {2, 3, 4};
  const auto headers = ReadHeaders({path}, raw, "npy", 1, {});
  EXPECT_EQ(headers[0].error, "");
  EXPECT_EQ(headers[0].header.dtype, DType::kU16);
  EXPECT_EQ(headers[0].header.shape, (Index{2, 3, 4}));
}

}  // namespace
}  // namespace tilery
