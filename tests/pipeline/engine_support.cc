#include "tests/pipeline/engine_support.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <numeric>
#include <random>
#include <stdexcept>

#include "io/error.h"

namespace tilery::testing {

std::filesystem::path ModelPath(const std::string& name) {
  const char* folder = std::getenv("TILERY_TEST_MODELS");
  if (folder == nullptr) throw std::runtime_error("TILERY_TEST_MODELS is not set; run ctest");
  return std::filesystem::path(folder) / (name + ".pt");
}

std::shared_ptr<const ItemGeometry> Item::Geometry() const {
  return std::make_shared<const ItemGeometry>(shape, tiling, sizing);
}

std::vector<std::byte> PhotoLike(const Index& shape, int32_t channels, DType dtype, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> samples(Product(shape) * channels * DTypeSize(dtype));
  std::byte* to = samples.data();
  const auto phase = static_cast<double>(seed % 17);
  for (int64_t z = 0; z < shape[0]; ++z) {
    for (int64_t y = 0; y < shape[1]; ++y) {
      for (int64_t x = 0; x < shape[2]; ++x) {
        for (int32_t c = 0; c < channels; ++c) {
          const double noise = static_cast<double>(random() % 1000) / 1000 - 0.5;
          double v =
              0.5 + 0.2 * std::sin(0.11 * x + phase) + 0.2 * std::cos(0.07 * y + 0.05 * z + c);
          v = std::clamp(v + 0.1 * noise, 0.0, 0.99);
          if (dtype == DType::kU8) {
            const auto sample = static_cast<uint8_t>(v * 255);
            std::memcpy(to, &sample, 1);
          } else if (dtype == DType::kU16) {
            const auto sample = static_cast<uint16_t>(v * 65535);
            std::memcpy(to, &sample, 2);
          } else if (dtype == DType::kF32) {
            const auto sample = static_cast<float>(v);
            std::memcpy(to, &sample, 4);
          } else {
            throw std::runtime_error("PhotoLike makes u8, u16 and f32");
          }
          to += DTypeSize(dtype);
        }
      }
    }
  }
  return samples;
}

Item MakePicture(const Index& shape, int32_t channels, DType in, DType out, int64_t tile,
                 int64_t overlap, uint64_t seed) {
  Item item;
  item.shape = shape;
  item.channels = channels;
  for (int a = 0; a < 3; ++a) {
    const bool tiled = a > 0 || shape[0] > 1;
    item.tiling.tile[a] = tiled ? tile : 1;
    item.tiling.overlap[a] = tiled ? overlap : 0;
  }
  Transfer& t = item.transfer;
  t.in_dtype = in;
  t.raw_hi = IsInteger(in) ? HighestOf(in) : 1;
  t.model_in = t.model_out = t.accumulators = t.out_channels = channels;
  t.out_dtype = out;
  Pass pass;
  for (int32_t c = 0; c < channels; ++c) {
    pass.in.push_back(c);
    pass.out.push_back(c);
  }
  pass.out_count = channels;
  t.passes = {pass};
  item.sizing.channels = channels;
  item.samples = PhotoLike(shape, channels, in, seed);
  return item;
}

EngineOptions OptionsFor(const Item& item, const std::string& model, int64_t batch, int lanes) {
  EngineOptions options;
  options.model = ModelPath(model);
  options.lanes = lanes;
  options.dims = item.shape[0] > 1 ? 3 : 2;
  options.channels_in = item.transfer.model_in;
  options.channels_out = item.transfer.model_out;
  options.tile = item.tiling.tile;
  options.scale = item.tiling.scale;
  options.numerics = DescribeDevice("cpu");
  options.numerics.batch = batch;
  return options;
}

std::vector<InferWork> WorksOf(const Item& item, int64_t first_unit) {
  const auto geometry = item.Geometry();
  const auto transfer = std::make_shared<const Transfer>(item.transfer);
  const ConstView whole =
      DenseView(static_cast<const std::byte*>(item.samples.data()), item.transfer.in_dtype,
                item.channels, item.shape, Layout::kInterleaved);
  std::vector<InferWork> works;
  for (int64_t block = 0; block < geometry->units(); ++block) {
    InferWork work;
    work.unit = first_unit + block;
    work.item = item.id;
    work.item_name = item.name;
    work.geometry = geometry;
    work.block = block;
    work.transfer = transfer;
    work.input_box = geometry->unit_input(block);
    // Exactly what the unit reads, in memory of its own: reading beyond it is found by
    // AddressSanitizer.
    auto memory = std::make_shared<std::vector<std::byte>>(work.input_box.voxels() * item.channels *
                                                           DTypeSize(item.transfer.in_dtype));
    const View view = DenseView(memory->data(), item.transfer.in_dtype, item.channels,
                                work.input_box.shape(), Layout::kInterleaved);
    CopyView(whole.Crop(work.input_box), view);
    work.input = view;
    work.keep = memory;
    works.push_back(std::move(work));
  }
  return works;
}

std::vector<InferResult> RunAll(Engine& engine, std::vector<InferWork> works) {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<InferResult> results(works.size());
  size_t done = 0;
  // So that which tiles share a batch does not depend on how quickly this thread submits.
  engine.MoreComing(More::kSoon);
  for (size_t i = 0; i < works.size(); ++i) {
    engine.Submit(std::move(works[i]), [&, i](InferResult result) {
      const std::lock_guard lock(mutex);
      results[i] = std::move(result);
      ++done;
      changed.notify_all();
    });
  }
  engine.MoreComing(More::kNothing);
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return done == results.size(); });
  return results;
}

