// What benches of the engine share: options, costs, and a job in memory.
#pragma once

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "pipeline/engine.h"

namespace tilery {

struct Config {
  std::string model, dtype = "u8", scale = "1", precision = "fp32", layout = "nchw";
  int dims = 2, lanes = 2, rounds = 5;
  int64_t tile = 256, overlap = 32, batch = 8, batches = 4;
  int32_t in = 3, out = 3;

  template <typename App>  // CLI::App
  void AddTo(App& app) {
    app.add_option("model", model, "TorchScript file")->required();
    app.add_option("--dims", dims);
    app.add_option("--tile", tile);
    app.add_option("--overlap", overlap);
    app.add_option("--scale", scale);
    app.add_option("--in", in);
    app.add_option("--out", out);
    app.add_option("--batch", batch);
    app.add_option("--batches", batches, "per lane and round");
    app.add_option("--lanes", lanes);
    app.add_option("--rounds", rounds);
    app.add_option("--dtype", dtype, "of stored samples, in and out");
    app.add_option("--precision", precision, "GPUs: fp32, tf32, fp16, bf16");
    app.add_option("--layout", layout, "GPUs: nchw, nhwc");
  }
  int64_t tiles() const { return batch * batches * lanes; }
};

struct Cost {
  double wall = 0, cpu = 0;  // seconds per tile
};

inline double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <typename Body>
Cost Measure(int64_t tiles, const Body& body) {
  const double cpu = CpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
  return {wall.count() / static_cast<double>(tiles),
          (CpuSeconds() - cpu) / static_cast<double>(tiles)};
}

inline double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// An engine and a row of full tiles in host memory that it runs again and again.
class InMemory {
 public:
  using Make = std::function<std::unique_ptr<Engine>(const EngineOptions&)>;
  InMemory(const Config& config, const Make& make) : config_(config) {
    Tiling tiling;
    for (int a = 3 - config.dims; a < 3; ++a) {
      tiling.tile[a] = config.tile;
      tiling.overlap[a] = config.overlap;
      tiling.scale[a] = Rational::Parse(config.scale);
      shape_[a] = config.tile;
    }
    // A row of tiles: all of them full, each with neighbours.
    shape_[2] += (config.tiles() - 1) * (config.tile - config.overlap);
    transfer_.in_dtype = transfer_.out_dtype = DTypeFromName(config.dtype);
    transfer_.raw_hi = IsInteger(transfer_.in_dtype) ? HighestOf(transfer_.in_dtype) : 1;
    transfer_.model_in = config.in;
    transfer_.model_out = transfer_.accumulators = transfer_.out_channels = config.out;
    Pass pass;
    for (int32_t c = 0; c < config.in; ++c) pass.in.push_back(c);
    for (int32_t c = 0; c < config.out; ++c) pass.out.push_back(c);
    pass.out_count = config.out;
    transfer_.passes = {pass};
    UnitSizing sizing;
    sizing.tiles = config.tiles();
    sizing.accumulator_bytes = int64_t{4} << 30;
    sizing.channels = config.out;
    geometry_ = std::make_shared<const ItemGeometry>(shape_, tiling, sizing);
    samples_.resize(Product(shape_) * config.in * DTypeSize(transfer_.in_dtype));
    std::minstd_rand random(1);
    for (size_t i = 0; i < samples_.size(); ++i) {
      samples_[i] = static_cast<std::byte>(IsInteger(transfer_.in_dtype) ? random() : 0);
    }

    EngineOptions options;
    options.model = config.model;
    options.lanes = config.lanes;
    options.dims = config.dims;
    options.channels_in = config.in;
    options.channels_out = config.out;
    options.tile = tiling.tile;
    options.scale = tiling.scale;
    options.numerics.batch = config.batch;
    options.numerics.precision = config.precision;
    options.numerics.layout = config.layout;
    engine_ = make(options);
  }

  // Batches of one Run().
  int64_t batches() const {
    return (geometry_->grid().tiles() + config_.batch - 1) / config_.batch;
  }
  Cost Run() {
    return Measure(geometry_->grid().tiles(), [&] {
      std::vector<std::future<void>> ends;
      for (int64_t block = 0; block < geometry_->units(); ++block) {
        InferWork work;
        work.unit = block;
        work.item_name = "bench";
        work.geometry = geometry_;
        work.block = block;
        work.transfer = std::make_shared<const Transfer>(transfer_);
        work.input_box = Box::Whole(shape_);
        work.input = DenseView(static_cast<const std::byte*>(samples_.data()), transfer_.in_dtype,
                               config_.in, shape_, Layout::kInterleaved);
        auto end = std::make_shared<std::promise<void>>();
        ends.push_back(end->get_future());
        engine_->Submit(std::move(work), [end](InferResult result) {
          if (auto* error = std::get_if<std::exception_ptr>(&result)) {
            end->set_exception(*error);
          } else {
            end->set_value();
          }
        });
      }
      for (auto& end : ends) end.get();
    });
  }

 private:
  const Config& config_;
  Index shape_{1, 1, 1};
  Transfer transfer_;
  std::shared_ptr<const ItemGeometry> geometry_;
  std::vector<std::byte> samples_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace tilery
