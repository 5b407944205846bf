// From stored samples to the model's input and from its output to stored samples. Plain data and
// the formulas' contract; devices implement them (pipeline/ops.h), all with the same bits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/dtype.h"

namespace tilery {

// One run of the model over a tile position. A picture with alpha has two: colours, then alpha as a
// gray picture. Gray into a 3-channel model is replicated, and the mean of its outputs (float64 sum
// in channel order, divided, rounded to f32 once) is the gray result.
struct Pass {
  enum class Op : uint8_t {
    kModel,
    kResize,  // no model: linear interpolation at the scale, coordinates (o + 0.5) / scale - 0.5,
              // edge
    kCopy,    // no model: scale 1 only
  };
  enum class Reduce : uint8_t { kEach, kMean };
  Op op = Op::kModel;
  Reduce reduce = Reduce::kEach;
  std::vector<int32_t> in;  // stored channel feeding each model input channel (bgr: {2, 1, 0})
  std::vector<int32_t>
      out;  // model output channel of each accumulator channel (kEach; bgr models: {2, 1, 0})
  int32_t out_begin = 0;  // first accumulator channel written
  int32_t out_count = 1;  // accumulator channels written
  bool is_alpha = false;  // clamped to the range's 0..1 at the end, excluded from `post`
  bool operator==(const Pass&) const = default;
};

struct PostOp {
  enum class Kind : uint8_t { kClamp, kSigmoid, kSoftmax, kArgmax, kThreshold, kScale, kLabels };
  Kind kind = Kind::kClamp;
  std::vector<double> values;  // clamp: [lo, hi] of the model's range; threshold: [x]; scale: [a,
                               // b] (y = a*x + b); labels: value of label 0, 1, ...
  bool operator==(const PostOp&) const = default;
};

// Model input = ((raw - raw_lo) / (raw_hi - raw_lo) * (range_hi - range_lo) + range_lo -
// mean) / std, all in
// float64, rounded to f32 once. For float samples raw_lo = range_lo and raw_hi = range_hi: as they
// are. Result: post in order on f32 values, then for integer outputs (y - range_lo) / (range_hi -
// range_lo) * HighestOf(dtype) in float64, clamped to the type and rounded half to even; labels
// (after argmax or threshold) are never scaled; floats come out unchanged (f16: rounded to nearest
// even).
//
// Stored samples that are not finite: the model sees range_lo in their place, the same in every
// tile that reads them. kKeep: output voxels that come from such a voxel (in a channel of their
// pass) are not a number in float outputs, stored 0 (which is range_lo) in integer ones, the first
// label in labels. kFill: they keep the model's answer. kFail: Error(kInput). A finite result
// beyond f16's range is Error(kModel).
struct Transfer {
  DType in_dtype = DType::kU8;
  double raw_lo = 0, raw_hi = 255;      // stored values that become range_lo, range_hi
  double range_lo = 0, range_hi = 1;    // the model's range
  std::vector<double> mean, std;        // per model input channel; empty = 0, 1
  int32_t model_in = 3, model_out = 3;  // channels of the model
  std::vector<Pass> passes;
  int32_t accumulators = 3;  // channels of sums, over all passes
  std::vector<PostOp> post;
  DType out_dtype = DType::kU8;
  int32_t out_channels = 3;  // after post, alpha included
  bool labels = false;       // post ends in labels
  enum class NonFinite : uint8_t { kKeep, kFill, kFail } nonfinite = NonFinite::kKeep;
  bool operator==(const Transfer&) const = default;
};

}  // namespace tilery
