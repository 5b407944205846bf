#include "io/run_deflate.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace tilery {
namespace {

using Bytes = std::vector<std::byte>;

Bytes Deflated(const Bytes& data) {
  Bytes out;
  RunDeflater().Deflate(data, &out);
  return out;
}

// As one zlib stream, from pieces of any size.
Bytes Stream(const std::vector<Bytes>& pieces) {
  Bytes stream(kZlibHead.begin(), kZlibHead.end());
  uLong adler = 1;
  for (const Bytes& piece : pieces) {
    const Bytes packed = Deflated(piece);
    stream.insert(stream.end(), packed.begin(), packed.end());
    adler = adler32(adler, reinterpret_cast<const Bytef*>(piece.data()),
                    static_cast<uInt>(piece.size()));
  }
  stream.insert(stream.end(), kLastBlock.begin(), kLastBlock.end());
  for (int shift = 24; shift >= 0; shift -= 8) {
    stream.push_back(static_cast<std::byte>(adler >> shift));
  }
  return stream;
}

// Fails unless the stream is whole and nothing follows.
Bytes Inflated(const Bytes& stream, size_t size) {
  Bytes out(size + 1);
  z_stream z{};
  EXPECT_EQ(inflateInit(&z), Z_OK);
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(stream.data()));
  z.avail_in = static_cast<uInt>(stream.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&z, Z_FINISH), Z_STREAM_END) << (z.msg == nullptr ? "" : z.msg);
  EXPECT_EQ(z.avail_in, 0u);
  out.resize(z.total_out);
  inflateEnd(&z);
  return out;
}

void ExpectSame(const Bytes& data) {
  const Bytes got = Inflated(Stream({data}), data.size());
  ASSERT_TRUE(got == data) << data.size() << " bytes";
}

// `values` different bytes, a new one `change` times in 256.
Bytes Random(size_t size, uint32_t values, uint32_t change, uint32_t seed) {
  std::minstd_rand random(seed);
  Bytes data(size);
  std::byte value{0};
  for (std::byte& byte : data) {
    if ((random() >> 8 & 255) < change) value = static_cast<std::byte>((random() >> 8) % values);
    byte = value;
  }
  return data;
}

size_t SizeByZlib(const Bytes& data) {
  z_stream z{};
  EXPECT_EQ(deflateInit2(&z, 1, Z_DEFLATED, 15, 8, Z_RLE), Z_OK);
  Bytes out(deflateBound(&z, data.size()));
  z.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(data.data()));
  z.avail_in = static_cast<uInt>(data.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&z, Z_FINISH), Z_STREAM_END);
  const size_t size = z.total_out;
  deflateEnd(&z);
  return size;
}

TEST(RunDeflateTest, EverySmallSizeComesBack) {
  for (size_t size = 0; size < 700; ++size) {
    for (const uint32_t values : {1u, 2u, 256u}) {
      ExpectSame(Random(size, values, 100, static_cast<uint32_t>(size)));
    }
  }
}

TEST(RunDeflateTest, SizesAroundItsBlocksComeBack) {
  for (const size_t border : {32768, 65535, 65536, 98304, 131070}) {
    for (size_t size = border - 4; size <= border + 4; ++size) {
      ExpectSame(Random(size, 256, 256, 5));  // stored
      ExpectSame(Random(size, 30, 256, 6));   // coded, hardly a run
      ExpectSame(Random(size, 30, 60, 7));    // with runs
    }
  }
}

TEST(RunDeflateTest, RunsOfEveryLengthComeBackFromEveryPlace) {
  for (size_t before = 0; before < 10; ++before) {
    for (size_t run = 0; run < 540; ++run) {
      Bytes data = Random(before, 200, 256, 9);
      data.insert(data.end(), run, std::byte{77});
      data.push_back(std::byte{78});
      ExpectSame(data);
    }
  }
}

TEST(RunDeflateTest, OneByteForLongTakesNextToNothing) {
  const Bytes data(3000000);
  const Bytes packed = Deflated(data);
  EXPECT_LE(packed.size(), 3000000u / 258 / 4 + 100);  // two bits for each 258
  ExpectSame(data);
}

TEST(RunDeflateTest, NoiseGrowsByTheFramesOfStoredBlocksOnly) {
  const Bytes data = Random(1000000, 256, 256, 4);
  EXPECT_LE(Deflated(data).size(), data.size() + (data.size() / 32768 + 2) * 6);
}

TEST(RunDeflateTest, CountsThatWouldMakeCodesTooLongComeBack) {
  // Byte k stands Fibonacci(k) times, which would give codes of up to 20 bits; spread evenly, so
  // that there are no runs.
  Bytes sorted;
  size_t count = 1, next = 1;
  for (int k = 0; k < 21; ++k) {
    sorted.insert(sorted.end(), count, static_cast<std::byte>(k));
    std::swap(count, next);
    next += count;
  }
  ASSERT_EQ(sorted.size(), 28656u);
  constexpr size_t kStep = 17713;  // without a common divisor, near the golden ratio
  ASSERT_EQ(std::gcd(kStep, sorted.size()), 1u);
  Bytes data(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) data[i * kStep % data.size()] = sorted[i];
  ExpectSame(data);
  EXPECT_LT(Deflated(data).size(), data.size() * 2 / 5);
}

TEST(RunDeflateTest, PiecesInARowAreOneStream) {
  std::vector<Bytes> pieces;
  Bytes all;
  for (uint32_t i = 0; i < 40; ++i) {
    pieces.push_back(Random(i * 977 % 5000, 1 + i * 7 % 250, i % 2 == 0 ? 256 : 30, i));
    all.insert(all.end(), pieces.back().begin(), pieces.back().end());
  }
  EXPECT_TRUE(Inflated(Stream(pieces), all.size()) == all);
}

TEST(RunDeflateTest, IsAsSmallAsZlibWithTheSameMatches) {
  for (const uint32_t change : {256u, 128u, 20u}) {
    for (const uint32_t values : {12u, 60u, 200u}) {
      const Bytes data = Random(400000, values, change, change + values);
      EXPECT_LE(Stream({data}).size(), SizeByZlib(data) * 1005 / 1000 + 16) << values << change;
    }
  }
}

TEST(RunDeflateTest, TheSameObjectGivesTheSameBytesAgain) {
  const Bytes first = Random(100000, 50, 200, 1), second = Random(70000, 256, 256, 2);
  RunDeflater deflater;
  Bytes out;
  deflater.Deflate(second, &out);
  deflater.Deflate(first, &out);
  EXPECT_TRUE(out == Deflated(first));
}

}  // namespace
}  // namespace tilery
