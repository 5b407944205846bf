// The device of machines without a GPU: lanes are threads, memory is the host's.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "io/error.h"
#include "pipeline/buffer_pool.h"
#include "pipeline/cpu_model.h"
#include "pipeline/device.h"
#include "pipeline/ops.h"
#include "pipeline/run_order.h"
#include "pipeline/unit_input.h"

namespace tilery {
namespace {

// What a Transfer is prepared to: shared by all units that have an equal one.
struct Prepared {
  explicit Prepared(const Transfer& t) : transfer(t), tables(t), finalizer(t) {}
  const Transfer transfer;
  const InputTables tables;
  const Finalizer finalizer;
};

class CpuOutput final : public BatchOutput {
 public:
  CpuOutput(ModelOutput output, int64_t batch)
      : output_(std::move(output)), slot_values_(Values(output_) / batch) {}
  bool Finite(int64_t slot) const override { return AllFinite(this->slot(slot), slot_values_); }
  const float* slot(int64_t slot) const { return output_.data + slot * slot_values_; }

 private:
  static int64_t Values(const ModelOutput& output) {
    int64_t values = 1;
    for (int64_t extent : output.shape) values *= extent;
    return values;
  }
  ModelOutput output_;
  int64_t slot_values_;
};

class CpuUnit final : public UnitMemory {
 public:
  CpuUnit(const InferWork& work, std::shared_ptr<const Prepared> prepared, BufferPool& pool,
          int32_t channels_out)
      : work_(work),
        prepared_(std::move(prepared)),
        order_(*work.geometry, work.block, prepared_->transfer),
        input_(LookAtInput(work_, prepared_->tables, order_)),
        pool_(pool),
        channels_out_(channels_out) {
    const Transfer& t = prepared_->transfer;
    const Box cover = work_.geometry->unit_cover(work_.block);
    const int64_t size = t.accumulators * cover.voxels();
    buffer_ = pool_.Take(size);
    std::memset(buffer_.data.get(), 0, size * sizeof(float));
    sums_ = {buffer_.data.get(), cover, t.accumulators};
  }
  ~CpuUnit() override { GiveUpSums(); }

  int64_t nonfinite_in() const override { return input_.nonfinite_in; }
  const GatherSource& source() const { return input_.source; }
  const RunOrder& order() const { return order_; }
  const Pass& pass(size_t index) const { return prepared_->transfer.passes[index]; }

  void Blend(int64_t run, int64_t count, std::shared_ptr<const BatchOutput> output,
             int64_t slot) override {
    for (int64_t k = 0; k < count; ++k, ++run, ++slot) {
      const RunOrder::Position at = order_.At(run);
      for (size_t pass : order_.Before(run)) BlendPass(at.tile, pass, nullptr, 0);
      BlendPass(at.tile, at.pass, output.get(), slot);
      for (size_t pass : order_.After(run)) BlendPass(at.tile, pass, nullptr, 0);
    }
  }

  void BlendWithoutModel() override {
    for (int64_t tile = 0; tile < order_.tiles(); ++tile) {
      for (size_t p = 0; p < prepared_->transfer.passes.size(); ++p) {
        BlendPass(order_.TileAt(tile), p, nullptr, 0);
      }
    }
  }

  void Finalize(std::function<void(InferResult)> ready) override {
    InferResult result;
    try {
      result = Finished();
    } catch (...) {
      result = std::current_exception();
    }
    ready(std::move(result));
  }

 private:
  void BlendPass(const Index& tile, size_t index, const BatchOutput* output, int64_t slot) {
    const ItemGeometry& geometry = *work_.geometry;
    const TileWindow& wz = geometry.windows(0)[tile[0]];
    const TileWindow& wy = geometry.windows(1)[tile[1]];
    const TileWindow& wx = geometry.windows(2)[tile[2]];
    const Box box = geometry.grid().output_box(tile);
    const float* values;
    if (output != nullptr) {
      values = static_cast<const CpuOutput*>(output)->slot(slot);
    } else {
      direct_.resize(pass(index).in.size() * Product(box.shape()));
      DirectTile(input_.source, tile, pass(index), scratch_, direct_.data());
      values = direct_.data();
    }
    BlendTile(values, channels_out_, box, wz, wy, wx, pass(index), sums_);
  }

  InferOutput Finished() {
    const Transfer& t = prepared_->transfer;
    if (input_.source.replace_nonfinite && t.nonfinite == Transfer::NonFinite::kKeep) {
      RestoreNonFinite(input_.source, t.passes, sums_);
    }
    InferOutput out;
    for (SeamCell& cell : work_.geometry->seams(work_.block)) {
      out.seams.push_back(Interleaved(cell.box));
    }
    out.interior = work_.geometry->interior(work_.block);
    if (!out.interior.empty()) {
      out.interior_samples =
          SharedBytes(out.interior.voxels() * t.out_channels * DTypeSize(t.out_dtype));
      prepared_->finalizer.FromSums(
          sums_, out.interior,
          DenseView(out.interior_samples.data(), t.out_dtype, t.out_channels, out.interior.shape(),
                    Layout::kInterleaved));
    }
    GiveUpSums();
    return out;
  }

