#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/InferenceMode.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "io/error.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/cuda/torch_errors.h"
#include "pipeline/cuda/torch_forward.h"
#include "pipeline/cuda/torch_graphs.h"
#include "pipeline/cuda/torch_settings.h"
#include "pipeline/device_loss.h"
#include "pipeline/model.h"

namespace tilery::cuda {
namespace {

constexpr int kWarmUps = 3;  // cuDNN measures in the first; libraries make their workspaces

at::ScalarType ScalarOf(ModelType type) {
  return type == ModelType::kF32 ? at::kFloat : type == ModelType::kF16 ? at::kHalf : at::kBFloat16;
}

at::MemoryFormat ChannelsLast(int64_t rank) {
  return rank == 4   ? at::MemoryFormat::ChannelsLast
         : rank == 5 ? at::MemoryFormat::ChannelsLast3d
                     : at::MemoryFormat::Contiguous;
}

std::string Text(c10::IntArrayRef shape) {
  std::string text = "[";
  for (int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

GpuTensor Described(const at::Tensor& tensor, ModelLayout layout) {
  GpuTensor described;
  described.data = tensor.data_ptr();
  described.type = tensor.scalar_type() == at::kFloat  ? ModelType::kF32
                   : tensor.scalar_type() == at::kHalf ? ModelType::kF16
                                                       : ModelType::kBf16;
  described.layout = layout;
  described.slot_bytes =
      tensor.numel() / tensor.size(0) * static_cast<int64_t>(tensor.element_size());
  return described;
}

// Bit for bit, some slots at a time, so that it takes little memory.
bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) return false;
  const at::ScalarType bits = a.element_size() == 2 ? at::kShort : at::kInt;
  const int64_t slot = std::max<int64_t>(1, a.numel() / a.size(0));
  const int64_t step = std::max<int64_t>(1, (int64_t{1} << 24) / slot);
  for (int64_t n = 0; n < a.size(0); n += step) {
    const int64_t end = std::min(n + step, a.size(0));
    if (!at::equal(a.slice(0, n, end).view(bits), b.slice(0, n, end).view(bits))) return false;
  }
  return true;
}

// What Torch keeps for each thread, set while this file calls it.
class Scope {
 public:
  explicit Scope(c10::cuda::CUDAStream stream) : stream_(stream), warnings_(Warnings()) {}

 private:
  const c10::InferenceMode inference_;
  const c10::cuda::CUDAStreamGuard stream_;  // the device too
  const c10::WarningUtils::WarningHandlerGuard warnings_;
};

class TorchGpuModel final : public GpuModel {
 public:
  explicit TorchGpuModel(const GpuModelOptions& options)
      : options_(options),
        stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false,
                                             static_cast<c10::DeviceIndex>(options.device))),
        blame_{options.model, options.batch, /*loading=*/true, stream_.stream()},
        places_(options.ring) {
    shape_ = {options.batch, options.channels_in};
    shape_.insert(shape_.end(), options.tile.end() - options.dims, options.tile.end());
    out_shape_ = {options.batch, options.channels_out};
    out_shape_.insert(out_shape_.end(), options.out_tile.end() - options.dims,
                      options.out_tile.end());
    try {
      Guarded(blame_, "can't be loaded", [&] { Load(); });
      Guarded(blame_, "failed", [&] { Prove(); });
    } catch (const std::exception&) {
      cudaStreamSynchronize(stream_.stream());  // before its memory goes
      throw;
    }
    blame_.loading = false;
  }

  ~TorchGpuModel() override {
    cudaStreamSynchronize(stream_.stream());
    cudaGetLastError();
  }

  Stream stream() const override { return stream_.stream(); }
  GpuTensor input(int place) const override { return places_.at(place).in; }
  const std::string& how() const override { return how_; }

  GpuTensor Run(int place) override {
    return Guarded(blame_, "failed", [&] {
      if (graphs_) {
        const c10::cuda::CUDAGuard device(stream_.device_index());
        graphs_->Replay(place);
      } else {
        const Scope scope(stream_);
        const int64_t refused = RefusedDemands();
        RunEager(places_.at(place));
        CheckRefused(refused);
      }
      return places_.at(place).out;
    });
  }

 private:
  struct Place {
    at::Tensor input, output;
    GpuTensor in, out;
  };

  void Load() {
    const c10::cuda::CUDAStreamGuard on_stream(stream_);
    const c10::WarningUtils::WarningHandlerGuard warnings(Warnings());
    ApplySettings(options_);
    forward_ = IsPackage(options_.bytes()) ? LoadPackage(options_) : LoadScript(options_);
  }

