#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>

#include "io/error.h"
#include "pipeline/engine.h"
#include "pipeline/ops.h"

namespace tilery {
namespace {

constexpr int64_t kChunk =
    512;  // voxels finished at a time: planes of a few channels stay in the L1 cache

QuantiseTerms TermsOf(const Transfer& t, bool scaled) {
  if (!IsInteger(t.out_dtype)) return {};
  return {t.range_lo, t.range_hi - t.range_lo, HighestOf(t.out_dtype), LowestOf(t.out_dtype),
          scaled};
}

template <typename T>
void StoreIntegers(const float* __restrict from, int64_t count, const QuantiseTerms& terms,
                   double* __restrict rounded, std::byte* to, int64_t stride) {
  for (int64_t x = 0; x < count; ++x) rounded[x] = Quantise(from[x], terms);
  for (int64_t x = 0; x < count; ++x) {
    const T value = static_cast<T>(rounded[x]);
    std::memcpy(to + x * stride, &value, sizeof value);
  }
}

void StoreHalves(const float* from, int64_t count, std::byte* to, int64_t stride) {
  for (int64_t x = 0; x < count; ++x) {
    const uint16_t bits = FloatToHalf(from[x]);
    if ((bits & 0x7fff) == 0x7c00) {
      throw Error(Fault::kModel, "the result " + std::to_string(from[x]) +
                                     " does not fit f16, whose limit is 65504: set output.dtype "
                                     "to f32, or scale the result with output.post");
    }
    std::memcpy(to + x * stride, &bits, sizeof bits);
  }
}

template <typename T>
void StoreFloats(const float* from, int64_t count, std::byte* to, int64_t stride) {
  for (int64_t x = 0; x < count; ++x) {
    const T value = static_cast<T>(from[x]);
    std::memcpy(to + x * stride, &value, sizeof value);
  }
}

[[noreturn]] void Refuse(const std::string& why) {
  throw Error(Fault::kUsage, "output.post: " + why);
}

}  // namespace

struct Finalizer::Scratch {
  Scratch(int64_t channels) : planes(channels * kChunk), rounded(kChunk), top(kChunk) {}
  float* plane(int64_t c) { return planes.data() + c * kChunk; }
  std::vector<float> planes;    // [accumulators, kChunk], colours first, then alpha
  std::vector<double> rounded;  // also sums of softmax
  std::vector<float> top;       // largest of the channels
};

Finalizer::Finalizer(const Transfer& t)
    : post_(t.post),
      accumulators_(t.accumulators),
      dtype_(t.out_dtype),
      out_channels_(t.out_channels),
      colour_terms_(TermsOf(t, !t.labels)),
      alpha_terms_(TermsOf(t, true)),
      range_lo_(static_cast<float>(t.range_lo)),
      range_hi_(static_cast<float>(t.range_hi)) {
  std::vector<bool> alpha(t.accumulators, false);
  for (const Pass& pass : t.passes) {
    if (pass.out_begin < 0 || pass.out_begin + pass.out_count > t.accumulators) {
      throw Error(Fault::kInternal, "a pass writes beyond the " + std::to_string(t.accumulators) +
                                        " accumulator channels");
    }
    for (int32_t k = 0; k < pass.out_count; ++k) alpha[pass.out_begin + k] = pass.is_alpha;
  }
  for (int32_t c = 0; c < t.accumulators; ++c) (alpha[c] ? alphas_ : colours_).push_back(c);

  auto channels = static_cast<int64_t>(colours_.size());
  for (const PostOp& op : post_) {
    const size_t wanted = op.kind == PostOp::Kind::kClamp || op.kind == PostOp::Kind::kScale ? 2
                          : op.kind == PostOp::Kind::kThreshold                              ? 1
                                                                                             : 0;
    if (op.kind == PostOp::Kind::kLabels) {
      if (op.values.empty()) Refuse("labels needs at least one value");
    } else if (op.values.size() != wanted) {
      Refuse("an operation has " + std::to_string(op.values.size()) + " values and needs " +
             std::to_string(wanted));
    }
    if (op.kind == PostOp::Kind::kArgmax) channels = std::min<int64_t>(channels, 1);
  }
  const int64_t total = channels + static_cast<int64_t>(alphas_.size());
  if (total != t.out_channels) {
    Refuse("the operations leave " + std::to_string(total) + " channels, the output has " +
           std::to_string(t.out_channels));
  }
}

void Finalizer::ApplyPost(Scratch& scratch, int64_t count) const {
  auto channels = static_cast<int>(colours_.size());
  const auto each = [&](const auto& formula) {
    for (int c = 0; c < channels; ++c) {
      float* v = scratch.plane(c);
      for (int64_t x = 0; x < count; ++x) v[x] = formula(v[x]);
    }
  };
  for (const PostOp& op : post_) {
    switch (op.kind) {
      case PostOp::Kind::kClamp: {
        const auto lo = static_cast<float>(op.values[0]), hi = static_cast<float>(op.values[1]);
        each([lo, hi](float v) { return Clamp(v, lo, hi); });
        break;
      }
      case PostOp::Kind::kSigmoid:
        each([](float v) { return Sigmoid(v); });
        break;
      case PostOp::Kind::kThreshold: {
        const auto limit = static_cast<float>(op.values[0]);
        each([limit](float v) { return Threshold(v, limit); });
        break;
      }
      case PostOp::Kind::kScale: {
        const double a = op.values[0], b = op.values[1];
        each([a, b](float v) { return ScaleBy(v, a, b); });
        break;
      }
      case PostOp::Kind::kLabels: {
        const std::vector<double>& values = op.values;
        const auto last = static_cast<float>(values.size() - 1);
        each([&](float v) {
          return static_cast<float>(values[static_cast<size_t>(v > 0 ? (v < last ? v : last) : 0)]);
        });
        break;
      }
      case PostOp::Kind::kSoftmax: {
        // Softmax() of formulas.h with the loops over voxels inside: the same operations per voxel.
        float* top = scratch.top.data();
        double* sum = scratch.rounded.data();
        std::copy_n(scratch.plane(0), count, top);
        std::fill_n(sum, count, 0.0);
        for (int c = 1; c < channels; ++c) {
          const float* v = scratch.plane(c);
          for (int64_t x = 0; x < count; ++x) top[x] = v[x] > top[x] ? v[x] : top[x];
        }
        for (int c = 0; c < channels; ++c) {
          float* v = scratch.plane(c);
          for (int64_t x = 0; x < count; ++x) v[x] = Exp(v[x] - top[x]);
          for (int64_t x = 0; x < count; ++x) sum[x] += static_cast<double>(v[x]);
        }
        for (int c = 0; c < channels; ++c) {
          float* v = scratch.plane(c);
          for (int64_t x = 0; x < count; ++x) {
            v[x] = static_cast<float>(static_cast<double>(v[x]) / sum[x]);
          }
        }
        break;
      }
      case PostOp::Kind::kArgmax: {
        // Argmax() likewise: the first of the largest channels.
        float* top = scratch.top.data();
        float* best = scratch.plane(0);
        std::copy_n(best, count, top);
        std::fill_n(best, count, 0.0f);
        for (int c = 1; c < channels; ++c) {
          const float* v = scratch.plane(c);
          const auto index = static_cast<float>(c);
          for (int64_t x = 0; x < count; ++x) {
            best[x] = v[x] > top[x] ? index : best[x];
            top[x] = v[x] > top[x] ? v[x] : top[x];
          }
        }
        channels = std::min(channels, 1);
        break;
      }
    }
  }
}

void Finalizer::Chunk(Scratch& scratch, int64_t count, const View& out, int64_t z, int64_t y,
                      int64_t x) const {
  if (!colours_.empty()) ApplyPost(scratch, count);
  const auto alphas = static_cast<int64_t>(alphas_.size());
  for (int64_t c = 0; c < out_channels_; ++c) {
    const bool alpha = c >= out_channels_ - alphas;
    float* from = scratch.plane(
        alpha ? static_cast<int64_t>(colours_.size()) + c - (out_channels_ - alphas) : c);
    if (alpha) {
      for (int64_t i = 0; i < count; ++i) from[i] = Clamp(from[i], range_lo_, range_hi_);
    }
    const QuantiseTerms& terms = alpha ? alpha_terms_ : colour_terms_;
    double* rounded = scratch.rounded.data();
    std::byte* to = out.at(c, z, y, x);
    const int64_t stride = out.stride[3];
    switch (dtype_) {
      case DType::kU8:
        StoreIntegers<uint8_t>(from, count, terms, rounded, to, stride);
        break;
      case DType::kI8:
        StoreIntegers<int8_t>(from, count, terms, rounded, to, stride);
        break;
      case DType::kU16:
        StoreIntegers<uint16_t>(from, count, terms, rounded, to, stride);
        break;
      case DType::kI16:
        StoreIntegers<int16_t>(from, count, terms, rounded, to, stride);
        break;
      case DType::kU32:
        StoreIntegers<uint32_t>(from, count, terms, rounded, to, stride);
        break;
      case DType::kI32:
        StoreIntegers<int32_t>(from, count, terms, rounded, to, stride);
        break;
      case DType::kF16:
        StoreHalves(from, count, to, stride);
        break;
      case DType::kF32:
        StoreFloats<float>(from, count, to, stride);
        break;
      case DType::kF64:
        StoreFloats<double>(from, count, to, stride);
        break;
    }
  }
}

void Finalizer::FromSums(const Sums& sums, const Box& region, const View& out) const {
  Scratch scratch(accumulators_);
  const Index shape = region.shape();
  const auto colours = static_cast<int64_t>(colours_.size());
  for (int64_t z = 0; z < shape[0]; ++z) {
    for (int64_t y = 0; y < shape[1]; ++y) {
      for (int64_t x = 0; x < shape[2]; x += kChunk) {
        const int64_t count = std::min(kChunk, shape[2] - x);
        for (int64_t k = 0; k < accumulators_; ++k) {
          const int32_t c = k < colours ? colours_[k] : alphas_[k - colours];
          const float* from = sums.row(c, region.begin[0] + z, region.begin[1] + y) +
                              region.begin[2] + x - sums.box.begin[2];
          std::memcpy(scratch.plane(k), from, count * sizeof(float));
        }
        Chunk(scratch, count, out, z, y, x);
      }
    }
  }
}

void Finalizer::FromInterleaved(const float* sums, const Index& shape, const View& out) const {
  Scratch scratch(accumulators_);
  const auto colours = static_cast<int64_t>(colours_.size());
  for (int64_t z = 0; z < shape[0]; ++z) {
    for (int64_t y = 0; y < shape[1]; ++y) {
      for (int64_t x = 0; x < shape[2]; x += kChunk) {
        const int64_t count = std::min(kChunk, shape[2] - x);
        const float* from = sums + ((z * shape[1] + y) * shape[2] + x) * accumulators_;
        for (int64_t k = 0; k < accumulators_; ++k) {
          const int32_t c = k < colours ? colours_[k] : alphas_[k - colours];
          float* plane = scratch.plane(k);
          for (int64_t i = 0; i < count; ++i) plane[i] = from[i * accumulators_ + c];
        }
        Chunk(scratch, count, out, z, y, x);
      }
    }
  }
}

void FinalizeSums(const float* sums, const Index& shape, const Transfer& transfer,
                  const View& out) {
  if (out.dtype != transfer.out_dtype || out.channels != transfer.out_channels ||
      out.shape != shape) {
    throw Error(Fault::kInternal,
                "FinalizeSums: the output view is " + ShapeToString(out.shape, 3) + " of " +
                    std::to_string(out.channels) + " channels " + DTypeName(out.dtype) +
                    ", the sums are " + ShapeToString(shape, 3));
  }
  Finalizer(transfer).FromInterleaved(sums, shape, out);
}

}  // namespace tilery
