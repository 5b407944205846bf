#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "io/error.h"
#include "pipeline/cpu_model.h"
#include "pipeline/engine.h"
#include "pipeline/model.h"

namespace tilery {
namespace {

// Shape of what the model makes of one tile.
std::vector<int64_t> OutputShape(Model& model, int dims, int32_t channels, const Index& tile) {
  std::vector<int64_t> shape{1, channels};
  shape.insert(shape.end(), tile.end() - dims, tile.end());
  std::vector<float> input = TrialValues(channels * Product(tile));
  return model.Run(input.data(), shape).shape;
}

std::string Text(const std::vector<int64_t>& shape) {
  std::string text;
  for (int64_t extent : shape) text += (text.empty() ? "" : "x") + std::to_string(extent);
  return text;
}

// Channels and scale from the shapes; throws Error(kModel) if they make no sense.
void Read(const std::vector<int64_t>& out, int dims, const Index& tile, ModelProbe& probe) {
  if (static_cast<int>(out.size()) != dims + 2 || out[0] != 1 ||
      *std::min_element(out.begin(), out.end()) < 1) {
    throw Error(Fault::kModel, "it makes a tensor of shape " + Text(out) + " of one tile; " +
                                   std::to_string(dims + 2) + " axes with 1 first are expected");
  }
  probe.channels_out = static_cast<int32_t>(out[1]);
  for (int a = 3 - dims; a < 3; ++a) {
    probe.scale[a] = Rational::Of(out[2 + a - (3 - dims)], tile[a]);
  }
}

// Whether a tile gives the same in both slots of a batch of two, and beside itself as beside
// another one. A model that runs only one tile at a time has none beside it.
bool GivesTilesApart(Model& model, int dims, int32_t channels, const Index& tile) {
  const int64_t values = channels * Product(tile);
  std::vector<float> input = TrialValues(2 * values);  // two different ones
  std::vector<float> twice(input.begin(), input.begin() + values);
  twice.insert(twice.end(), input.begin(), input.begin() + values);
  std::vector<int64_t> shape{2, channels};
  shape.insert(shape.end(), tile.end() - dims, tile.end());
  try {
    const ModelOutput mixed = model.Run(input.data(), shape);
    const ModelOutput alike = model.Run(twice.data(), shape);
    if (mixed.shape != alike.shape) return false;
    size_t count = 1;  // values of one slot
    for (size_t a = 1; a < alike.shape.size(); ++a) count *= static_cast<size_t>(alike.shape[a]);
    if (alike.shape[0] != 2) return true;  // which is refused where it runs
    const auto same = [&](const float* a, const float* b) {
      return std::memcmp(a, b, count * sizeof(float)) == 0;
    };
    return same(alike.data, alike.data + count) && same(alike.data, mixed.data);
  } catch (const Error&) {
    return true;
  }
}

// A model without padding loses a border, which looks like an odd scale: it changes with the tile.
void CheckScale(Model& model, int dims, const Index& tile, const ModelProbe& probe) {
  const bool odd = std::any_of(probe.scale.begin(), probe.scale.end(),
                               [](const Rational& s) { return s.num > 1 && s.den > 1; });
  if (!odd) return;
  Index larger = tile;
  for (int a = 3 - dims; a < 3; ++a) larger[a] *= 2;
  ModelProbe again = probe;
  try {
    Read(OutputShape(model, dims, probe.channels_in, larger), dims, larger, again);
  } catch (const Error&) {
    return;  // it takes one size only, so there is nothing to compare
  }
  if (again.scale != probe.scale) {
    throw Error(Fault::kModel,
                "its output is not in proportion to its input (a tile of " +
                    ShapeToString(tile, dims) + " gives scale " + probe.scale[2].ToString() +
                    ", one of " + ShapeToString(larger, dims) + " gives " +
                    again.scale[2].ToString() + "): export it with padded convolutions");
  }
}

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    for (const char* key : {"model name", "CPU part", "cpu model"}) {
      if (line.rfind(key, 0) != 0) continue;
      const size_t at = line.find_first_not_of(" \t", line.find(':') + 1);
      if (line.find(':') != std::string::npos && at != std::string::npos) return line.substr(at);
    }
  }
  return "unknown";
}

}  // namespace

ModelProbe ProbeModel(const std::filesystem::path& path, int dims, int32_t channels_in,
                      const Index& tile, bool batches) {
  ModelProbe probe;
  std::string reasons;
  try {
    const std::unique_ptr<Model> model = LoadTorchScript(path);
    const std::vector<int32_t> candidates =
        channels_in > 0 ? std::vector<int32_t>{channels_in} : std::vector<int32_t>{3, 1, 4, 2};
    for (int32_t channels : candidates) {
      try {
        const std::vector<int64_t> out = OutputShape(*model, dims, channels, tile);
        probe.channels_in = channels;
        Read(out, dims, tile, probe);
        CheckScale(*model, dims, tile, probe);
        probe.apart = !batches || GivesTilesApart(*model, dims, channels, tile);
        probe.runs = true;
        return probe;
      } catch (const Error& e) {
        if (probe.channels_in != 0) throw;
        reasons +=
            (reasons.empty() ? "" : "; ") + std::to_string(channels) + " channels: " + e.what();
      }
    }
    probe.error =
        "the model does not run on a tile of " + ShapeToString(tile, dims) + ": " + reasons;
  } catch (const Error& e) {
    probe.error = e.what();
  }
  return probe;
}

std::string CpuKind() {
  std::string capability = CpuCapability();
  std::transform(capability.begin(), capability.end(), capability.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return capability + "/" + CpuName();
}

Numerics DescribeDevice(const std::string& device) {
  if (device != "cpu") {
    throw Error(Fault::kUsage,
                "device \"" + device + "\" is not supported yet; execution.devices may be: cpu");
  }
  Numerics numerics;
  numerics.device_kind = "cpu/" + CpuKind();
  numerics.torch = TorchVersion();
  return numerics;
}

}  // namespace tilery