  // Answers of all places to the trial values, warm, captured where that works.
  void Prove() {
    const Scope scope(stream_);
    const int64_t refused = RefusedDemands();
    const bool last = options_.layout == "nhwc";
    const auto format = last ? ChannelsLast(shape_.size()) : at::MemoryFormat::Contiguous;
    const at::ScalarType type = ScalarOf(forward_->input_type());
    for (Place& place : places_) {
      place.input = at::empty(
          shape_, at::TensorOptions().dtype(type).device(stream_.device()).memory_format(format));
      place.in = Described(place.input, last ? ModelLayout::kChannelsLast : ModelLayout::kPlanar);
    }
    std::vector<float> values = TrialValues(places_[0].input.numel());
    trial_ = at::from_blob(values.data(), shape_, at::kFloat).to(type).contiguous(format);

    at::Tensor wanted = FirstAnswer();
    for (int run = 1; run < kWarmUps; ++run) {
      wanted = at::Tensor();
      wanted = Answer(places_[0]);
    }
    if (options_.graph) {
      how_ = CaptureAll(wanted);
    } else {
      how_ = "eager: CUDA graphs are switched off";
    }
    if (!graphs_) PrepareEager(std::move(wanted));
    wanted = at::Tensor();
    if (options_.batch > 1 && !options_.autotune) CheckRefused(refused);
    for (Place& place : places_) Fill(place);
    trial_ = at::Tensor();
    stream_.synchronize();
    // What remains of eager runs is of no use to graphs; eager runs go on using it.
    if (graphs_) FreeCaches();
  }

  // In the first of the model's forms that works. A want of memory chooses none.
  at::Tensor FirstAnswer() {
    for (;;) {
      const int64_t refused = RefusedDemands();
      try {
        at::Tensor answer = Answer(places_[0]);
        stream_.synchronize();
        return answer;
      } catch (const Error&) {
        throw;
      } catch (const std::exception& e) {
        if (IsOutOfMemory(e, refused) || Lost()) throw;
        // What the last form has to say; a lost GPU has been ruled out.
        if (!forward_->NextForm()) ThrowAsOurs(blame_, "failed", e, refused);
      }
    }
  }

  bool Lost() const {
    cudaGetLastError();
    const cudaError_t state = cudaStreamSynchronize(stream_.stream());
    return state != cudaSuccess;
  }

  // Waits until the input holds the trial values: models may write to it.
  void Fill(Place& place) { place.input.copy_(trial_); }

  at::Tensor Answer(Place& place) {
    Fill(place);
    return Own(place.input, Forwarded(place.input));
  }

  // A float tensor of the expected shape, slots without gaps.
  at::Tensor Forwarded(const at::Tensor& input) {
    ApplySettings(options_);
    at::Tensor out = forward_->Run(input);
    if (!out.defined() || out.is_complex()) throw std::runtime_error("it returns no real numbers");
    if (out.sizes() != c10::IntArrayRef(out_shape_)) {
      throw Error(Fault::kModel, "model " + Printable(options_.model.native()) + " makes " +
                                     Text(out.sizes()) + " of " + Text(shape_) + "; it must make " +
                                     Text(out_shape_) + ": correct model.channels or model.scale");
    }
    if (!out.is_cuda()) throw std::runtime_error("it returns a tensor that is not on the GPU");
    if (out.scalar_type() != at::kHalf && out.scalar_type() != at::kBFloat16) {
      out = out.to(at::kFloat);
    }
    const auto last = ChannelsLast(out.dim());
    if (out.is_contiguous() || out.is_contiguous(last)) return out;
    return out.contiguous(options_.layout == "nhwc" ? last : at::MemoryFormat::Contiguous);
  }

  // `out`, or a copy if its memory belongs to something else: the input or a weight.
  static at::Tensor Own(const at::Tensor& input, at::Tensor out) {
    const bool shared = out.use_count() > 1 || out.storage().use_count() > 1 ||
                        out.storage().data() == input.storage().data();
    return shared ? out.clone() : out;
  }

  static void Describe(Place& place) {
    const bool planar = place.output.is_contiguous();
    place.out = Described(place.output, planar ? ModelLayout::kPlanar : ModelLayout::kChannelsLast);
  }

  // Returns "CUDA graph", or why there are none. `wanted`: what eager runs give.
  std::string CaptureAll(const at::Tensor& wanted) {
    std::string why;
    const int64_t refused = RefusedDemands();
    try {
      graphs_.emplace(options_.device, stream_.stream());
      FreeCaches();  // the same activations again, in the graphs' pools
      CapturePlaces();
      for (size_t p = 0; p < places_.size() && why.empty(); ++p) {
        Fill(places_[p]);
        graphs_->Replay(p);
        stream_.synchronize();
        if (!SameBits(places_[p].output, wanted)) {
          why = "a replay's answer differs from the eager run's";
        }
      }
      if (why.empty()) return "CUDA graph";
    } catch (const Error& e) {
      why = e.what();
    } catch (const std::exception& e) {
      if (IsOutOfMemory(e, refused) || Lost()) throw;
      why = Reason(e);
    }
    for (Place& place : places_) place.output = at::Tensor();
    graphs_.reset();
    FreeCaches();
    return "eager: " + why;
  }