  SeamPartial Interleaved(const Box& box) const {
    SeamPartial out(box, sums_.channels);
    const int64_t row = box.extent(2);
    float* to = out.sums.get();
    for (int64_t z = box.begin[0]; z < box.end[0]; ++z) {
      for (int64_t y = box.begin[1]; y < box.end[1]; ++y, to += row * sums_.channels) {
        for (int64_t c = 0; c < sums_.channels; ++c) {
          const float* from = sums_.row(c, z, y) + box.begin[2] - sums_.box.begin[2];
          for (int64_t x = 0; x < row; ++x) to[x * sums_.channels + c] = from[x];
        }
      }
    }
    return out;
  }

  void GiveUpSums() {
    if (buffer_.data) pool_.Give(std::exchange(buffer_, {}));
    sums_ = {};
  }

  const InferWork work_;
  const std::shared_ptr<const Prepared> prepared_;
  const RunOrder order_;
  const UnitInput input_;
  BufferPool& pool_;
  const int32_t channels_out_;
  BufferPool::Buffer buffer_;
  Sums sums_;
  std::vector<float> scratch_, direct_;  // of passes without a model
};

std::vector<int64_t> BatchShape(const EngineOptions& o, int64_t channels, const Index& tile) {
  std::vector<int64_t> shape{o.numerics.batch, channels};
  shape.insert(shape.end(), tile.end() - o.dims, tile.end());
  return shape;
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (int64_t extent : shape) text += (text.size() > 1 ? "," : "") + std::to_string(extent);
  return text + "]";
}

// The model with the one shape of its batches.
class BatchModel {
 public:
  explicit BatchModel(const EngineOptions& o)
      : options_(o), model_(LoadCpuModel(o)), in_(BatchShape(o, o.channels_in, o.tile)) {
    Index tile;
    for (int a = 0; a < 3; ++a) tile[a] = o.scale[a].Ceil(o.tile[a]);
    out_ = BatchShape(o, o.channels_out, tile);
    Check(model_->Prepare(in_));  // the proof that a batch runs
  }

  ModelOutput Run(float* input) {
    ModelOutput output = model_->Run(input, in_);
    Check(output);
    return output;
  }

 private:
  void Check(const ModelOutput& output) const {
    if (output.shape == out_) return;
    throw Error(Fault::kModel, "model " + Printable(options_.model.native()) + " makes " +
                                   ShapeText(output.shape) + " of " + ShapeText(in_) + "; with " +
                                   std::to_string(options_.channels_out) +
                                   " output channels and scale " + options_.scale[0].ToString() +
                                   "," + options_.scale[1].ToString() + "," +
                                   options_.scale[2].ToString() + " it must make " +
                                   ShapeText(out_) + ": correct model.channels or model.scale");
  }

  const EngineOptions& options_;
  const std::unique_ptr<Model> model_;
  const std::vector<int64_t> in_;
  std::vector<int64_t> out_;
};

class CpuLane final : public Lane {
 public:
  CpuLane(BatchModel& model, const EngineOptions& options)
      : model_(model),
        batch_(options.numerics.batch),
        slot_values_(options.channels_in * Product(options.tile)),
        input_(new float[batch_ * slot_values_]) {}

  void Gather(int64_t slot, UnitMemory& unit, int64_t run, int64_t count) override {
    const auto& cpu = static_cast<const CpuUnit&>(unit);
    for (int64_t k = 0; k < count; ++k) {
      const RunOrder::Position at = cpu.order().At(run + k);
      GatherTile(cpu.source(), at.tile, cpu.pass(at.pass),
                 input_.get() + (slot + k) * slot_values_);
    }
  }
  void Repeat(int64_t from, int64_t to) override {
    std::copy_n(input_.get() + from * slot_values_, slot_values_, input_.get() + to * slot_values_);
  }
  std::shared_ptr<const BatchOutput> Forward() override {
    return std::make_shared<CpuOutput>(model_.Run(input_.get()), batch_);
  }
  std::shared_ptr<const BatchOutput> Careful(UnitMemory&, int64_t) override { return nullptr; }

 private:
  BatchModel& model_;
  const int64_t batch_, slot_values_;
  const std::unique_ptr<float[]> input_;  // [batch, channels, (z,) y, x]
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const EngineOptions& options)
      : options_(options), model_(options_), pool_(static_cast<size_t>(options.lanes) + 1) {}

  std::unique_ptr<Lane> MakeLane() override { return std::make_unique<CpuLane>(model_, options_); }

  std::unique_ptr<UnitMemory> Open(const InferWork& work) override {
    return std::make_unique<CpuUnit>(work, Prepare(*work.transfer), pool_, options_.channels_out);
  }

 private:
  std::shared_ptr<const Prepared> Prepare(const Transfer& transfer) {
    constexpr size_t kRemembered = 8;  // tables of 16-bit samples are 256 KiB per channel
    const std::lock_guard lock(mutex_);
    for (const auto& prepared : prepared_) {
      if (prepared->transfer == transfer) return prepared;
    }
    if (prepared_.size() == kRemembered) prepared_.erase(prepared_.begin());
    prepared_.push_back(std::make_shared<const Prepared>(transfer));
    return prepared_.back();
  }

  const EngineOptions options_;
  BatchModel model_;
  BufferPool pool_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<const Prepared>> prepared_;  // guarded by mutex_
};

}  // namespace

std::unique_ptr<Device> MakeCpuDevice(const EngineOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace tilery
