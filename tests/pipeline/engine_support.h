// What the tests of the engine share: items in memory, a run that waits, and a float64 reference
// that is written apart from the code under test.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/engine.h"

namespace tilery::testing {

std::filesystem::path ModelPath(
    const std::string& name);  // of tests/models.py, by TILERY_TEST_MODELS

// One item: stored samples, tiling and transfer. Values are plain; change what a test is about.
struct Item {
  Index shape{1, 1, 1};
  int32_t channels = 3;
  Tiling tiling;
  Transfer transfer;
  UnitSizing sizing;
  std::string name = "item";
  int64_t id = 0;
  std::vector<std::byte> samples;  // interleaved, transfer.in_dtype

  std::shared_ptr<const ItemGeometry> Geometry() const;
};

// Samples that look like a photo: smooth shapes and some noise, over the full range of the type
// (u8, u16) or 0..1 (f32). The same for the same seed.
std::vector<std::byte> PhotoLike(const Index& shape, int32_t channels, DType dtype, uint64_t seed);

// A picture item for a model with as many output as input channels: one pass, every channel its
// own.
Item MakePicture(const Index& shape, int32_t channels, DType in, DType out, int64_t tile,
                 int64_t overlap, uint64_t seed = 1);
// An engine on the device that the suite is linked for: the same tests are the contract of every
// device. Errors as Engine::Create.
std::unique_ptr<Engine> CreateEngine(const EngineOptions& options, Profile& profile);
EngineOptions OptionsFor(const Item& item, const std::string& model, int64_t batch = 2,
                         int lanes = 1);

// Works of all blocks of an item; the item outlives them.
std::vector<InferWork> WorksOf(const Item& item, int64_t first_unit = 0);

// Submits the works in the given order, fills up a batch only when all are submitted, and waits for
// all results.
std::vector<InferResult> RunAll(Engine& engine, std::vector<InferWork> works);

// Puts interiors together and finishes seams in plan order: the item as it would be written,
// interleaved out_dtype. Throws the first error among the results.
std::vector<std::byte> Assemble(const Item& item, const std::vector<InferResult>& results);

// All of it: an engine of its own, every block, assembled.
std::vector<std::byte> RunItem(const Item& item, const EngineOptions& options);

// float64 [c, z, y, x] at output resolution: gather, `model` (on a tile [c, z, y, x], its shape
// given), windows, sum. `input` f64 [c, z, y, x] is the whole item in the model's range.
using TileModel = std::function<std::vector<double>(const std::vector<double>& tile,
                                                    int64_t channels, const Index& shape)>;
std::vector<double> Reference(const std::vector<double>& input, int64_t channels,
                              int64_t out_channels, const Index& shape, const Tiling& tiling,
                              const TileModel& model);

template <typename T>
std::vector<T> As(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// Interleaved samples of 0..1 range types as f64 [c, z, y, x]: value / highest for integers, as is
// for f32.
std::vector<double> InModelRange(const Item& item);

}  // namespace tilery::testing
