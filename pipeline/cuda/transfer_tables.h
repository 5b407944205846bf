// What a Transfer is on the device: tables of input values, labels, and the parts of kernels' tasks
// that are the same for all units.
#pragma once

#include <memory>
#include <vector>

#include "pipeline/cuda/cuda_memory.h"
#include "pipeline/cuda/tile_kernels.h"
#include "pipeline/ops.h"

namespace tilery::cuda {

// Immutable once made.
class TransferTables {
 public:
  // Copies by `stream` and waits for it. Error(kUsage) if there are more channels or operations
  // than the kernels know.
  TransferTables(const Transfer& transfer, AllocationCount& count, Stream stream);

  const Transfer transfer;
  const InputTables tables;
  const Finalizer finalizer;
  // One pass, with the model: units of such jobs are blended many tiles at a time.
  bool tiled() const { return tiled_; }
  // And finished in the same kernel.
  bool fused() const { return fused_; }

  // With `channel`, `channels`, `dtype`, `pad` set.
  GatherTask Gather(const Pass& pass, PadMode pad, bool replace_nonfinite) const;
  // Without sums, region, out and overflow.
  FinalizeTask Finish() const;

 private:
  const float* Put(const std::vector<float>& values, AllocationCount& count, Stream stream);
  InputChannel Channel(const InputTables::Channel& channel, int32_t stored,
                       const float* values) const;

  bool tiled_, fused_ = false;
  std::vector<std::unique_ptr<DeviceBuffer>> buffers_;
  std::vector<const float*> model_values_;  // per model input channel; null: computed
  const double* labels_ = nullptr;
  int32_t label_count_ = 0;
};

}  // namespace tilery::cuda
