#include "pipeline/cuda/gpu_bench.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "io/error.h"
#include "pipeline/batch_slots.h"
#include "pipeline/cuda/cuda_memory.h"
#include "pipeline/cuda/gpu_model.h"
#include "pipeline/cuda/host_tensor.h"
#include "pipeline/cuda/kernels.h"
#include "pipeline/model.h"

namespace tilery::cuda {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWindow = 0.010;      // seconds that one figure is taken over, at least
constexpr int kWindows = 5;            // of which the median counts
constexpr int kFewWindows = 3;         // where a batch takes as long as all of them
constexpr double kAwake = 0.1;         // seconds until a card that was idle has its full clock
constexpr int64_t kComparedTiles = 8;  // at most
constexpr int64_t kComparedBytes = 256 << 20;  // of fp32 outputs
constexpr int64_t kLeastReserve = 256 << 20;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int64_t UsualReserve(int64_t all) { return std::min(std::max(kLeastReserve, all / 20), all / 2); }

// What all models may take together.
int64_t ModelMemory(const TuneRequest& request, int device) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || device >= count) {
    static_cast<void>(cudaGetLastError());
    throw Error(Fault::kUsage, "cuda:" + std::to_string(device) + " is not there: this process " +
                                   "sees " + std::to_string(count) + " GPU(s)");
  }
  Check(cudaSetDevice(device), "cudaSetDevice");
  size_t free = 0, total = 0;
  Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  const auto there = static_cast<int64_t>(free) + MemoryOf(device).reserved;
  const int64_t all = request.memory > 0 ? std::min(request.memory, there) : there;
  const int64_t reserve = request.reserve > 0 ? request.reserve : UsualReserve(all);
  if (all > reserve) return all - reserve;
  throw Error(Fault::kUsage, "no GPU memory is left for the model: " + std::to_string(all) +
                                 " bytes may be taken, of which " + std::to_string(reserve) +
                                 " are kept for units; raise execution.gpu_memory, or use smaller "
                                 "units (execution.unit_memory)");
}

// Runs `model` so many times, one place after the other; seconds, by the device's clock.
double Timed(GpuModel& model, int ring, int64_t runs) {
  OwnEvent begin(true), end(true);
  begin.Record(model.stream());
  for (int64_t i = 0; i < runs; ++i) model.Run(static_cast<int>(i % ring));
  end.Record(model.stream());
  end.Wait();
  return SecondsBetween(begin, end);
}

