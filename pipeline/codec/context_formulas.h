// The context model of the grid codec, voxel by voxel: what is predicted from the neighbours that
// are known, what the network sees, and what its outputs mean. docs/codec-model.md has the formulas
// in words.
//
// One copy for every device: both g++ and nvcc compile this file, and all of it is in integers, so
// that what one device writes, any other reads. C++17.
//
// Voxels are coded in blocks of kContextSide^3, in waves t = 4x + 2y + z: each neighbour that is
// looked at for its value lies in an earlier wave, and the voxels of a wave do not need each other.
#pragma once

#include <cstdint>

#include "pipeline/formulas.h"

namespace tilery {

inline constexpr int kContextSide = 32;
// A block in memory has borders for neighbours beyond it: x-major, z fastest.
inline constexpr int kContextBelow = 2, kContextPadded = kContextBelow + kContextSide + 1;
inline constexpr int kContextVoxels = kContextPadded * kContextPadded * kContextPadded;
inline constexpr int kContextWaves = 7 * (kContextSide - 1) + 1;

inline constexpr int kContextTouching = 3, kContextNear = 13, kContextErrors = 16,
                     kContextCausal = 20;
inline constexpr int kContextAround = 2 * kContextNear;  // of an earlier component, on all sides
inline constexpr int kContextComponents = 3;
// Weights of a component's prediction, in 1/4096: of the causal neighbours, of those around in the
// component before and in the one before that, and of one.
inline constexpr int kContextTerms = kContextCausal + 2 * kContextAround + 1;

inline constexpr int kContextInputs = 80, kContextHidden = 32, kContextSecond = 16,
                     kContextOutputs = 9, kContextMixture = 3;
// Symbols of a value's distance from its prediction, in units; the first and last are escapes.
inline constexpr int kContextSymbols = 64;
inline constexpr int kContextMiddle = kContextSymbols / 2;
inline constexpr uint32_t kContextWhole = 1 << 16;  // what the probabilities of symbols sum up to

// Values are told in sixteenths, within this.
inline constexpr int32_t kContextMost = 1 << 30;

#if defined(__CUDA_ARCH__)
#define TILERY_UNROLLED _Pragma("unroll")
#else
#define TILERY_UNROLLED
#endif

// What does not change: made once (ContextModel()), copied to devices as it is.
struct ContextTables {
  // Layers of the network, in 1/1024: [output][input]; biases in the unit of the layer's sums.
  int16_t first[kContextHidden][kContextInputs];
  int16_t second[kContextSecond][kContextHidden];
  int16_t last[kContextOutputs][kContextSecond];
  int32_t first_bias[kContextHidden], second_bias[kContextSecond], last_bias[kContextOutputs];
  // 2^16 exp(-i / 256).
  uint32_t share[2048];
  // 1024 exp(-i / 256), from i = kLeastScale on.
  static constexpr int kLeastScale = -1024, kMostScale = 768;
  uint32_t inverse[kMostScale - kLeastScale + 1];
  // 2^16 / (1 + exp(-i / 64)), less at the upper end, from i = -kFarthest on.
  static constexpr int kFarthest = 12 * 64;
  uint32_t logistic[2 * kFarthest + 2];
  // 16 log2(1 + i / 16), rounded.
  uint8_t log2[16];
};

// The voxels of a block in the order of coding: by waves, and within these by x, then y.
struct ContextWaves {
  int32_t begin[kContextWaves + 1];                        // of the waves, in `at`
  int32_t at[kContextSide * kContextSide * kContextSide];  // in memory
};
inline constexpr int kContextWaveMost = 256;  // voxels of the largest wave

// Where a leaf of a block begins in memory. `place`: (x * 4 + y) * 4 + z.
TILERY_HD int ContextLeaf(int place) {
  return ((place / 16 * 8 + kContextBelow) * kContextPadded + place / 4 % 4 * 8 + kContextBelow) *
             kContextPadded +
         place % 4 * 8 + kContextBelow;
}
// `voxel`: (x * 8 + y) * 8 + z.
TILERY_HD int ContextVoxel(int voxel) {
  return (voxel / 64 * kContextPadded + voxel / 8 % 8) * kContextPadded + voxel % 8;
}

// What a component of a grid is coded by.
struct ContextComponent {
  int16_t weights[kContextTerms];
  int32_t least, most;  // of the component's values
};

// What is known of a block; memory of kContextVoxels each, 0 where nothing is.
struct ContextBlock {
  const uint8_t* active;
  // Of the component that is coded and those before it.
  const int32_t* values[kContextComponents];
  // How far values are from their prediction, in sixteenths.
  const int32_t* errors[kContextComponents];
  int component;
};

struct ContextPrediction {
  int32_t value;   // in sixteenths
  int32_t mean;    // likewise: of those that touch, if there are some
  int32_t spread;  // mean distance of the known from `mean`
  int32_t known;
};

namespace context {

// Where neighbours lie in a block in memory: those that touch, those at edges and at corners, and
// some of the next but one. What lies opposite the first kContextNear comes later.
TILERY_HD int Causal(int i) {
  constexpr int kX = kContextPadded * kContextPadded, kY = kContextPadded;
  constexpr int kOffsets[kContextCausal] = {
      -kX,     -kY,     -1,           -kX - kY,     -kX - 1,      -kX + 1,      -kX + kY,
      -kY - 1, -kY + 1, -kX - kY - 1, -kX - kY + 1, -kX + kY - 1, -kX + kY + 1, -2,
      -2 * kY, -2 * kX, -kY - 2,      -2 * kY - 1,  -kX - 2,      -2 * kX - 1};
  return kOffsets[i];
}
TILERY_HD int Around(int i) { return i < kContextNear ? Causal(i) : -Causal(i - kContextNear); }

TILERY_HD int32_t Clamp(int64_t v, int64_t least, int64_t most) {
  return static_cast<int32_t>(v < least ? least : v > most ? most : v);
}
TILERY_HD int BitWidth(uint32_t v) {
#if defined(__CUDA_ARCH__)
  return 32 - __clz(static_cast<int>(v));
#else
  return v == 0 ? 0 : 32 - __builtin_clz(v);
#endif
}

// 16 log2 of sixteenths and one more, from -64 on.
TILERY_HD int8_t Log(const ContextTables& tables, int32_t sixteenths) {
  const uint32_t v = static_cast<uint32_t>(sixteenths) + 1;
  const int length = BitWidth(v) - 1;
  const uint32_t rest = length >= 4 ? v >> (length - 4) : v << (4 - length);
  return static_cast<int8_t>(Clamp(16 * length + tables.log2[rest & 15] - 64, -127, 127));
}

}  // namespace context

// Calls use(term, distance in sixteenths) for what the prediction of a voxel is a weighted sum of:
// how far the known neighbours are from their mean, and those in earlier components from the
// voxel's value there; 0 for what is not known.
template <typename Use>
TILERY_HD ContextPrediction ForTerms(const ContextBlock& block, int at, const Use& use) {
  using context::Clamp;
  const int32_t* const values = block.values[block.component];
  int32_t known[kContextCausal];
  int64_t value[kContextCausal];
  TILERY_UNROLLED
  for (int i = 0; i < kContextCausal; ++i) {
    const int to = at + context::Causal(i);
    known[i] = block.active[to];
    value[i] = int64_t{values[to]} * 16;
  }
  int64_t near_sum = 0, all_sum = 0;
  int32_t near = 0, all = 0;
  TILERY_UNROLLED
  for (int i = 0; i < kContextCausal; ++i) {
    all += known[i];
    all_sum += value[i];
    if (i + 1 == kContextTouching) {
      near = all;
      near_sum = all_sum;
    }
  }
  ContextPrediction prediction;
  // Within 2^30.
  const int32_t mean = static_cast<int32_t>(near > 0  ? near_sum / near
                                            : all > 0 ? all_sum / all
                                                      : 0);
  int64_t spread = 0;
  TILERY_UNROLLED
  for (int i = 0; i < kContextCausal; ++i) {
    const int32_t off = known[i] != 0 ? Clamp(value[i] - mean, -kContextMost, kContextMost) : 0;
    spread += off < 0 ? -off : off;
    use(i, off);
  }
  for (int before = 1; before <= block.component; ++before) {
    const int32_t* const others = block.values[block.component - before];
    const int first = kContextCausal + (before - 1) * kContextAround;
    const int64_t here = int64_t{others[at]} * 16;
    TILERY_UNROLLED
    for (int i = 0; i < kContextAround; ++i) {
      const int to = at + context::Around(i);
      const int64_t off = int64_t{others[to]} * 16 - here;
      use(first + i, block.active[to] != 0 ? Clamp(off, -kContextMost, kContextMost) : 0);
    }
  }
  prediction.value = prediction.mean = mean;
  prediction.spread = static_cast<int32_t>(all > 0 ? spread / all : 0);
  prediction.known = all;
  return prediction;
}

TILERY_HD ContextPrediction Predict(const ContextComponent& component, const ContextBlock& block,
                                    int at) {
  int64_t sum = int64_t{component.weights[kContextTerms - 1]} * 16;
  ContextPrediction prediction = ForTerms(
      block, at, [&](int term, int32_t off) { sum += int64_t{component.weights[term]} * off; });
  if (prediction.known >= kContextTouching)
    prediction.value =
        context::Clamp(prediction.mean + ((sum + (1 << 11)) >> 12), -kContextMost, kContextMost);
  return prediction;
}

TILERY_HD int32_t ContextError(int32_t value, const ContextPrediction& prediction) {
  return context::Clamp(int64_t{value} * 16 - prediction.value, -kContextMost, kContextMost);
}

// Fills `inputs` for the network. Returns the shift: a unit is 2^shift steps of a value.
TILERY_HD int ContextInputs(const ContextTables& tables, const ContextComponent& component,
                            const ContextBlock& block, int at, const ContextPrediction& prediction,
                            int8_t* inputs) {
  using context::Clamp;
  using context::Log;
  const int c = block.component;
  const int32_t* const errors = block.errors[c];
  int64_t wrong = 0;
  int known = 0;
  TILERY_UNROLLED
  for (int i = 0; i < kContextErrors; ++i) {
    const int to = at + context::Causal(i);
    const int32_t error = errors[to];
    known += block.active[to];
    wrong += error < 0 ? -error : error;
  }
  const int32_t activity = static_cast<int32_t>(known > 0 ? wrong / known : 0);
  const int shift = Clamp(context::BitWidth(static_cast<uint32_t>(activity)) - 6, 0, 24);
  // Eighths of a unit.
  const auto scaled = [shift](int64_t sixteenths) {
    return static_cast<int8_t>(
        Clamp((sixteenths + (int64_t{1} << shift)) >> (shift + 1), -127, 127));
  };
  int8_t* to_input = inputs;
  TILERY_UNROLLED
  for (int i = 0; i < kContextCausal; ++i) {
    const int to = at + context::Causal(i);
    *to_input++ = block.active[to] != 0
                      ? scaled(int64_t{block.values[c][to]} * 16 - prediction.value)
                      : static_cast<int8_t>(0);
  }
  TILERY_UNROLLED
  for (int i = 0; i < kContextCausal; ++i)
    *to_input++ = static_cast<int8_t>(16 * block.active[at + context::Causal(i)]);
  TILERY_UNROLLED
  for (int i = 0; i < kContextNear; ++i)
    *to_input++ = static_cast<int8_t>(16 * block.active[at - context::Causal(i)]);
  TILERY_UNROLLED
  for (int i = 0; i < kContextErrors; ++i) *to_input++ = scaled(errors[at + context::Causal(i)]);
  *to_input++ = scaled(int64_t{prediction.mean} - prediction.value);
  *to_input++ = scaled(int64_t{prediction.value} - int64_t{component.least} * 16);
  *to_input++ = scaled(int64_t{component.most} * 16 - prediction.value);
  *to_input++ = scaled(-int64_t{prediction.value});
  *to_input++ = Log(tables, prediction.spread);
  *to_input++ = Log(tables, activity);
  *to_input++ = static_cast<int8_t>(4 * prediction.known);
  *to_input++ = static_cast<int8_t>(16 * c);
  *to_input++ = c > 0 ? scaled(block.errors[c - 1][at]) : static_cast<int8_t>(0);
  *to_input++ = c > 1 ? scaled(block.errors[c - 2][at]) : static_cast<int8_t>(0);
  int64_t later = 0;
  int count = 0;
  if (c > 0) {
    TILERY_UNROLLED
    for (int i = 0; i < kContextNear; ++i) {
      const int32_t error = block.errors[c - 1][at - context::Causal(i)];
      later += error < 0 ? -error : error;
      count += block.active[at - context::Causal(i)];
    }
  }
  *to_input++ =
      count > 0 ? Log(tables, static_cast<int32_t>(later / count)) : static_cast<int8_t>(0);
  return shift;
}

// A sum of a layer as the next one takes it.
TILERY_HD int32_t ContextHidden(int32_t sum, bool first) {
  const int32_t v = first ? (sum + 32) >> 6 : (sum + 512) >> 10;
  return v < 0 ? 0 : v > 8191 ? 8191 : v;
}
TILERY_HD int32_t ContextOutput(int32_t sum) {
  return context::Clamp((int64_t{sum} + 512) >> 10, -32768, 32767);
}

}  // namespace tilery
