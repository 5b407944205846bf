// Runs infer units on one device: gather -> model -> blend -> finalize, in batches of one fixed
// size that may mix tiles of all submitted units.
//
// A unit's tiles are blended in tile order, passes of one tile position in pass order, into f32
// sums; the result has the same bits whatever else is in flight, however many lanes there are. A
// batch waits for more tiles as MoreComing() says, and is filled up (the filling discarded)
// otherwise. If a batch of several items throws or is not finite, its tiles run again
// one item at a time, same size, filled up; only the item that fails again fails. A batch that
// memory ran out in runs again before that, once.
#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "io/view.h"
#include "pipeline/blocks.h"
#include "pipeline/numerics.h"
#include "pipeline/profile.h"
#include "pipeline/transfer.h"

namespace tilery {

struct EngineOptions {
  std::filesystem::path model;  // TorchScript file
  // The same model compiled for just this device, tile, batch, precision and layout; empty: none.
  std::filesystem::path package;
  // Where the bytes of the file that runs (the package, if there is one) are, if not there: as on
  // GPUs after it was passed on by another process.
  std::filesystem::path model_at;
  bool compiled_only = false;  // `model` can't be run itself: an exported program or a package
  std::string device = "cpu";
  int lanes = 1;  // concurrent batches; on CPUs one thread each, intra-op threads 1
  int dims = 2;   // 2: model input [N,C,Y,X]; 3: [N,C,Z,Y,X]
  int32_t channels_in = 3, channels_out = 3;
  Index tile{1, 1, 1};  // input voxels, the one shape the model sees
  Scale scale;
  Numerics numerics;
  bool graph = true;  // on GPUs: replay CUDA graphs where the model can be captured; same bytes
};

// One infer unit. All that is referred to stays alive until `done` was called.
struct InferWork {
  int64_t unit = 0;       // plan-wide id, for the profile
  int64_t item = 0;       // tiles of different items never share a second try
  std::string item_name;  // for messages
  std::shared_ptr<const ItemGeometry> geometry;
  int64_t block = 0;  // unit index within the item
  std::shared_ptr<const Transfer> transfer;
  ConstView input;                   // samples of `input_box`
  Box input_box;                     // item voxels; contains geometry->unit_input(block)
  std::shared_ptr<const void> keep;  // owns input's memory
};

// Memory for inputs and results that a device can copy from and to without a detour. Thread-safe;
// lives until all its memory has been given back.
class HostMemory {
 public:
  virtual ~HostMemory() = default;
  virtual std::byte* Allocate(size_t bytes) = 0;  // aligned to 64; throws std::bad_alloc
  virtual void Free(std::byte* data, size_t bytes) noexcept = 0;
};

// Bytes owned together with others; not cleared when they are made.
class SharedBytes {
 public:
  SharedBytes() = default;
  explicit SharedBytes(size_t size) : data_(new std::byte[size]), size_(size) {}
  SharedBytes(std::shared_ptr<std::byte[]> data, size_t size)
      : data_(std::move(data)), size_(size) {}
  std::byte* data() const { return data_.get(); }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  std::byte* begin() const { return data(); }
  std::byte* end() const { return data() + size_; }

 private:
  std::shared_ptr<std::byte[]> data_;
  size_t size_ = 0;
};

struct SeamPartial {
  SeamPartial() = default;
  SeamPartial(const Box& the_box, int32_t channels)
      : box(the_box),
        count(static_cast<size_t>(box.voxels() * channels)),
        sums(new float[count]) {}  // not cleared
  SeamPartial(const Box& the_box, int32_t channels, std::shared_ptr<float[]> the_sums)
      : box(the_box),
        count(static_cast<size_t>(box.voxels() * channels)),
        sums(std::move(the_sums)) {}

  Box box;
  size_t count = 0;               // values
  std::shared_ptr<float[]> sums;  // [z,y,x,c], `transfer->accumulators` channels
};

struct InferOutput {
  Box interior;                    // may be empty
  SharedBytes interior_samples;    // [z,y,x,c] out_dtype, out_channels
  std::vector<SeamPartial> seams;  // in the order of geometry->seams(block)
  int64_t tiles = 0;               // accepted model runs: tiles x passes with Op::kModel
  int64_t repeated = 0;            // model runs thrown away or run again
  int64_t careful = 0;             // of `tiles`, run in fp32 since they were not finite otherwise
  int64_t nonfinite_in = 0;        // input voxels that were not finite
};

using InferResult = std::variant<InferOutput, std::exception_ptr>;

// Of a device's memory; zeros where it is the host's.
struct DeviceUse {
  int64_t peak_bytes = 0;   // held at most so far
  int64_t allocations = 0;  // times that memory was asked of the driver, pinned memory included
};

// Whether a batch that is not full waits for tiles.
enum class More : uint8_t {
  kNothing,  // no
  kInTurn,   // while its lane has others under way: when they are done, units may be read for which
             // there is no room yet
  kSoon,     // yes: they come whatever the engine does
};

// Thread-safe. Destruction finishes running batches and calls `done` with Error(kTransient) for the
// rest.
class Engine {
 public:
  // Loads the model and proves one batch. Error(kModel) if it can't be loaded, or its output shape
  // contradicts channels_out or scale: the message names both.
  static std::unique_ptr<Engine> Create(const EngineOptions& options, Profile& profile);
  virtual ~Engine() = default;

  // `done` runs on an engine thread, exactly once; it must be quick. Never blocks.
  virtual void Submit(InferWork work, std::function<void(InferResult)> done) = 0;
  virtual void MoreComing(More more) = 0;    // at first: kNothing
  virtual int64_t queued_tiles() const = 0;  // model runs submitted and not yet taken into a batch
  virtual int64_t finished_batches() const = 0;  // sign of life for heartbeats
  // Memory that inputs are best read into; nullptr: any. Usable after the engine has gone.
  virtual std::shared_ptr<HostMemory> host_memory() = 0;
  virtual DeviceUse device_use() const { return {}; }
};

class Device;  // pipeline/device.h

// Runs units on `device`, made of the same options. `profile` outlives the engine. Errors of making
// the device's lanes.
std::unique_ptr<Engine> MakeEngine(const EngineOptions& options, std::unique_ptr<Device> device,
                                   Profile& profile);

// Sums seam partials in plan order and finalizes them: what an assemble unit does per seam cell.
// `sums`: [z,y,x,accumulators] f32 dense; `out`: transfer.out_dtype, out_channels, same shape.
void FinalizeSums(const float* sums, const Index& shape, const Transfer& transfer, const View& out);

// What only the model itself can tell, asked of a one-shot child process.
struct ModelProbe {
  bool runs = false;
  std::string error;        // why not
  int32_t channels_in = 0;  // 0 = none of 3, 1, 4, 2 ran
  int32_t channels_out = 0;
  Scale scale;
  bool apart = true;  // what it makes of a tile depends neither on its slot nor on what is beside
                      // it in a batch
};
// channels_in, dims: 0 = unknown (dims must be known). `tile`: shape to try. `batches`: also find
// `apart`, for which it runs two batches of two.
ModelProbe ProbeModel(const std::filesystem::path& model, int dims, int32_t channels_in,
                      const Index& tile, bool batches = false);
// Device kind and Torch version of this machine for `device` ("cpu").
Numerics DescribeDevice(const std::string& device);

}  // namespace tilery