// Seconds of a batch.
double BatchTime(GpuModel& model, int ring, double awake) {
  double once = Timed(model, ring, ring) / ring;
  for (const auto begin = Clock::now(); Since(begin) < awake;)
    once = Timed(model, ring, ring) / ring;
  const auto runs = std::max<int64_t>(1, std::llround(std::ceil(kWindow / std::max(once, 1e-7))));
  std::vector<double> times;
  for (int i = 0; i < (once > kWindows * kWindow ? kFewWindows : kWindows); ++i) {
    times.push_back(Timed(model, ring, runs) / static_cast<double>(runs));
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

// Which slots of a batch give a tile the same bytes, whatever is in the others. The model is used
// for the first time: its inputs hold the trial values, other ones in each slot.
class SlotCheck {
 public:
  SlotCheck(GpuModel& model, const GpuModelOptions& options)
      : model_(model), batch_(options.batch), in_(model.input(0)) {
    // Small outputs show less of a difference each.
    constexpr int64_t kValues = int64_t{1} << 22;
    const int64_t values = Product(options.out_tile) * options.channels_out;
    tiles_ = std::min(batch_, std::clamp<int64_t>(kValues / values, 3, 32));
    Copy(tiles_memory_.Reserve(tiles_ * in_.slot_bytes), Input(0), tiles_);
    hashes_memory_.Reserve(batch_ * static_cast<int64_t>(sizeof(uint64_t)));
  }

  std::vector<bool> Used() {
    std::vector<std::vector<uint64_t>> alone;
    for (int64_t tile = 0; tile < tiles_; ++tile) alone.push_back(HashesOf(tile, 1));
    std::vector<bool> used = SlotsThatAgree(alone);
    // With others beside it.
    const std::vector<uint64_t> mixed = HashesOf(0, tiles_);
    for (size_t slot = 0; slot < mixed.size(); ++slot) {
      if (!used[slot] || mixed[slot] == alone[slot % alone.size()][slot]) continue;
      const auto first = std::find(used.begin(), used.end(), true);
      std::fill(first + 1, used.end(), false);  // all others hold copies of its tile
      break;
    }
    return used;
  }

 private:
  // Of the outputs when the slots hold `count` tiles, from `first` on, again and again.
  std::vector<uint64_t> HashesOf(int64_t first, int64_t count) {
    Copy(Input(0), tiles_memory_.data() + first * in_.slot_bytes, count);
    for (int64_t have = count; have < batch_; have *= 2)
      Copy(Input(have), Input(0), std::min(have, batch_ - have));
    const GpuTensor out = model_.Run(0);
    auto* const hashes = reinterpret_cast<uint64_t*>(hashes_memory_.data());
    HashSlots(out.data, out.slot_bytes, static_cast<int32_t>(batch_), hashes, model_.stream());
    std::vector<uint64_t> host(static_cast<size_t>(batch_));
    Check(cudaMemcpyAsync(host.data(), hashes, host.size() * sizeof(uint64_t),
                          cudaMemcpyDeviceToHost, model_.stream()),
          "cudaMemcpyAsync of hashes");
    Check(cudaStreamSynchronize(model_.stream()), "cudaStreamSynchronize");
    return host;
  }

  std::byte* Input(int64_t slot) const {
    return static_cast<std::byte*>(in_.data) + slot * in_.slot_bytes;
  }
  void Copy(std::byte* to, const std::byte* from, int64_t slots) {
    Check(cudaMemcpyAsync(to, from, static_cast<size_t>(slots * in_.slot_bytes),
                          cudaMemcpyDeviceToDevice, model_.stream()),
          "cudaMemcpyAsync of slots", slots * in_.slot_bytes);
  }

  GpuModel& model_;
  const int64_t batch_;
  const GpuTensor in_;
  int64_t tiles_ = 0;
  AllocationCount count_{};
  DeviceBuffer tiles_memory_{count_}, hashes_memory_{count_};
};

}  // namespace

int64_t LeftForModels(int64_t memory) { return memory - UsualReserve(memory); }

struct GpuBench::State {
  const TuneRequest request;
  const int device;
  const Clock::time_point begin = Clock::now();
  const int64_t memory;
  bool awake = false;
  std::vector<float> tiles;  // for comparing, `count` of them
  int64_t count = 0;
  bool real = false;
  std::optional<std::vector<float>> reference;  // of the tiles, once it has been asked for
  std::string no_reference;

  State(const TuneRequest& the_request, int the_device)
      : request(the_request), device(the_device), memory(ModelMemory(the_request, the_device)) {
    const int64_t voxels = Product(request.tile);
    const int64_t values = voxels * request.channels_in;
    const Index out = OptionsOf({}).out_tile;
    const int64_t out_bytes = Product(out) * request.channels_out * 4;
    const int64_t most = std::clamp<int64_t>(kComparedBytes / out_bytes, 1, kComparedTiles);
    real = !request.tiles.empty();
    tiles = real ? request.tiles : TrialValues(most * values);
    if (tiles.size() % static_cast<size_t>(values) != 0) {
      throw Error(Fault::kUsage, "tuning: " + std::to_string(tiles.size()) +
                                     " values are no whole tiles of " + std::to_string(values));
    }
    count = std::min(most, static_cast<int64_t>(tiles.size()) / values);
    tiles.resize(static_cast<size_t>(count * values));
  }

  GpuModelOptions OptionsOf(const ModelForm& form) const {
    GpuModelOptions options;
    options.model = form.package < 0 ? request.model : request.packages.at(form.package);
    options.device = device;
    options.dims = request.dims;
    options.channels_in = request.channels_in;
    options.channels_out = request.channels_out;
    options.tile = request.tile;
    for (int a = 0; a < 3; ++a) options.out_tile[a] = request.scale[a].Ceil(request.tile[a]);
    options.batch = form.batch;
    options.precision = form.precision;
    options.layout = form.layout;
    options.graph = form.graph;
    options.ring = request.ring;
    return options;
  }

  // Of the tiles, f32, planar.
  std::vector<float> Outputs(const GpuModelOptions& options) const {
    std::vector<float> outputs;
    {
      const auto model = LoadGpuModel(options);
      const int64_t values = Product(options.tile) * options.channels_in;
      for (int64_t at = 0; at < count; at += options.batch) {
        const int64_t some = std::min(options.batch, count - at);
        WriteSlots(model->input(0), options.channels_in, options.batch, tiles.data() + at * values,
                   some, model->stream());
        const std::vector<float> part =
            ReadSlots(model->Run(0), options.channels_out, some, model->stream());
        outputs.insert(outputs.end(), part.begin(), part.end());
      }
    }
    FreeWorkspaces();
    return outputs;
  }

  void MakeReference() {
    if (reference || !no_reference.empty()) return;
    if (request.compiled_only) {
      no_reference = "there is no fp32 answer to compare with: the model runs only compiled";
      return;
    }
    GpuModelOptions options = OptionsOf({});
    options.graph = false;
    options.ring = 1;
    try {
      reference = Outputs(options);
    } catch (const Error& e) {
      if (e.fault() != Fault::kModel && e.fault() != Fault::kTransient) throw;
      no_reference = std::string("there is no fp32 answer to compare with: ") + e.what();
    }
  }
};

GpuBench::GpuBench(const TuneRequest& request, int device)
    : state_(std::make_unique<State>(request, device)) {
  if (request.lanes < 1 || request.ring < 1) {
    throw Error(Fault::kUsage, "tuning: " + std::to_string(request.lanes) + " lanes, ring of " +
                                   std::to_string(request.ring) + "; at least one of each");
  }
  LimitMemory(device, state_->memory / request.lanes);
}

GpuBench::~GpuBench() {
  try {
    LimitMemory(state_->device, 0);
  } catch (const std::exception&) {
    // The device is lost; whoever uses it next is told.
  }
}

Trial GpuBench::Measure(const ModelForm& form) {
  const auto begin = Clock::now();
  Trial trial;
  trial.form = form;
  const int64_t refusals = MemoryOf(state_->device).refusals;
  FreeWorkspaces();
  ResetPeak(state_->device);
  try {
    const GpuModelOptions options = state_->OptionsOf(form);
    const auto model = LoadGpuModel(options);
    std::vector<bool> used(1, true);
    if (form.batch > 1) used = SlotCheck(*model, options).Used();
    trial.slots = BatchSlots::Text(used);
    const double batch = BatchTime(*model, state_->request.ring, state_->awake ? 0 : kAwake);
    state_->awake = true;
    trial.tiles_per_s = static_cast<double>(std::count(used.begin(), used.end(), true)) / batch;
    trial.how = model->how();
  } catch (const Error& e) {
    if (e.fault() != Fault::kModel && e.fault() != Fault::kTransient) throw;
    const bool memory =
        e.fault() == Fault::kTransient || MemoryOf(state_->device).refusals > refusals;
    trial.end = memory ? Trial::End::kNoMemory : Trial::End::kFailed;
    trial.how = e.what();
    if (memory) {
      trial.how += " (models may take " + std::to_string(state_->memory) + " bytes of this GPU" +
                   (state_->request.lanes > 1
                        ? ", " + std::to_string(state_->request.lanes) + " lanes together)"
                        : ")");
    }
  }
  trial.bytes = MemoryOf(state_->device).peak_reserved * state_->request.lanes;
  FreeWorkspaces();
  trial.seconds = Since(begin);
  return trial;
}

OutputError GpuBench::ErrorOf(const ModelForm& form) {
  State& state = *state_;
  state.MakeReference();
  OutputError error;
  error.real_input = state.real;
  error.unknown = state.no_reference;
  if (!state.reference) return error;
  const std::vector<float> outputs = state.Outputs(state.OptionsOf(form));
  ErrorSum sum;
  sum.Add(state.reference->data(), outputs.data(), outputs.size());
  error = sum.error();
  error.real_input = state.real;
  error.tiles = state.count;
  return error;
}

std::variant<ModelForm, std::string> GpuBench::FormOf(int package) {
  try {
    const PackageFacts facts = FactsOf(state_->request.packages.at(package));
    return ModelForm{facts.precision, facts.batch, facts.layout, package, true};
  } catch (const Error& e) {
    return std::string(e.what());
  }
}

double GpuBench::seconds() const { return Since(state_->begin); }
int64_t GpuBench::memory() const { return state_->memory; }

TuneResult TuneOnGpu(const TuneRequest& request, int device) {
  GpuBench bench(request, device);
  TuneResult result = Tune(request, bench);
  result.memory = bench.memory();
  return result;
}

}  // namespace tilery::cuda
