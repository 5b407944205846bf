#include "scheduler/transfer_rules.h"

#include <algorithm>
#include <numeric>

#include "io/error.h"
#include "scheduler/item_rules.h"

namespace tilery {
namespace {

using Op = Pass::Op;
using Reduce = Pass::Reduce;

std::vector<int32_t> Channels(int32_t count, bool reversed) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  if (reversed) std::reverse(out.begin(), out.end());
  return out;
}

std::vector<double> PerChannel(const std::optional<std::vector<double>>& values, int32_t channels,
                               const char* key) {
  if (!values) return {};
  if (values->size() == 1) return std::vector<double>(static_cast<size_t>(channels), (*values)[0]);
  if (values->size() != static_cast<size_t>(channels)) {
    throw Error(Fault::kUsage, std::string(key) + " has " + std::to_string(values->size()) +
                                   " values, but the model takes " + std::to_string(channels) +
                                   " channels; give one, or one per channel");
  }
  return *values;
}

// Puts one stored channel through the model as a gray picture.
Pass GrayPass(int32_t channel, int32_t model_in, int32_t model_out, int32_t out_begin) {
  Pass pass;
  pass.in.assign(static_cast<size_t>(model_in), channel);
  pass.reduce = model_out == 1 ? Reduce::kEach : Reduce::kMean;
  pass.out = Channels(model_out, false);
  pass.out_begin = out_begin;
  pass.out_count = 1;
  return pass;
}

}  // namespace

PostResult JudgePost(const std::vector<PostOp>& post, int32_t channels_out) {
  PostResult result;
  const auto refuse = [&](const std::string& what) {
    throw Error(Fault::kUsage, "output.post: " + what);
  };
  for (const PostOp& op : post) {
    switch (op.kind) {
      case PostOp::Kind::kSigmoid:
        result.probabilities = true;
        break;
      case PostOp::Kind::kSoftmax:
      case PostOp::Kind::kArgmax:
        if (channels_out < 2) {
          refuse(std::string(op.kind == PostOp::Kind::kArgmax ? "argmax" : "softmax") +
                 " over 1 channel says nothing; for one channel use {threshold: x} or sigmoid");
        }
        if (op.kind == PostOp::Kind::kSoftmax) {
          result.probabilities = true;
        } else {
          result.labels = true;
          for (int32_t c = 0; c < channels_out; ++c) result.values.push_back(c);
        }
        break;
      case PostOp::Kind::kThreshold:
        result.labels = true;
        result.values = {0, 1};
        break;
      case PostOp::Kind::kLabels:
        if (op.values.size() != result.values.size()) {
          refuse("labels has " + std::to_string(op.values.size()) + " values, but " +
                 std::to_string(result.values.size()) + " labels can occur");
        }
        result.values = op.values;
        break;
      case PostOp::Kind::kClamp:
      case PostOp::Kind::kScale:
        break;
    }
  }
  result.probabilities = result.probabilities && !result.labels;
  return result;
}

std::string FillPasses(const Job& job, const Contract& contract, const Header& header,
                       const PostResult& post, bool scaled, bool may_keep_alpha, Transfer& t,
                       AlphaKind& alpha) {
  t.model_in = *contract.channels_in;
  t.model_out = *contract.channels_out;
  t.in_dtype = header.dtype;
  t.range_lo = contract.range ? (*contract.range)[0] : 0;
  t.range_hi = contract.range ? (*contract.range)[1] : 1;
  t.mean = PerChannel(contract.mean, t.model_in, "model.mean");
  t.std = PerChannel(contract.std, t.model_in, "model.std");
  if (job.input.normalize) {
    t.raw_lo = (*job.input.normalize)[0];
    t.raw_hi = (*job.input.normalize)[1];
  } else if (IsInteger(header.dtype)) {
    // The stored 0 is the low end for signed types too, as on the way out: so 0 stays 0 and a model
    // that changes nothing gives back what it got.
    t.raw_lo = 0;
    t.raw_hi = HighestOf(header.dtype);
  } else {
    t.raw_lo = t.range_lo;
    t.raw_hi = t.range_hi;
  }
  t.nonfinite = job.input.nonfinite;
  t.labels = post.labels;
  t.post = job.outputs.at(0).post;
  for (PostOp& op : t.post) {
    if (op.kind == PostOp::Kind::kClamp) op.values = {t.range_lo, t.range_hi};
  }

  const bool bgr = contract.order && *contract.order == "bgr";
  const bool picture =
      (t.model_out == 1 || t.model_out == 3) && !post.labels && !post.probabilities;
  const bool alpha_is_data = header.alpha != AlphaKind::kNone && header.channels == t.model_in &&
                             t.model_in != 1 && t.model_in != 3;
  const int32_t colours = alpha_is_data ? header.channels : ColoursOf(header);
  Pass colour;
  if (colours == t.model_in) {
    colour.in = Channels(colours, bgr && colours == 3);
    colour.out = Channels(t.model_out, bgr && t.model_out == 3 && picture);
    colour.out_count = t.model_out;
  } else if (colours == 1 && t.model_in == 3) {
    if (picture) {
      colour = GrayPass(0, t.model_in, t.model_out, 0);
    } else {
      colour.in.assign(3, 0);
      colour.out = Channels(t.model_out, false);
      colour.out_count = t.model_out;
    }
  } else {
    return "has " + std::to_string(colours) + " channel(s), but the model takes " +
           std::to_string(t.model_in) +
           (colours == 3 && t.model_in == 1
                ? "; convert it to gray, or use a model of 3 channels"
                : "; use a model that takes " + std::to_string(colours) +
                      ", or correct model.channels");
  }
  t.passes = {colour};
  t.accumulators = colour.out_count;
  const bool argmax = std::any_of(t.post.begin(), t.post.end(), [](const PostOp& op) {
    return op.kind == PostOp::Kind::kArgmax;
  });
  t.out_channels = argmax ? 1 : colour.out_count;
  alpha = AlphaKind::kNone;
  if (header.alpha == AlphaKind::kNone) return "";
  if (alpha_is_data) {
    if (t.model_out == header.channels && !post.labels && !post.probabilities) alpha = header.alpha;
    return "";
  }
  AlphaMode mode = job.input.alpha;
  if (mode == AlphaMode::kAuto) mode = picture ? AlphaMode::kModel : AlphaMode::kDrop;
  if (mode == AlphaMode::kDrop || !may_keep_alpha) return "";
  if (post.labels) return "has alpha, which labels can't carry; set input.alpha: drop";
  Pass pass;
  const int32_t channel = header.channels - 1;
  if (mode == AlphaMode::kModel) {
    if ((t.model_in != 1 && t.model_in != 3) || (t.model_out != 1 && t.model_out != 3)) {
      return "has alpha, which a model from " + std::to_string(t.model_in) + " to " +
             std::to_string(t.model_out) +
             " channels can't take as a gray picture; set input.alpha: "
             "resize, copy or drop";
    }
    pass = GrayPass(channel, t.model_in, t.model_out, t.accumulators);
  } else {
    if (mode == AlphaMode::kCopy && scaled) {
      return "has alpha, which input.alpha: copy can't bring to the model's scale; set it to "
             "resize, "
             "model or drop";
    }
    pass.op = mode == AlphaMode::kCopy ? Op::kCopy : Op::kResize;
    pass.in = {channel};
    pass.out = {0};
    pass.out_begin = t.accumulators;
  }
  pass.is_alpha = true;
  t.passes.push_back(pass);
  t.accumulators += 1;
  t.out_channels += 1;
  alpha = header.alpha;
  return "";
}

}  // namespace tilery
