#include <utility>

#include "pipeline/cuda/cuda_lane.h"
#include "pipeline/cuda/cuda_memory.h"
#include "pipeline/cuda/gpu_model.h"
#include "worker/forward_loop.h"

namespace tilery {
namespace {

// The ring of the model is the queue: a place is used again once its batch is done, while those of
// the other places keep the GPU busy.
class CudaLoop final : public ForwardLoop {
 public:
  explicit CudaLoop(const cuda::GpuModelOptions& options)
      : model_(cuda::LoadGpuModel(options)), places_(static_cast<size_t>(options.ring)) {}
  ~CudaLoop() override {
    // The device works on the model's memory until it is done.
    try {
      Sync();
    } catch (const std::exception&) {  // whoever lost the device has been told already
    }
  }

  void Run() override {
    Place& place = places_[next_];
    Settle(place);
    place.begin.Record(model_->stream());
    model_->Run(static_cast<int>(next_));
    place.end.Record(model_->stream());
    place.under_way = true;
    next_ = (next_ + 1) % places_.size();
  }
  std::vector<double> Sync() override {
    for (size_t k = 0; k < places_.size(); ++k) Settle(places_[(next_ + k) % places_.size()]);
    return std::exchange(seconds_, {});
  }
  std::string how() const override { return model_->how(); }

 private:
  struct Place {
    cuda::OwnEvent begin{true}, end{true};
    bool under_way = false;
  };
  void Settle(Place& place) {
    if (!std::exchange(place.under_way, false)) return;
    place.end.Wait();
    seconds_.push_back(cuda::SecondsBetween(place.begin, place.end));
  }

  const std::unique_ptr<cuda::GpuModel> model_;
  std::vector<Place> places_;
  size_t next_ = 0;
  std::vector<double> seconds_;
};

class CudaForward final : public ForwardModel {
 public:
  CudaForward(const EngineOptions& options, int ordinal)
      : options_(cuda::ModelOptionsOf(options, ordinal)) {}
  // What comes next may not ask Torch for its memory.
  ~CudaForward() override { cuda::FreeCaches(); }
  std::unique_ptr<ForwardLoop> MakeLoop() override { return std::make_unique<CudaLoop>(options_); }

 private:
  const cuda::GpuModelOptions options_;
};

}  // namespace

std::unique_ptr<ForwardModel> MakeCudaForward(const EngineOptions& options, int ordinal) {
  return std::make_unique<CudaForward>(options, ordinal);
}

}  // namespace tilery
