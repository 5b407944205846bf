#include "pipeline/cuda/cuda_lane.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <deque>
#include <thread>
#include <utility>

#include "io/error.h"
#include "pipeline/profile.h"
#include "pipeline/profile_switch.h"

namespace tilery::cuda {

struct CudaLane::Place {
  explicit Place(AllocationCount& count) : flags(count) {}
  OwnEvent gathered, begun{true}, done{true}, checked, read;
  OwnEvent blend_begin{true}, blend_end{true};  // of the last blending that read the output
  bool blended = false;                         // both have been recorded since they were looked at
  DeviceBuffer flags;                           // int32 per slot: something is not finite
  std::shared_ptr<std::byte> host_flags;
  GpuTensor output;
  bool free = true;
  bool used = false;  // events have been recorded
};

// Waits for batches, in their order, with a thread of its own, and says when one is done: lanes
// wait for that and for other things at once.
class CudaLane::Watch {
 public:
  explicit Watch(const LaneContext& context)
      : progress_(context.progress), thread_([this, device = context.device] { Run(device); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  void Add(std::shared_ptr<const Output> output) {
    {
      const std::lock_guard lock(mutex_);
      outputs_.push_back(std::move(output));
    }
    changed_.notify_all();
  }

 private:
  void Run(int device);

  const std::function<void()> progress_;
  std::mutex mutex_;  // guards the two below
  std::deque<std::shared_ptr<const Output>> outputs_;
  bool stopping_ = false;
  std::condition_variable changed_;
  std::thread thread_;  // last: it uses all of the above
};

// Lives as long as outputs that refer to it.
struct CudaLane::Ring {
  std::mutex mutex;  // guards Place::free
  std::condition_variable changed;
  std::vector<std::unique_ptr<Place>> places;
};

class CudaLane::Output final : public CudaOutput {
 public:
  Output(std::shared_ptr<Ring> ring, Place& place, const LaneContext& context, int64_t unit)
      : ring_(std::move(ring)),
        place_(place),
        profile_(*context.profile),
        clock_(*context.clock),
        unit_(unit) {}
  ~Output() override {
    {
      const std::lock_guard lock(ring_->mutex);
      place_.free = true;
    }
    ring_->changed.notify_all();
  }
  GpuTensor tensor() const override { return place_.output; }
  void ReadBegins(cudaStream_t stream) const override {
    if (ProfilesRecord()) place_.blend_begin.Record(stream);
  }
  void ReadOn(cudaStream_t stream) const override {
    if (ProfilesRecord()) {
      place_.blend_end.Record(stream);
      place_.blended = true;
    }
    place_.read.Record(stream);
  }
  bool Done() const override { return done_; }
  void WaitDone() const noexcept {
    try {
      place_.checked.Wait();
    } catch (...) {  // Finite() will say it
    }
    done_ = true;
  }
  bool Finite(int64_t slot) const override {
    std::call_once(waited_, [&] {
      place_.checked.Wait();
      if (!ProfilesRecord()) {
        place_.blended = false;
        return;
      }
      const auto add = [&](Stage stage, const OwnEvent& from, const OwnEvent& to, uint32_t row) {
        profile_.Add(stage, unit_, 0, clock_.When(from), clock_.When(to), row);
      };
      add(Stage::kCompute, place_.begun, place_.done, Profile::kModelRow);
      // Blending of the batch that had this place before: it came first on the same stream.
      if (place_.blended)
        add(Stage::kBlend, place_.blend_begin, place_.blend_end, Profile::kFinishRow);
      place_.blended = false;
    });
    return reinterpret_cast<const int32_t*>(place_.host_flags.get())[slot] == 0;
  }

 private:
  const std::shared_ptr<Ring> ring_;
  Place& place_;
  Profile& profile_;
  DeviceClock& clock_;
  const int64_t unit_;
  mutable std::once_flag waited_;
  mutable std::atomic<bool> done_{false};
};

void CudaLane::Watch::Run(int device) {
  static_cast<void>(cudaSetDevice(device));
  for (;;) {
    std::shared_ptr<const Output> output;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopping_ || !outputs_.empty(); });
      if (outputs_.empty()) return;
      output = std::move(outputs_.front());
      outputs_.pop_front();
    }
    output->WaitDone();
    output.reset();
    if (progress_) progress_();
  }
}

