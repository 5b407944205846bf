// The bench of pipeline/cuda/tuning.h on a real GPU. While it lives, models of this process get no
// more memory than the request allows, so that a batch that ran here runs beside the slots of an
// engine too. When it is used, no other model of this process may be alive.
#pragma once

#include <memory>

#include "pipeline/cuda/tuning.h"

namespace tilery::cuda {

// `device`: CUDA ordinal in this process. Real input that is not whole tiles is Error(kUsage), as
// is a `memory` that holds nothing but the reserve.
class GpuBench final : public Bench {
 public:
  GpuBench(const TuneRequest& request, int device);
  ~GpuBench() override;

  Trial Measure(const ModelForm& form) override;
  OutputError ErrorOf(const ModelForm& form) override;
  std::variant<ModelForm, std::string> FormOf(int package) override;
  double seconds() const override;
  int64_t memory() const;  // bytes that models may take, all lanes together

 private:
  struct State;
  const std::unique_ptr<State> state_;
};

// Bytes of `memory` that models may take where no reserve is said.
int64_t LeftForModels(int64_t memory);

// Tune() on this device. Error(kUsage) if CUDA shows this process no such device.
TuneResult TuneOnGpu(const TuneRequest& request, int device);

}  // namespace tilery::cuda
