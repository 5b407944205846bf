#include "scheduler/bench_wire.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/error.h"

namespace tilery {
namespace {

// Round numbers of the value's own type; small enough for a table to hold one for each of 4096
// steps of brightness.
template <typename Store>
std::vector<std::byte> Tabulate(int64_t size, const Store& store) {
  std::vector<std::byte> table(static_cast<size_t>(4096 * size));
  for (int64_t k = 0; k < 4096; ++k) {
    store(0.1 + 0.5 * static_cast<double>(k) / 4095, table.data() + k * size);
  }
  return table;
}

template <typename T>
void Put(double value, std::byte* to) {
  const T stored = static_cast<T>(value);
  std::memcpy(to, &stored, sizeof stored);
}

void Store(DType type, double low, double high, double share, std::byte* to) {
  const double real = low + share * (high - low);
  const double whole = IsInteger(type) ? std::floor(share * HighestOf(type)) : 0;
  switch (type) {
    case DType::kU8:
      return Put<uint8_t>(whole, to);
    case DType::kI8:
      return Put<int8_t>(whole, to);
    case DType::kU16:
      return Put<uint16_t>(whole, to);
    case DType::kI16:
      return Put<int16_t>(whole, to);
    case DType::kU32:
      return Put<uint32_t>(whole, to);
    case DType::kI32:
      return Put<int32_t>(whole, to);
    case DType::kF32:
      return Put<float>(real, to);
    case DType::kF64:
      return Put<double>(real, to);
    case DType::kF16:
      return Put<uint16_t>(FloatToHalf(static_cast<float>(real)), to);
  }
}

}  // namespace

Percentiles PercentilesOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](size_t percent) {
    const size_t rank = (percent * values.size() + 99) / 100;
    return values[std::max<size_t>(rank, 1) - 1];
  };
  return {at(50), at(95), at(99)};
}

void StepFigures::Add(int64_t tiles_now, double seconds_now, const std::vector<double>& batches,
                      const std::map<std::string, double>& idle) {
  const double rate = seconds_now > 0 ? static_cast<double>(tiles_now) / seconds_now : 0;
  rates.push_back(rate);
  batch_s.insert(batch_s.end(), batches.begin(), batches.end());
  if (rate <= tiles_per_s) return;
  tiles_per_s = rate;
  tiles = tiles_now;
  seconds = seconds_now;
  idle_s = idle;
}

Json ToJson(const StepFigures& figures) {
  const Percentiles p = PercentilesOf(figures.batch_s);
  return {{"tiles_per_s", figures.tiles_per_s},
          {"tiles", figures.tiles},
          {"seconds", figures.seconds},
          {"rates", figures.rates},
          {"batches", figures.batch_s.size()},
          {"batch_s", {{"p50", p.p50}, {"p95", p.p95}, {"p99", p.p99}}},
          {"idle_s", figures.idle_s}};
}

Json ToJson(const BenchRequest& request) {
  UnitWork work;  // has forms for header and sizing
  work.header = request.item;
  work.sizing = request.sizing;
  return {{"context", ToJson(request.context)},
          {"device", request.device},
          {"work", ToJson(work)},
          {"forward", request.forward},
          {"engine", request.engine},
          {"seconds", request.seconds},
          {"repeats", request.repeats}};
}

BenchRequest BenchRequestFromJson(const Json& json) {
  BenchRequest request;
  try {
    request.context = ContextFromJson(json.at("context"));
    const UnitWork work = UnitWorkFromJson(json.at("work"));
    request.item = work.header;
    request.sizing = work.sizing;
    json.at("device").get_to(request.device);
    json.at("forward").get_to(request.forward);
    json.at("engine").get_to(request.engine);
    json.at("seconds").get_to(request.seconds);
    json.at("repeats").get_to(request.repeats);
  } catch (const Json::exception& e) {
    throw Error(Fault::kInternal,
                std::string("a request to measure is not understood: ") + e.what());
  }
  return request;
}

void FillBenchSamples(const Header& header, double low, double high, std::byte* out) {
  const auto size = static_cast<int64_t>(DTypeSize(header.dtype));
  const auto table = Tabulate(
      size, [&](double share, std::byte* to) { Store(header.dtype, low, high, share, to); });
  const auto wave = [](double n, double period) { return std::lround(900 * std::sin(n / period)); };
  uint32_t noise = 1;
  std::vector<int64_t> along_x(static_cast<size_t>(header.shape[2]));
  for (size_t x = 0; x < along_x.size(); ++x) along_x[x] = wave(static_cast<double>(x), 9);
  for (int64_t z = 0; z < header.shape[0]; ++z) {
    for (int64_t y = 0; y < header.shape[1]; ++y) {
      const int64_t base =
          2048 - 128 + wave(static_cast<double>(y), 14) / 2 + wave(static_cast<double>(z), 20) / 2;
      for (int64_t along : along_x) {
        for (int32_t c = 0; c < header.channels; ++c, out += size) {
          noise = noise * 1664525u + 1013904223u;
          const int64_t value = base + along + 40 * c + (noise >> 24);
          std::memcpy(out, table.data() + (value & 4095) * size, static_cast<size_t>(size));
        }
      }
    }
  }
}

}  // namespace tilery