GpuModelOptions ModelOptionsOf(const EngineOptions& o, int device) {
  GpuModelOptions options;
  options.model = o.package.empty() ? o.model : o.package;
  options.at = o.model_at;
  options.device = device;
  options.dims = o.dims;
  options.channels_in = o.channels_in;
  options.channels_out = o.channels_out;
  options.tile = o.tile;
  for (int a = 0; a < 3; ++a) options.out_tile[a] = o.scale[a].Ceil(o.tile[a]);
  options.batch = o.numerics.batch;
  options.precision = o.numerics.precision;
  options.layout = o.numerics.layout;
  options.graph = o.graph;
  return options;
}

CudaLane::CudaLane(LaneContext context) : context_(std::move(context)) {
  Check(cudaSetDevice(context_.device), "cudaSetDevice");
  const GpuModelOptions options = ModelOptionsOf(context_.options, context_.device);
  model_ = LoadGpuModel(options);
  ring_ = std::make_shared<Ring>();
  for (int i = 0; i < options.ring; ++i) {
    auto place = std::make_unique<Place>(*context_.count);
    place->flags.Reserve(options.batch * 4);
    place->host_flags = context_.pinned->Take(options.batch * 4);
    ring_->places.push_back(std::move(place));
  }
  watch_ = std::make_unique<Watch>(context_);
}

CudaLane::~CudaLane() {
  watch_.reset();
  // What was asked of the device refers to places and model until it is done.
  if (model_) static_cast<void>(cudaStreamSynchronize(model_->stream()));
  static_cast<void>(cudaStreamSynchronize(check_));
  static_cast<void>(cudaStreamSynchronize(context_.gather));
  static_cast<void>(cudaStreamSynchronize(context_.finish));
}

void CudaLane::WaitForPlace() {
  std::unique_lock lock(ring_->mutex);
  ring_->changed.wait(lock, [&] { return ring_->places[next_]->free; });
}

CudaLane::Place& CudaLane::Next() {
  Place& place = *ring_->places[next_];
  if (gathering_) return place;
  // The input was last read by the forward pass before.
  if (place.used) place.done.MakeWait(context_.gather);
  gathering_ = true;
  unit_ = -1;
  return place;
}

void CudaLane::Gather(int64_t slot, UnitMemory& unit, int64_t run, int64_t count) {
  UnitState& state = static_cast<CudaUnit&>(unit).state();
  state.WaitLoaded();  // both without holding up others
  WaitForPlace();
  {
    const std::lock_guard lock(*context_.gathering);
    Next();
    if (unit_ < 0) unit_ = state.unit();
    state.Gather(model_->input(next_), slot, run, count, context_.gather);
  }
  context_.gathered();
}

void CudaLane::Repeat(int64_t from, int64_t to) {
  const std::lock_guard lock(*context_.gathering);
  const GpuTensor input = model_->input(next_);
  auto* const data = static_cast<std::byte*>(input.data);
  Check(cudaMemcpyAsync(data + to * input.slot_bytes, data + from * input.slot_bytes,
                        static_cast<size_t>(input.slot_bytes), cudaMemcpyDeviceToDevice,
                        context_.gather),
        "cudaMemcpyAsync of a slot", input.slot_bytes);
}

void CudaLane::Run(GpuModel& model, Place& place, int64_t slots, int index) {
  const cudaStream_t stream = model.stream();
  place.gathered.MakeWait(stream);
  if (place.used) place.read.MakeWait(stream);  // the output was last read by blending
  if (ProfilesRecord()) place.begun.Record(stream);
  place.output = model.Run(index);
  place.done.Record(stream);
  place.done.MakeWait(check_);
  auto* const flags = reinterpret_cast<int32_t*>(place.flags.data());
  const int64_t bytes = place.output.type == ModelType::kF32 ? 4 : 2;
  FindNonFinite(place.output.data, place.output.type, place.output.slot_bytes / bytes,
                static_cast<int32_t>(slots), flags, check_);
  Check(cudaMemcpyAsync(place.host_flags.get(), flags, static_cast<size_t>(slots) * 4,
                        cudaMemcpyDeviceToHost, check_),
        "cudaMemcpyAsync of flags", slots * 4);
  place.checked.Record(check_);
  // Blending, which comes after the look at the flags, records it anew.
  place.read.Record(check_);
  place.used = true;
}

