#include <algorithm>
#include <chrono>
#include <utility>

#include "io/error.h"
#include "pipeline/cpu_model.h"
#include "worker/forward_loop.h"

namespace tilery {
namespace {

using Clock = std::chrono::steady_clock;

class CpuLoop final : public ForwardLoop {
 public:
  CpuLoop(Model& model, bool compiled, const std::vector<int64_t>& shape,
          const std::vector<float>& values)
      : model_(model), compiled_(compiled), shape_(shape), values_(values), input_(values) {
    model_.Run(input_.data(), shape_);
    overwrites_ = input_ != values_;
  }
  void Run() override {
    // Else the model would work on its own results, which may run out of the numbers it is made
    // for.
    if (overwrites_) input_ = values_;
    const auto begin = Clock::now();
    model_.Run(input_.data(), shape_);
    seconds_.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::vector<double> Sync() override { return std::exchange(seconds_, {}); }
  std::string how() const override {
    return std::string(compiled_ ? "AOTInductor" : "TorchScript") + ", one thread for each lane";
  }

 private:
  Model& model_;
  const bool compiled_;
  const std::vector<int64_t>& shape_;
  const std::vector<float>& values_;
  std::vector<float> input_;
  bool overwrites_ = false;
  std::vector<double> seconds_;
};

class CpuForward final : public ForwardModel {
 public:
  explicit CpuForward(const EngineOptions& o)
      : model_(LoadCpuModel(o)), compiled_(!o.package.empty()) {
    shape_ = {o.numerics.batch, o.channels_in};
    shape_.insert(shape_.end(), o.tile.end() - o.dims, o.tile.end());
    model_->Prepare(shape_);
    int64_t count = 1;
    for (int64_t extent : shape_) count *= extent;
    values_ = TrialValues(count);
  }
  std::unique_ptr<ForwardLoop> MakeLoop() override {
    return std::make_unique<CpuLoop>(*model_, compiled_, shape_, values_);
  }

 private:
  const std::unique_ptr<Model> model_;
  const bool compiled_;
  std::vector<int64_t> shape_;
  std::vector<float> values_;
};

}  // namespace

std::unique_ptr<ForwardModel> MakeCpuForward(const EngineOptions& options) {
  return std::make_unique<CpuForward>(options);
}

}  // namespace tilery