std::vector<std::byte> Assemble(const Item& item, const std::vector<InferResult>& results) {
  const auto geometry = item.Geometry();
  const Index shape = geometry->grid().output_shape;
  const Transfer& t = item.transfer;
  std::vector<std::byte> samples(Product(shape) * t.out_channels * DTypeSize(t.out_dtype));
  const View out =
      DenseView(samples.data(), t.out_dtype, t.out_channels, shape, Layout::kInterleaved);
  std::vector<const InferOutput*> outputs;
  for (const InferResult& result : results) {
    if (const auto* error = std::get_if<std::exception_ptr>(&result))
      std::rethrow_exception(*error);
    outputs.push_back(&std::get<InferOutput>(result));
  }
  int64_t voxels = 0;
  for (const SeamCell& cell : geometry->cells(Box::Whole(shape))) {
    voxels += cell.box.voxels();
    if (cell.units.size() == 1) {
      const InferOutput& output = *outputs[cell.units[0]];
      const ConstView interior =
          DenseView(static_cast<const std::byte*>(output.interior_samples.data()), t.out_dtype,
                    t.out_channels, output.interior.shape(), Layout::kInterleaved);
      if (output.interior != cell.box) throw std::runtime_error("an interior is not its cell");
      CopyView(interior, out.Crop(cell.box));
      continue;
    }
    std::vector<float> sums(cell.box.voxels() * t.accumulators, 0.0f);
    for (int64_t unit : cell.units) {
      const auto found = std::find_if(outputs[unit]->seams.begin(), outputs[unit]->seams.end(),
                                      [&](const SeamPartial& s) { return s.box == cell.box; });
      if (found == outputs[unit]->seams.end()) throw std::runtime_error("a seam is missing");
      for (size_t i = 0; i < sums.size(); ++i) sums[i] += found->sums[i];
    }
    FinalizeSums(sums.data(), cell.box.shape(), t, out.Crop(cell.box));
  }
  if (voxels != Product(shape)) throw std::runtime_error("cells do not cover the output once");
  return samples;
}

std::vector<std::byte> RunItem(const Item& item, const EngineOptions& options) {
  Profile profile;
  const auto engine = CreateEngine(options, profile);
  return Assemble(item, RunAll(*engine, WorksOf(item)));
}

std::vector<double> InModelRange(const Item& item) {
  const int64_t voxels = Product(item.shape);
  std::vector<double> values(voxels * item.channels);
  for (int64_t v = 0; v < voxels; ++v) {
    for (int32_t c = 0; c < item.channels; ++c) {
      const std::byte* at =
          item.samples.data() + (v * item.channels + c) * DTypeSize(item.transfer.in_dtype);
      double& to = values[c * voxels + v];
      if (item.transfer.in_dtype == DType::kU8) {
        to = static_cast<double>(*reinterpret_cast<const uint8_t*>(at)) / 255;
      } else if (item.transfer.in_dtype == DType::kU16) {
        uint16_t sample;
        std::memcpy(&sample, at, 2);
        to = sample / 65535.0;
      } else {
        float sample;
        std::memcpy(&sample, at, 4);
        to = sample;
      }
    }
  }
  return values;
}

