// A unit on its way through a GPU.
//
// The loader fills a slot with the unit's input and tables; lanes gather from it; blending and
// finishing run on the device's finishing stream; the result is copied out and handed over by the
// finisher, which gives the slot back. A slot is device memory that units use one after the other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "pipeline/cuda/cuda_memory.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/cuda/tile_kernels.h"
#include "pipeline/cuda/transfer_tables.h"
#include "pipeline/device.h"
#include "pipeline/host_buffers.h"
#include "pipeline/unit_input.h"

namespace tilery::cuda {

inline constexpr int64_t kFlagBytes = 256;  // in front of a result; keeps it aligned

struct UnitSlot {
  explicit UnitSlot(AllocationCount& count) : memory(count), direct(count) {}
  DeviceBuffer memory;  // of everything whose size is known before the unit is loaded
  DeviceBuffer direct;  // a tile of a pass without a model

  // Parts of `memory`, for the unit that has the slot. One buffer for all of them: a slot that is
  // large enough for a unit never grows, whatever the unit needs most of.
  std::byte* input = nullptr;   // stored samples, dense interleaved
  std::byte* tables = nullptr;  // of the unit's tiles and windows
  std::byte* sums = nullptr;    // f32 [accumulators, cover]
  std::byte* result = nullptr;  // an overflow flag (kFlagBytes), then the interior's samples
  std::byte* seams = nullptr;   // f32, the cells one after another

  OwnEvent load_begin{true}, loaded{true}, finished{true}, copy_begin{true}, copied{true};
};

// What a batch gave, on the device, until it is destroyed.
class CudaOutput : public BatchOutput {
 public:
  virtual GpuTensor tensor() const = 0;
  // Blending has asked to read it on `stream`; its memory is used again only after that.
  virtual void ReadBegins(Stream stream) const = 0;
  virtual void ReadOn(Stream stream) const = 0;
};

class UnitState;

// What units share. Streams are used by one thread at a time, under `blending` or by the loader.
struct UnitContext {
  Profile* profile = nullptr;
  DeviceClock* clock = nullptr;
  int device = 0;
  int32_t channels_out = 3;
  AllocationCount* count = nullptr;
  HostBuffers* pinned = nullptr;
  Stream copy_in = nullptr, finish = nullptr, copy_out = nullptr;
  std::mutex* blending = nullptr;  // the order on `finish` and `copy_out`
  // Takes the unit to the loader.
  std::function<void(std::shared_ptr<UnitState>)> load;
  // Takes a unit that is not being loaded yet from the loader: false if it is too late for that.
  std::function<bool(const UnitState&)> take_back;
  // Takes the unit to the thread that waits for `copied` and hands the result over.
  // Without `ready` the unit has failed: its slot goes back as soon as nothing uses it any more.
  std::function<void(std::shared_ptr<UnitState>, std::function<void(InferResult)> ready)> hand_over;
};

// Shared by the engine's UnitMemory, the loader and the finisher.
class UnitState {
 public:
  // Looks at the input and makes the tables, on the host. Error(kInput) as LookAtInput.
  UnitState(const InferWork& work, std::shared_ptr<const TransferTables> tables,
            const UnitContext& context);

  // ---- The loader ----
  int64_t bytes() const { return parts_.bytes; }  // of the slot that it needs
  // Asks for all copies; then WaitLoaded returns. A slot that is too small grows to `capacity`.
  void Load(std::unique_ptr<UnitSlot> slot, int64_t capacity);
  void FailLoading(std::exception_ptr error);

  // ---- Lanes ----
  bool Ready();
  void StopReading();
  // Model runs that no lane has gathered yet.
  int64_t ungathered() const { return order_.runs() - gathered_; }
  // Waits until copies have been asked for. Throws what loading threw.
  void WaitLoaded();
  // `out`: slot 0 of the model's input. On `stream`, after the input is there.
  void Gather(const GpuTensor& out, int64_t slot, int64_t run, int64_t count, Stream stream);
  const RunOrder& order() const { return order_; }

  // ---- Who blends ----
  void Blend(int64_t run, int64_t count, const CudaOutput* output, int64_t slot);
  void BlendWithoutModel();
  void Finish();  // asks for the result and its copy to the host

  // ---- The finisher ----
  InferOutput Collect();  // waits for the copy
  std::unique_ptr<UnitSlot> GiveUp();

  int64_t nonfinite_in() const { return input_.nonfinite_in; }
  int64_t unit() const { return work_.unit; }

 private:
  int64_t result_bytes() const;  // of the interior's samples
  int64_t sums_bytes() const;
  int64_t seam_bytes() const;
  // Where things lie: in the slot, and in its tables (per axis), in bytes.
  struct Parts {
    int64_t input = 0, tables = 0, sums = 0, result = 0, seams = 0, bytes = 0;
    int64_t start[3] = {}, begin[3] = {}, first[3] = {}, tiles[3] = {}, weights[3] = {};
    int64_t table_bytes = 0;
  };
  Parts Lay() const;
  void CopyInput();
  void MakeTables();
  void CopyTables();
  void ClearSums();
  void BlendTogether(int64_t run, int64_t count, const CudaOutput& output, int64_t slot);
  void BlendOne(int64_t run, const CudaOutput& output, int64_t slot);
  void BlendDirect(const Index& tile, size_t pass);
  BlendTask MakeBlend(const Index& tile, const Pass& pass) const;
  InferOutput CollectFromSums();
  void AddTimes() const;

  const InferWork work_;
  const std::shared_ptr<const TransferTables> tables_;
  const UnitContext& context_;
  const RunOrder order_;
  const Box cover_, interior_;
  const std::vector<SeamCell> seam_cells_;
  const Parts parts_;
  const UnitInput input_;
  const bool restores_;  // not-a-numbers go back into the result, on the host
  std::atomic<int64_t> gathered_{0};

  std::mutex mutex_;  // guards loading_
  std::condition_variable changed_;
  enum class Loading { kWaiting, kLoaded, kFailed } loading_ = Loading::kWaiting;
  std::exception_ptr load_error_;

  std::unique_ptr<UnitSlot> slot_;
  TileStarts starts_{};
  AxisWindows windows_[3]{};
  std::vector<int64_t> cover_begin_[3], cover_end_[3];  // of tiles, coordinates of the cover
  bool cleared_ = false, begun_ = false;
  std::vector<float> scratch_, direct_;
  std::shared_ptr<std::byte> host_tables_, host_input_, host_result_, host_seams_, host_sums_;
};

}  // namespace tilery::cuda