std::shared_ptr<const BatchOutput> CudaLane::Forward() {
  Place& place = *ring_->places[next_];
  {
    const std::lock_guard lock(*context_.gathering);
    place.gathered.Record(context_.gather);
  }
  gathering_ = false;
  const int index = next_;
  next_ = (next_ + 1) % static_cast<int>(ring_->places.size());
  try {
    Run(*model_, place, context_.options.numerics.batch, index);
  } catch (const Error& e) {
    // What holds the memory may be this process itself, in pieces; a fresh one has none of that.
    if (freed_ && e.fault() == Fault::kTransient && context_.lost) {
      const bool memory = dynamic_cast<const OutOfDeviceMemory*>(&e) != nullptr;
      context_.lost(memory ? Loss::kMemory : Loss::kDevice, e.what());
    }
    throw;
  }
  freed_ = false;
  {
    const std::lock_guard lock(ring_->mutex);
    place.free = false;
  }
  auto output = std::make_shared<const Output>(ring_, place, context_, unit_);
  watch_->Add(output);
  return output;
}

void CudaLane::FreeMemory() {
  freed_ = true;
  FreeCaches();
}

std::shared_ptr<const BatchOutput> CudaLane::Careful(UnitMemory& unit, int64_t run) {
  if (context_.options.numerics.precision == "fp32") return nullptr;
  if (context_.options.compiled_only) return nullptr;  // there is but what was compiled
  UnitState& state = static_cast<CudaUnit&>(unit).state();
  try {
    return RunInF32(state, run);
  } catch (const OutOfDeviceMemory&) {
    FreeCaches();
  }
  try {
    return RunInF32(state, run);
  } catch (const OutOfDeviceMemory& e) {
    // Alone it might fit: neither the model nor the picture is to blame.
    const std::string why = "beside its form in " + context_.options.numerics.precision +
                            ", the fp32 one for values that are not finite: " + e.what();
    if (context_.lost) context_.lost(Loss::kMemory, why);
    throw OutOfDeviceMemory(Fault::kTransient, why);
  }
}

void CudaLane::LoadCarefulModel() {
  GpuModelOptions options = ModelOptionsOf(context_.options, context_.device);
  options.model = context_.options.model;  // a compiled one has its precision built in
  if (!context_.options.package.empty()) options.at.clear();  // that is the compiled one's
  options.precision = "fp32";
  options.layout = "nchw";
  options.batch = 1;
  options.graph = false;
  options.ring = 1;
  auto model = LoadGpuModel(options);
  auto ring = std::make_shared<Ring>();
  auto place = std::make_unique<Place>(*context_.count);
  place->flags.Reserve(4);
  place->host_flags = context_.pinned->Take(4);
  ring->places.push_back(std::move(place));
  careful_model_ = std::move(model);
  careful_ring_ = std::move(ring);
}

std::shared_ptr<const BatchOutput> CudaLane::RunInF32(UnitState& state, int64_t run) {
  if (!careful_model_) LoadCarefulModel();
  Place& place = *careful_ring_->places[0];
  {
    std::unique_lock lock(careful_ring_->mutex);
    careful_ring_->changed.wait(lock, [&] { return place.free; });
  }
  {
    const std::lock_guard lock(*context_.gathering);
    if (place.used) place.done.MakeWait(context_.gather);
    state.Gather(careful_model_->input(0), 0, run, 1, context_.gather);
    place.gathered.Record(context_.gather);
  }
  Run(*careful_model_, place, 1, 0);
  {
    const std::lock_guard lock(careful_ring_->mutex);
    place.free = false;
  }
  return std::make_shared<Output>(careful_ring_, place, context_, state.unit());
}

}  // namespace tilery::cuda
