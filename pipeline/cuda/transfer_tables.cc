#include "pipeline/cuda/transfer_tables.h"

#include <cuda_runtime_api.h>

#include <map>
#include <string>

#include "io/error.h"

namespace tilery::cuda {
namespace {

void Limit(int64_t value, int64_t limit, const char* what) {
  if (value <= limit) return;
  throw Error(Fault::kUsage, "the job has " + std::to_string(value) + " " + what +
                                 "; GPUs take at most " + std::to_string(limit) +
                                 ": run it with execution.devices: cpu");
}

}  // namespace

TransferTables::TransferTables(const Transfer& t, AllocationCount& count, cudaStream_t stream)
    : transfer(t),
      tables(t),
      finalizer(t),
      tiled_(t.passes.size() == 1 && t.passes[0].op == Pass::Op::kModel &&
             t.passes[0].out_begin == 0 && t.passes[0].out_count == t.accumulators) {
  Limit(t.model_in, kMaxInputs, "model input channels");
  Limit(t.accumulators, kMaxSums, "channels of sums");
  Limit(static_cast<int64_t>(t.post.size()), kMaxPost, "operations in output.post");
  std::map<const std::vector<float>*, const float*> put;  // channels often share one table
  for (int32_t c = 0; c < t.model_in; ++c) {
    const auto& values = tables.model(static_cast<size_t>(c)).values;
    if (values && !put.contains(values.get())) put[values.get()] = Put(*values, count, stream);
    model_values_.push_back(values ? put[values.get()] : nullptr);
  }
  for (const PostOp& op : t.post) {
    if (op.kind != PostOp::Kind::kLabels) continue;
    Limit(static_cast<int64_t>(op.values.size()), kMaxLabels, "labels");
    if (labels_ != nullptr) {
      throw Error(Fault::kUsage, "output.post: labels may stand once only");
    }
    const auto bytes = static_cast<int64_t>(op.values.size() * sizeof(double));
    buffers_.push_back(std::make_unique<DeviceBuffer>(count));
    std::byte* const to = buffers_.back()->Reserve(bytes);
    Check(cudaMemcpyAsync(to, op.values.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                          stream),
          "cudaMemcpyAsync of labels", bytes);
    labels_ = reinterpret_cast<const double*>(to);
    label_count_ = static_cast<int32_t>(op.values.size());
  }
  Check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  const bool mean = tiled_ && t.passes[0].reduce == Pass::Reduce::kMean;
  fused_ = tiled_ && (t.accumulators <= kMaxFused || (!mean && FinishesInParts(Finish())));
}

const float* TransferTables::Put(const std::vector<float>& values, AllocationCount& count,
                                 cudaStream_t stream) {
  const auto bytes = static_cast<int64_t>(values.size() * sizeof(float));
  buffers_.push_back(std::make_unique<DeviceBuffer>(count));
  std::byte* const to = buffers_.back()->Reserve(bytes);
  Check(cudaMemcpyAsync(to, values.data(), static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                        stream),
        "cudaMemcpyAsync of a table", bytes);
  return reinterpret_cast<const float*>(to);
}

InputChannel TransferTables::Channel(const InputTables::Channel& channel, int32_t stored,
                                     const float* values) const {
  InputChannel out{};
  out.stored = stored;
  out.terms = channel.terms;
  out.values = values;
  out.zero = channel.zero;
  out.filling = channel.filling;
  return out;
}

GatherTask TransferTables::Gather(const Pass& pass, PadMode pad, bool replace_nonfinite) const {
  GatherTask task{};
  task.dtype = transfer.in_dtype;
  task.pad = static_cast<Pad>(pad);
  task.replace_nonfinite = replace_nonfinite;
  task.channels = static_cast<int32_t>(pass.in.size());
  for (size_t c = 0; c < pass.in.size(); ++c) {
    task.channel[c] = Channel(tables.model(c), pass.in[c], model_values_[c]);
  }
  return task;
}

FinalizeTask TransferTables::Finish() const {
  const Transfer& t = transfer;
  FinalizeTask task{};
  for (int32_t c : finalizer.colours()) task.accumulator[task.colours++] = c;
  for (int32_t c : finalizer.alphas()) task.accumulator[task.colours + task.alphas++] = c;
  for (const PostOp& op : t.post) {
    const bool labelled = op.kind == PostOp::Kind::kLabels;
    task.post[task.posts++] = {static_cast<PostKind>(op.kind),
                               labelled || op.values.empty() ? 0 : op.values[0],
                               labelled || op.values.size() < 2 ? 0 : op.values[1]};
  }
  task.labels = labels_;
  task.label_count = label_count_;
  task.range_lo = finalizer.range_lo();
  task.range_hi = finalizer.range_hi();
  task.colour_terms = finalizer.colour_terms();
  task.alpha_terms = finalizer.alpha_terms();
  task.dtype = t.out_dtype;
  task.out_channels = t.out_channels;
  return task;
}

}  // namespace tilery::cuda
