// Quantise() of pipeline/formulas.h without a division in double, for integers of one or two bytes.
// The result is the same for every argument.
//
// v = y * scale + shift is computed as a sum of two floats, wrong by far less than `guard`. Where
// it lies nearer than that to a tie of rounding, the formula itself decides; that is one value in
// millions.
#pragma once

#include <cmath>
#include <cstdint>

#include "pipeline/formulas.h"

namespace tilery::cuda {

struct Quantiser {
  QuantiseTerms terms;
  bool fast;
  float scale, scale_rest, shift, shift_rest;
  float lowest, highest;
  float guard;
};

inline Quantiser MakeQuantiser(const QuantiseTerms& t) {
  Quantiser q{};
  q.terms = t;
  const double scale = t.scaled ? t.highest / t.range_span : 1;
  const double shift = t.scaled ? -t.range_lo * scale : 0;
  q.scale = static_cast<float>(scale);
  q.scale_rest = static_cast<float>(scale - static_cast<double>(q.scale));
  q.shift = static_cast<float>(shift);
  q.shift_rest = static_cast<float>(shift - static_cast<double>(q.shift));
  q.lowest = static_cast<float>(t.lowest);
  q.highest = static_cast<float>(t.highest);
  // Products and sums stay below `largest`; their errors below 2^-45 of it. The last sum, of a
  // value below 1, is rounded to 2^-25.
  const double largest = t.highest - t.lowest + 2 + std::fabs(shift);
  q.guard = static_cast<float>(std::ldexp(largest, -44) + std::ldexp(1.0, -23));
  q.fast = t.lowest >= -32768 && t.highest <= 65535 && largest < 4e6 && std::fabs(scale) > 1e-18 &&
           std::fabs(scale) < 1e18;
  return q;
}

// x * y + z, rounded once.
TILERY_HD float MultiplyAdd(float x, float y, float z) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(x, y, z);
#else
  return std::fma(x, y, z);
#endif
}

// Nearest integer, ties to even, for |v| < 2^22.
TILERY_HD float NearestInteger(float v) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  return (v + magic) - magic;
}

// The same integer as Quantise(), for `terms` of a type of one or two bytes.
TILERY_HD int32_t QuantiseInteger(float y, const Quantiser& q) {
  if (q.fast) {
    const float product = y * q.scale;
    const float sum = product + q.shift;
    if (sum >= q.highest + 1) return static_cast<int32_t>(q.highest);
    if (sum <= q.lowest - 1) return static_cast<int32_t>(q.lowest);
    // What rounding took from the product and from the sum (Dekker, Knuth).
    const float product_rest = MultiplyAdd(y, q.scale, -product) + y * q.scale_rest;
    const float second = sum - product;
    const float sum_rest = (product - (sum - second)) + (q.shift - second);
    float whole = NearestInteger(sum);
    float part = (sum - whole) + ((product_rest + sum_rest) + q.shift_rest);
    const float carry = NearestInteger(part);
    whole += carry;
    part -= carry;
    if ((part < 0 ? -part : part) < 0.5f - q.guard) {  // false for what is not a number
      whole = whole < q.lowest ? q.lowest : whole;
      return static_cast<int32_t>(whole > q.highest ? q.highest : whole);
    }
  }
  return static_cast<int32_t>(Quantise(y, q.terms));
}

}  // namespace tilery::cuda
