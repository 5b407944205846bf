#include "scheduler/bench_wire.h"

#include <gtest/gtest.h>

#include <cstring>

namespace tilery {
namespace {

TEST(BenchWire, PercentilesAreNearestRanks) {
  std::vector<double> values;
  for (int k = 200; k >= 1; --k) values.push_back(k);
  const Percentiles many = PercentilesOf(values);
  EXPECT_EQ(many.p50, 100);
  EXPECT_EQ(many.p95, 190);
  EXPECT_EQ(many.p99, 198);
  const Percentiles three = PercentilesOf({3, 1, 2});
  EXPECT_EQ(three.p50, 2);
  EXPECT_EQ(three.p95, 3);
  EXPECT_EQ(three.p99, 3);
  EXPECT_EQ(PercentilesOf({7}).p50, 7);
  EXPECT_EQ(PercentilesOf({}).p99, 0);
}

TEST(BenchWire, FiguresAreThoseOfTheBestMeasurement) {
  StepFigures figures;
  figures.Add(100, 2, {0.5, 0.5});
  figures.Add(90, 1, {0.25});
  figures.Add(10, 1, {1});
  EXPECT_EQ(figures.tiles_per_s, 90);
  EXPECT_EQ(figures.tiles, 90);
  EXPECT_EQ(figures.seconds, 1);
  EXPECT_EQ(figures.rates, (std::vector<double>{50, 90, 10}));
  const Json json = ToJson(figures);
  EXPECT_EQ(json.at("batches"), 4);
  EXPECT_EQ(json.at("batch_s").at("p50"), 0.5);
  EXPECT_EQ(json.at("batch_s").at("p99"), 1);
}

TEST(BenchWire, ARequestComesBackAsItWas) {
  BenchRequest request;
  request.context.model = "/m.pt";
  request.context.batch = 7;
  request.context.layout = "nhwc";
  request.context.package = "/m.pt2";
  request.device = "cuda:3";
  request.item.format = "npy";
  request.item.dtype = DType::kI16;
  request.item.dims = 3;
  request.item.channels = 4;
  request.item.shape = {2, 3, 5};
  request.sizing = {32, 1 << 20, 4, 99};
  request.engine = false;
  request.seconds = 0.5;
  request.repeats = 3;
  const BenchRequest back = BenchRequestFromJson(Json::parse(ToJson(request).dump()));
  EXPECT_EQ(back.context.model, "/m.pt");
  EXPECT_EQ(back.context.batch, 7);
  EXPECT_EQ(back.context.layout, "nhwc");
  EXPECT_EQ(back.context.package, "/m.pt2");
  EXPECT_EQ(back.device, "cuda:3");
  EXPECT_EQ(back.item.dtype, DType::kI16);
  EXPECT_EQ(back.item.shape, (Index{2, 3, 5}));
  EXPECT_EQ(back.item.channels, 4);
  EXPECT_EQ(back.sizing, request.sizing);
  EXPECT_TRUE(back.forward);
  EXPECT_FALSE(back.engine);
  EXPECT_EQ(back.seconds, 0.5);
  EXPECT_EQ(back.repeats, 3);
}

template <typename T>
void ExpectSamples(DType type, double low, double high, double least, double most) {
  Header header;
  header.dtype = type;
  header.channels = 3;
  header.shape = {2, 40, 50};
  std::vector<T> samples(2 * 40 * 50 * 3);
  FillBenchSamples(header, low, high, reinterpret_cast<std::byte*>(samples.data()));
  bool varies = false;
  for (const T sample : samples) {
    EXPECT_GE(sample, least);
    EXPECT_LE(sample, most);
    varies = varies || sample != samples[0];
  }
  EXPECT_TRUE(varies);
  std::vector<T> again(samples.size());
  FillBenchSamples(header, low, high, reinterpret_cast<std::byte*>(again.data()));
  EXPECT_EQ(std::memcmp(samples.data(), again.data(), samples.size() * sizeof(T)), 0);
}

TEST(BenchWire, SamplesLieWhereThoseOfPicturesDo) {
  ExpectSamples<uint8_t>(DType::kU8, 0, 1, 25, 153);
  ExpectSamples<int16_t>(DType::kI16, 0, 1, 3276, 19661);
  ExpectSamples<uint16_t>(DType::kU16, -1, 1, 6553, 39321);
  ExpectSamples<float>(DType::kF32, -1, 1, -0.801, 0.201);
  ExpectSamples<double>(DType::kF64, 0, 10, 0.999, 6.001);
}

}  // namespace
}  // namespace tilery
