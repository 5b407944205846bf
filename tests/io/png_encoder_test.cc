// Image data of PNGs: what libpng reads back, chunk by chunk and thread by thread.
#include "io/png_encoder.h"

#include <gtest/gtest.h>
#include <png.h>
#include <sys/resource.h>

#include <csignal>
#include <optional>
#include <thread>

#include "io/png_filter.h"
#include "tests/io/expect_error.h"
#include "tests/io/format_helpers.h"
#include "tests/io/png_builder.h"

namespace tilery {
namespace {

constexpr int64_t kBlockBytes = 256 << 10;
constexpr size_t kDataChunk = 256 << 10;

Header HeaderOf(DType dtype, int32_t channels, int64_t height, int64_t width) {
  const bool alpha = channels % 2 == 0;
  return {"png",
          dtype,
          2,
          alpha ? AlphaKind::kStraight : AlphaKind::kNone,
          Access::kRandom,
          channels,
          {1, height, width}};
}

// Samples with edges, gradients and noise, so that coded, run and stored blocks all occur.
Picture Mixed(const Header& header) {
  Picture picture = MakePicture(header, static_cast<uint32_t>(Product(header.shape)));
  const size_t size = picture.samples.size();
  for (size_t i = 0; i < size; ++i) {
    if (i / 5000 % 3 == 0) picture.samples[i] = static_cast<std::byte>(i / 9000);
    if (i / 5000 % 3 == 1) picture.samples[i] &= std::byte{7};
  }
  return picture;
}

// All samples in host order, by libpng alone.
std::vector<std::byte> ReadByLibpng(const std::string& content) {
  struct Source {
    const std::string* content;
    size_t at = 0;
  } source{&content};
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  std::vector<std::byte> samples;
  std::vector<png_bytep> rows;
  if (setjmp(png_jmpbuf(png)) != 0) {
    ADD_FAILURE() << "libpng refuses the file";
    png_destroy_read_struct(&png, &info, nullptr);
    return {};
  }
  png_set_read_fn(png, &source, [](png_structp p, png_bytep out, size_t bytes) {
    auto* from = static_cast<Source*>(png_get_io_ptr(p));
    if (bytes > from->content->size() - from->at) png_error(p, "too short");
    std::memcpy(out, from->content->data() + from->at, bytes);
    from->at += bytes;
  });
  png_read_info(png, info);
  png_set_swap(png);
  png_read_update_info(png, info);
  const size_t row_bytes = png_get_rowbytes(png, info);
  samples.resize(row_bytes * png_get_image_height(png, info));
  for (size_t y = 0; y < png_get_image_height(png, info); ++y) {
    rows.push_back(reinterpret_cast<png_bytep>(samples.data() + y * row_bytes));
  }
  png_read_image(png, rows.data());
  png_read_end(png, info);
  png_destroy_read_struct(&png, &info, nullptr);
  EXPECT_EQ(source.at, content.size());
  return samples;
}

class PngEncoderTest : public testing::Test {
 protected:
  std::string Written(const Picture& picture, int64_t rows, int threads) {
    WritePicture(folder_ / "a.png", picture, rows, threads);
    return ReadSmallFile(folder_ / "a.png", size_t{1} << 30);
  }
  TempFolder folder_;
};

TEST_F(PngEncoderTest, LibpngReadsBackEveryTypeAtHeightsAroundTheBlocks) {
  for (const DType dtype : {DType::kU8, DType::kU16}) {
    for (const int32_t channels : {1, 2, 3, 4}) {
      for (const int64_t width : {1, 2, 17, 3001, 70000}) {
        const int64_t row_bytes = width * channels * static_cast<int64_t>(DTypeSize(dtype));
        const int64_t block_rows = std::max<int64_t>(1, kBlockBytes / row_bytes);
        std::vector<int64_t> heights = {1, 2};
        for (const int64_t d : {-1, 0, 1}) {
          if (width >= 17) heights.push_back(3 * block_rows + d);
          if (width == 1 && channels == 1) heights.push_back(block_rows + d);
        }
        for (const int64_t height : heights) {
          if (height < 1) continue;
          const Picture picture = Mixed(HeaderOf(dtype, channels, height, width));
          ASSERT_TRUE(ReadByLibpng(Written(picture, 0, 3)) == picture.samples)
              << DTypeName(dtype) << " x " << channels << ", " << width << " x " << height;
        }
      }
    }
  }
}

TEST_F(PngEncoderTest, BytesAreTheSameForAnyThreadsAndBandsAroundTheBlocks) {
  const int64_t width = 1000, block_rows = kBlockBytes / (3 * width);
  for (const int64_t d : {-1, 0, 1}) {
    const Picture picture = Mixed(HeaderOf(DType::kU8, 3, 5 * block_rows + d, width));
    const std::string once = Written(picture, 0, 0);
    for (const int threads : {0, 1, 2, 8}) {
      for (const int64_t rows : {int64_t{1}, block_rows - 1, block_rows, block_rows + 1}) {
        ASSERT_TRUE(Written(picture, rows, threads) == once) << rows << " rows, " << threads;
      }
    }
  }
}

// Above 16 MiB a thread of its own writes.
TEST_F(PngEncoderTest, LargePicturesAreTheSameForAnyThreads) {
  const Picture picture = Mixed(HeaderOf(DType::kU16, 3, 3100, 1000));
  const std::string once = Written(picture, 0, 0);
  for (const int threads : {1, 3}) {
    ASSERT_TRUE(Written(picture, 700, threads) == once) << threads;
  }
}

TEST_F(PngEncoderTest, WritersThatShareAPoolDoNotMixTheirBytes) {
  constexpr int kWriters = 4;
  ThreadPool pool(2);
  std::vector<Picture> pictures;
  std::vector<std::string> alone;
  for (int i = 0; i < kWriters; ++i) {
    pictures.push_back(Mixed(HeaderOf(DType::kU8, 1 + i, 900 + i, 700)));
    alone.push_back(Written(pictures.back(), 0, 0));
  }
  {
    std::vector<std::jthread> writers;
    for (int i = 0; i < kWriters; ++i) {
      writers.emplace_back([&, i] {
        const std::string name = "shared" + std::to_string(i);
        OutputFile file(folder_ / (name + ".png"), name);
        Picture& picture = pictures[static_cast<size_t>(i)];
        const auto writer = CreateWriter(file, {picture.header, picture.metadata, &pool});
        WriteBands(*writer, picture, 50);
        file.Publish(Durability::kRename);
      });
    }
  }
  for (int i = 0; i < kWriters; ++i) {
    const std::string name = "shared" + std::to_string(i) + ".png";
    EXPECT_TRUE(ReadSmallFile(folder_ / name) == alone[static_cast<size_t>(i)]) << name;
  }
}

TEST_F(PngEncoderTest, DataChunksAreOfOneSizeButTheLast) {
  const std::string content = Written(Mixed(HeaderOf(DType::kU16, 3, 700, 900)), 0, 2);
  std::vector<size_t> sizes;
  for (size_t at = 8; at < content.size();) {
    const size_t size = LoadBig<uint32_t>(content.data() + at);
    if (content.substr(at + 4, 4) == "IDAT") sizes.push_back(size);
    at += size + 12;
  }
  ASSERT_GT(sizes.size(), 3u);
  EXPECT_LE(sizes.back(), kDataChunk);
  sizes.pop_back();
  EXPECT_EQ(sizes, std::vector<size_t>(sizes.size(), kDataChunk));
}

TEST_F(PngEncoderTest, DataThatEndWithAChunkAreFollowedByNoEmptyOne) {
  // One row of noise: its filter's number and samples in 8 stored blocks of 5 bytes more, between
  // the stream's head (2), the empty block (5), the last one (2) and the checksum (4).
  const int64_t width = int64_t{kDataChunk} - 1 - 8 * 5 - 13;
  const std::string content = Written(MakePicture(HeaderOf(DType::kU8, 1, 1, width)), 0, 2);
  const size_t data = content.find("IDAT");
  EXPECT_EQ(LoadBig<uint32_t>(content.data() + data - 4), kDataChunk);
  EXPECT_EQ(content.substr(data + 4 + kDataChunk + 4 + 4, 4), "IEND");
}

TEST_F(PngEncoderTest, ADiskThatFillsUpIsAnErrorWithTheNameWhileThreadsEncode) {
  const Picture picture = MakePicture(HeaderOf(DType::kU8, 3, 6000, 1000));
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  for (const rlim_t most : {rlim_t{100}, rlim_t{1} << 20, rlim_t{15} << 20}) {
    const rlimit limit{most, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    const std::string message =
        ErrorOf(Fault::kOutput, [&] { WritePicture(folder_ / "full.png", picture, 100, 4); });
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_NE(message.find("full.png"), std::string::npos) << message;
    EXPECT_EQ(EntriesOf(folder_.path()), 0);
  }
  std::signal(SIGXFSZ, old_handler);
}

TEST_F(PngEncoderTest, AWriterThatIsGivenUpLeavesThePoolUsable) {
  ThreadPool pool(2);
  Picture picture = MakePicture(HeaderOf(DType::kU8, 3, 6000, 1000));
  for (int i = 0; i < 5; ++i) {
    OutputFile file(folder_ / "given-up.png", "test");
    const auto writer = CreateWriter(file, {picture.header, {}, &pool});
    const Box band{{0, 0, 0}, {1, 1000 * (i + 1), 1000}};
    writer->Write(band, picture.view().Crop(band));
  }
  EXPECT_EQ(EntriesOf(folder_.path()), 0);
  OutputFile file(folder_ / "a.png", "test");
  const auto writer = CreateWriter(file, {picture.header, {}, &pool});
  WriteBands(*writer, picture, 0);
  file.Publish(Durability::kRename);
  EXPECT_TRUE(ReadPicture(folder_ / "a.png").samples == picture.samples);
}

TEST(PngFilterTest, PaethIsThatOfTheSpecification) {
  std::minstd_rand random(2);
  for (const size_t pixel : {1, 2, 3, 4, 6, 8}) {
    for (const size_t pixels : {1, 2, 3, 40, 1000}) {
      const size_t size = pixel * pixels;
      std::vector<std::byte> row(size), above(size), out(size);
      // Few values, so that ties occur; and the ends of the range.
      for (auto* line : {&row, &above}) {
        for (std::byte& byte : *line) {
          static constexpr int kValues[] = {0, 1, 2, 127, 128, 254, 255};
          byte = static_cast<std::byte>(pixels == 40 ? (random() >> 8 & 255)
                                                     : kValues[(random() >> 8) % 7]);
        }
      }
      FilterPaeth(row, above, pixel, out);
      for (size_t i = 0; i < size; ++i) {
        const int a = i < pixel ? 0 : static_cast<int>(row[i - pixel]);
        const int b = static_cast<int>(above[i]);
        const int c = i < pixel ? 0 : static_cast<int>(above[i - pixel]);
        const int p = a + b - c;
        const int pa = std::abs(p - a), pb = std::abs(p - b), pc = std::abs(p - c);
        const int predicted = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
        ASSERT_EQ(static_cast<int>(out[i]), (static_cast<int>(row[i]) - predicted) & 255);
      }
    }
  }
}

}  // namespace
}  // namespace tilery
