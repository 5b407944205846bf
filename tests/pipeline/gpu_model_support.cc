#include "tests/pipeline/gpu_model_support.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "pipeline/model.h"
#include "tests/pipeline/engine_support.h"

namespace tilery::cuda {

using namespace tilery::testing;

namespace {

std::vector<int64_t> ShapeOf(const GpuModelOptions& o, int32_t channels, const Index& tile) {
  std::vector<int64_t> shape{o.batch, channels};
  shape.insert(shape.end(), tile.end() - o.dims, tile.end());
  return shape;
}

int64_t CountOf(const GpuModelOptions& o, int32_t channels, const Index& tile) {
  return o.batch * channels * Product(tile);
}

float FloatOf(const std::byte* at, ModelType type) {
  float value = 0;
  if (type == ModelType::kF32) {
    std::memcpy(&value, at, 4);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, 2);
  if (type == ModelType::kF16) return HalfToFloat(bits);
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  std::memcpy(&value, &wide, 4);
  return value;
}

}  // namespace

GpuModelOptions Options(const std::string& name) {
  GpuModelOptions options;
  options.model = ModelPath(name);
  options.tile = options.out_tile = {1, 32, 48};
  options.batch = 2;
  options.autotune = false;
  return options;
}

GpuModelOptions Options3d(const std::string& name) {
  GpuModelOptions options = Options(name);
  options.dims = 3;
  options.channels_in = options.channels_out = 1;
  options.tile = options.out_tile = {16, 16, 24};
  return options;
}

void Expect(int status) {
  ASSERT_EQ(status, cudaSuccess) << cudaGetErrorString(static_cast<cudaError_t>(status));
}

std::vector<std::byte> Bytes(const GpuTensor& tensor, int64_t batch, Stream stream) {
  std::vector<std::byte> bytes(batch * tensor.slot_bytes);
  Expect(cudaStreamSynchronize(stream));
  Expect(cudaMemcpy(bytes.data(), tensor.data, bytes.size(), cudaMemcpyDeviceToHost));
  return bytes;
}

std::vector<float> Values(const GpuTensor& tensor, int64_t batch, int32_t channels, Stream stream) {
  const std::vector<std::byte> bytes = Bytes(tensor, batch, stream);
  const int64_t size = tensor.type == ModelType::kF32 ? 4 : 2;
  const int64_t voxels = tensor.slot_bytes / size / channels;
  std::vector<float> values;
  values.reserve(batch * channels * voxels);
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t v = 0; v < voxels; ++v) {
        const bool last = tensor.layout == ModelLayout::kChannelsLast;
        const int64_t at = n * channels * voxels + (last ? v * channels + c : c * voxels + v);
        values.push_back(FloatOf(bytes.data() + at * size, tensor.type));
      }
    }
  }
  return values;
}

std::vector<float> Answer(GpuModel& model, const GpuModelOptions& o, int place) {
  const GpuTensor out = model.Run(place);
  return Values(out, o.batch, o.channels_out, model.stream());
}

std::vector<float> OnCpu(const GpuModelOptions& o) {
  std::vector<float> input = TrialValues(CountOf(o, o.channels_in, o.tile));
  const auto model = LoadTorchScript(o.model);
  const ModelOutput out = model->Run(input.data(), ShapeOf(o, o.channels_in, o.tile));
  EXPECT_EQ(out.shape, ShapeOf(o, o.channels_out, o.out_tile));
  return {out.data, out.data + CountOf(o, o.channels_out, o.out_tile)};
}

double Difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    if (!(d <= largest)) largest = std::isnan(d) ? INFINITY : d;
  }
  return largest;
}

void Scale(GpuModel& model, const GpuModelOptions& o, int place, float factor) {
  const GpuTensor in = model.input(place);
  ASSERT_EQ(in.type, ModelType::kF32);
  ASSERT_EQ(in.layout, ModelLayout::kPlanar);
  std::vector<float> values = TrialValues(CountOf(o, o.channels_in, o.tile));
  for (float& v : values) v *= factor;
  Expect(cudaStreamSynchronize(model.stream()));
  Expect(cudaMemcpy(in.data, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
}

std::string WhatOf(const GpuModelOptions& options, Fault fault) {
  try {
    const auto model = LoadGpuModel(options);
    ADD_FAILURE() << options.model << " was loaded, and runs as " << model->how();
  } catch (const Error& e) {
    EXPECT_EQ(e.fault(), fault) << e.what();
    return e.what();
  }
  return "";
}

}  // namespace tilery::cuda