  // An output has to stay while the other places run. Where there is much more memory than a pass
  // takes, each place has activations of its own; else they share them, and outputs are copied out,
  // which takes up to two hundredths of the time.
  void CapturePlaces() {
    constexpr double kShare = 0.25;  // of the free memory
    size_t free = 0, total = 0;
    CheckCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    const int64_t before = MemoryOf(options_.device).reserved;
    bool own_memory = true;
    for (Place& place : places_) {
      Fill(place);
      if (own_memory) {
        graphs_->Capture(true, [&] { place.output = Own(place.input, Forwarded(place.input)); });
        const int64_t taken = MemoryOf(options_.device).reserved - before;
        const auto others = static_cast<double>(places_.size() - 1);
        if (&place == &places_.front() && others * taken > kShare * static_cast<double>(free)) {
          own_memory = false;
        }
      }
      if (!own_memory) {
        // The first place's too: its tensor is only the pattern.
        const at::Tensor pattern = places_.front().output;
        if (&place == &places_.front()) {
          graphs_.emplace(options_.device, stream_.stream());
          FreeCaches();
        }
        place.output = at::empty_like(pattern);
        graphs_->Capture(false, [&] { place.output.copy_(Forwarded(place.input)); });
      }
      Describe(place);
    }
  }

  // Outputs at fixed addresses. Each run allocates and frees the same: after the first ones the
  // allocator has it all.
  void PrepareEager(at::Tensor wanted) {
    for (Place& place : places_) {
      place.output = at::empty_like(wanted);
      Describe(place);
    }
    wanted = at::Tensor();  // the runs below find the memory that later ones will find
    int64_t refused = 0;
    for (int run = 0; run < 2; ++run) {
      for (Place& place : places_) {
        refused = RefusedDemands();
        Fill(place);
        RunEager(place);
      }
    }
    if (options_.batch == 1) usual_refusals_ = RefusedDemands() - refused;
  }

  void RunEager(Place& place) { place.output.copy_(Forwarded(place.input)); }

  // cuDNN takes another engine if it is refused the memory that its first choice wants, which may
  // change bytes. At batch 1 there is nothing smaller, so what happens every time is let pass.
  void CheckRefused(int64_t before) const {
    const int64_t refused = RefusedDemands() - before;
    if (refused <= usual_refusals_) return;
    throw OutOfDeviceMemory(Fault::kTransient,
                            "model " + Printable(options_.model.native()) + ": a batch of " +
                                std::to_string(options_.batch) + " was refused GPU memory " +
                                std::to_string(refused) +
                                " times and went on without, maybe by another way (" +
                                LastRefusal() + "); use a smaller batch or tile");
  }

  const GpuModelOptions options_;
  const c10::cuda::CUDAStream stream_;
  Blame blame_;
  std::vector<int64_t> shape_, out_shape_;
  std::unique_ptr<Forward> forward_;
  at::Tensor trial_;  // on the host
  std::optional<Graphs> graphs_;
  std::vector<Place> places_;
  std::string how_;
  int64_t usual_refusals_ = 0;  // in an eager run at batch 1
};

void Check(const GpuModelOptions& o) {
  const auto one_of = [](const std::string& value, std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) { return value == name; });
  };
  if (!one_of(o.precision, {"fp32", "tf32", "fp16", "bf16"}) ||
      !one_of(o.layout, {"nchw", "nhwc"}) || (o.dims != 2 && o.dims != 3) || o.batch < 1 ||
      o.ring < 1) {
    throw Error(Fault::kInternal, "no such way to run a model: precision " + o.precision +
                                      ", layout " + o.layout + ", " + std::to_string(o.dims) +
                                      " dims, batch " + std::to_string(o.batch) + ", ring " +
                                      std::to_string(o.ring));
  }
  // Obeyed by cuBLAS and cuDNN above all that they are told.
  const char* const given = std::getenv("NVIDIA_TF32_OVERRIDE");
  const std::string tf32 = given == nullptr ? "" : given;
  if ((tf32 == "0" && o.precision == "tf32") || (tf32 == "1" && o.precision == "fp32")) {
    throw Error(Fault::kUsage, "precision " + o.precision + " can't be had while the environment " +
                                   "says NVIDIA_TF32_OVERRIDE=" + tf32 + ": unset it");
  }
}

}  // namespace

std::unique_ptr<GpuModel> LoadGpuModel(const GpuModelOptions& options) {
  Check(options);
  // One after the other: a capture must not meet what another thread frees.
  static std::mutex loading;
  const std::scoped_lock lock(loading);
  StartTorch(options.device);
  try {
    return std::make_unique<TorchGpuModel>(options);
  } catch (const Error& e) {
    // Another batch may be tried next. A lost GPU has no caches.
    if (e.fault() != Fault::kInternal) FreeCaches();
    throw;
  }
}

}  // namespace tilery::cuda