namespace {

std::vector<int64_t> Starts(int64_t n, int64_t tile, int64_t overlap) {
  std::vector<int64_t> starts;
  for (int64_t s = 0; s + tile < n; s += tile - overlap) starts.push_back(s);
  starts.push_back(std::max<int64_t>(n - tile, 0));
  return starts;
}

// Windows of one axis at output resolution, normalised, in float64.
std::vector<std::vector<double>> Windows(const std::vector<int64_t>& starts, int64_t padded,
                                         const Tiling& t, int a) {
  const double pi = std::acos(-1.0);
  const auto at = [&](int64_t v) { return v * t.scale[a].num / t.scale[a].den; };
  const int64_t length = at(t.tile[a]), trim = at(t.trim[a]), ramp = at(t.overlap[a]) - 2 * trim;
  std::vector<std::vector<double>> windows;
  std::vector<double> total(at(padded), 0.0);
  for (size_t k = 0; k < starts.size(); ++k) {
    const bool low = k > 0, high = k + 1 < starts.size();
    std::vector<double> w(length, 1.0);
    for (int64_t i = 0; i < length; ++i) {
      const auto side = [&](int64_t from) {
        double r = from < trim ? 0.0 : ramp > 0 ? (from - trim + 0.5) / ramp : 1.0;
        r = std::min(r, 1.0);
        return t.window == WindowKind::kLinear ? r : 0.5 - 0.5 * std::cos(pi * r);
      };
      const double middle = (length - 1) / 2.0;
      switch (t.window) {
        case WindowKind::kLinear:
        case WindowKind::kCosine:
          if (low) w[i] *= side(i);
          if (high) w[i] *= side(length - 1 - i);
          break;
        case WindowKind::kHann:
          w[i] = 0.5 - 0.5 * std::cos(2 * pi * (i + 0.5) / length);
          break;
        case WindowKind::kGaussian:
          w[i] = std::exp(-0.5 * std::pow((i - middle) / (length / 8.0), 2));
          break;
        case WindowKind::kCrop: {
          size_t best = 0;
          const auto far = [&](size_t other) {
            return std::abs(at(starts[k]) + i - (at(starts[other]) + middle));
          };
          for (size_t other = 1; other < starts.size(); ++other) {
            if (far(other) < far(best)) best = other;
          }
          w[i] = best == k ? 1 : 0;
        }
      }
      const bool trims = t.window == WindowKind::kHann || t.window == WindowKind::kGaussian;
      if (trims && ((low && i < trim) || (high && length - 1 - i < trim))) w[i] = 0;
      total[at(starts[k]) + i] += w[i];
    }
    windows.push_back(std::move(w));
  }
  for (size_t k = 0; k < starts.size(); ++k) {
    for (int64_t i = 0; i < length; ++i) windows[k][i] /= total[at(starts[k]) + i];
  }
  return windows;
}

int64_t Fold(int64_t i, int64_t n, PadMode mode) {
  if (i < n) return i;
  if (mode == PadMode::kZero) return -1;
  if (mode == PadMode::kEdge || n == 1) return n - 1;
  const int64_t period = 2 * (n - 1), at = i % period;
  return at < n ? at : period - at;
}

}  // namespace

std::vector<double> Reference(const std::vector<double>& input, int64_t channels,
                              int64_t out_channels, const Index& shape, const Tiling& t,
                              const TileModel& model) {
  Index padded, out_shape, out_tile;
  std::array<std::vector<int64_t>, 3> starts;
  std::array<std::vector<std::vector<double>>, 3> windows;
  for (int a = 0; a < 3; ++a) {
    const int64_t k = std::lcm(t.scale[a].den, t.multiple[a]);
    padded[a] = std::max(t.tile[a], (shape[a] + k - 1) / k * k);
    starts[a] = Starts(padded[a], t.tile[a], t.overlap[a]);
    windows[a] = Windows(starts[a], padded[a], t, a);
    out_shape[a] = (shape[a] * t.scale[a].num + t.scale[a].den - 1) / t.scale[a].den;
    out_tile[a] = t.tile[a] * t.scale[a].num / t.scale[a].den;
  }
  std::vector<double> out(out_channels * Product(out_shape), 0.0);
  std::vector<double> tile(channels * Product(t.tile));
  for (size_t kz = 0; kz < starts[0].size(); ++kz) {
    for (size_t ky = 0; ky < starts[1].size(); ++ky) {
      for (size_t kx = 0; kx < starts[2].size(); ++kx) {
        const Index start{starts[0][kz], starts[1][ky], starts[2][kx]};
        double* to = tile.data();
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t z = 0; z < t.tile[0]; ++z) {
            for (int64_t y = 0; y < t.tile[1]; ++y) {
              for (int64_t x = 0; x < t.tile[2]; ++x) {
                const int64_t fz = Fold(start[0] + z, shape[0], t.pad);
                const int64_t fy = Fold(start[1] + y, shape[1], t.pad);
                const int64_t fx = Fold(start[2] + x, shape[2], t.pad);
                const bool none = fz < 0 || fy < 0 || fx < 0;
                *to++ = none ? 0 : input[((c * shape[0] + fz) * shape[1] + fy) * shape[2] + fx];
              }
            }
          }
        }
        const std::vector<double> answer = model(tile, channels, t.tile);
        for (int64_t c = 0; c < out_channels; ++c) {
          for (int64_t z = 0; z < out_tile[0]; ++z) {
            for (int64_t y = 0; y < out_tile[1]; ++y) {
              for (int64_t x = 0; x < out_tile[2]; ++x) {
                const int64_t oz = start[0] * t.scale[0].num / t.scale[0].den + z;
                const int64_t oy = start[1] * t.scale[1].num / t.scale[1].den + y;
                const int64_t ox = start[2] * t.scale[2].num / t.scale[2].den + x;
                if (oz >= out_shape[0] || oy >= out_shape[1] || ox >= out_shape[2]) continue;
                out[((c * out_shape[0] + oz) * out_shape[1] + oy) * out_shape[2] + ox] +=
                    windows[0][kz][z] * windows[1][ky][y] * windows[2][kx][x] *
                    answer[((c * out_tile[0] + z) * out_tile[1] + y) * out_tile[2] + x];
              }
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace tilery::testing
