// Quantise() of pipeline/formulas.h without a division in double, for integers of one or two bytes.
//
// v = y * scale + shift is computed in floats, wrong by less than a known guard. Where it lies
// nearer than that to a tie of rounding, the result is said to be doubtful, and the formula itself
// must decide; everywhere else the result is the formula's.
#pragma once

#include <cmath>
#include <cstdint>

#include "pipeline/formulas.h"

namespace tilery::cuda {

struct Quantiser {
  QuantiseTerms terms;
  // kSingle: one float holds v, for one byte; kDouble: the sum of two does; kFormula: neither.
  enum Way : int32_t { kSingle, kDouble, kFormula } way;
  float scale, scale_rest, shift, shift_rest;
  float lowest, highest;
  float sure;  // largest distance from an integer that leaves no doubt
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
  // No product, shift or sum that matters is larger. One float: each is rounded once, to 2^-24 of
  // it. Two floats: errors are below 2^-45 of it, and the last sum, of a value below 1, is rounded
  // to 2^-25.
  const double largest = t.highest - t.lowest + 2 + std::fabs(shift);
  const double guard_single = std::ldexp(3 * largest, -24);
  const double guard_double = std::ldexp(largest, -44) + std::ldexp(1.0, -23);
  const bool held = t.lowest >= -32768 && t.highest <= 65535 && largest < 4e6 &&
                    std::fabs(scale) > 1e-18 && std::fabs(scale) < 1e18;
  q.way = !held                                    ? Quantiser::kFormula
          : guard_single < 1e-3 && t.lowest == 0.0 ? Quantiser::kSingle
                                                   : Quantiser::kDouble;
  q.sure = static_cast<float>(0.5 - (q.way == Quantiser::kSingle ? guard_single : guard_double));
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

// Nearest integer, ties to even, for |v| < 2^22; and the same as an integer in the low bits.
TILERY_HD float NearestInteger(float v) {
  const float magic = 12582912.0f;  // 1.5 * 2^23
  return (v + magic) - magic;
}
TILERY_HD int32_t IntegerBits(float whole) {
  return static_cast<int32_t>(FloatBits(whole + 12582912.0f) - 0x4b400000u);
}

// What Quantise() gives, or something with *sure = false. Leaves *sure alone otherwise.
TILERY_HD int32_t QuantiseInteger(float y, const Quantiser& q, bool* sure) {
  if (q.way == Quantiser::kSingle) {
    float v = MultiplyAdd(y, q.scale, q.shift);
    v = v > q.lowest ? v : q.lowest;  // also what is not a number: `lowest` is 0
    v = v < q.highest ? v : q.highest;
    const float whole = NearestInteger(v), part = v - whole;
    if (!((part < 0 ? -part : part) <= q.sure)) *sure = false;
    return IntegerBits(whole);
  }
  if (q.way == Quantiser::kDouble) {
    const float product = y * q.scale;
    const float sum = product + q.shift;
    if (sum >= q.highest + 1) return IntegerBits(q.highest);
    if (sum <= q.lowest - 1) return IntegerBits(q.lowest);
    // What rounding took from the product and from the sum (Dekker, Knuth).
    const float product_rest = MultiplyAdd(y, q.scale, -product) + y * q.scale_rest;
    const float second = sum - product;
    const float sum_rest = (product - (sum - second)) + (q.shift - second);
    float whole = NearestInteger(sum);
    float part = (sum - whole) + ((product_rest + sum_rest) + q.shift_rest);
    const float carry = NearestInteger(part);
    whole += carry;
    part -= carry;
    if (!((part < 0 ? -part : part) <= q.sure)) *sure = false;  // also what is not a number
    whole = whole < q.lowest ? q.lowest : whole;
    return IntegerBits(whole > q.highest ? q.highest : whole);
  }
  *sure = false;
  return 0;
}

}  // namespace tilery::cuda
