// The scalar formulas between stored samples and the model, one copy for every device.
//
// Both g++ and nvcc compile this file; with contraction off (-ffp-contract=off, --fmad=false) and
// no function of a mathematical library, the same arguments give the same bits on a CPU and on a
// GPU. Sums of seams that are finished on the host therefore equal those finished on a device.
// C++17, no includes of ours.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define TILERY_HD __host__ __device__ inline
#else
#define TILERY_HD inline
#endif

namespace tilery {

// Stored value -> model input, see pipeline/transfer.h. `as_is` skips the range (floats as they
// are, so that not even rounding touches them); `centred` applies mean and std.
struct NormaliseTerms {
  double raw_lo, raw_span, range_span, range_lo, mean, std;
  bool as_is, centred;
};

TILERY_HD float Normalise(double raw, const NormaliseTerms& t) {
  double v = raw;
  if (!t.as_is) v = (v - t.raw_lo) / t.raw_span * t.range_span + t.range_lo;
  if (t.centred) v = (v - t.mean) / t.std;
  return static_cast<float>(v);
}

// Exponent all ones: infinities and NaN.
TILERY_HD uint32_t FloatBits(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits;
}
// The sign bit of the result is set exactly if `v` is not finite; results of many values may be
// or-ed.
TILERY_HD uint32_t NonFiniteSign(float v) { return (FloatBits(v) & 0x7fffffffu) + 0x00800000u; }
TILERY_HD bool IsFinite(float v) { return (NonFiniteSign(v) >> 31) == 0; }

// Nearest integer, ties to even, for |v| < 2^51: adding 1.5 * 2^52 leaves no bits behind the point.
TILERY_HD double RoundHalfEven(double v) {
  const double magic = 6755399441055744.0;
  return (v + magic) - magic;
}

// Result -> integer sample, still as a double: (y - range_lo) / range_span * highest, clamped to
// [lowest, highest], rounded half to even. Not a number becomes the stored 0, which is range_lo.
struct QuantiseTerms {
  double range_lo, range_span, highest, lowest;
  bool scaled;  // false for labels: only clamped and rounded
};

TILERY_HD double Quantise(float y, const QuantiseTerms& t) {
  double v = y;
  if (t.scaled) v = (v - t.range_lo) / t.range_span * t.highest;
  v = v == v ? v : 0.0;
  v = v < t.lowest ? t.lowest : v;
  v = v > t.highest ? t.highest : v;
  return RoundHalfEven(v);
}

// e^x with an error below 0.51 units in the last place of a float. x = k ln 2 + r with |r| <= ln 2
// / 2; e^r by its Taylor series up to r^11 / 11! (the rest is below 1e-14), all in double, 2^k by
// its bits. Below -104 the result is 0, above 89 it is infinite; not a number stays so.
TILERY_HD float Exp(float x) {
  double v = x;
  v = v < -110.0 ? -110.0 : v;
  v = v > 90.0 ? 90.0 : v;
  const double magic = 6755399441055744.0;
  const double shifted = v * 1.4426950408889634 + magic;
  const double k = shifted - magic;
  const double r = (v - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
  double p = 2.5052108385441718775e-8;
  p = p * r + 2.7557319223985890653e-7;
  p = p * r + 2.7557319223985890653e-6;
  p = p * r + 2.4801587301587301587e-5;
  p = p * r + 1.9841269841269841270e-4;
  p = p * r + 1.3888888888888888889e-3;
  p = p * r + 8.3333333333333333333e-3;
  p = p * r + 4.1666666666666666667e-2;
  p = p * r + 1.6666666666666666667e-1;
  p = p * r + 0.5;
  p = p * r + 1.0;
  p = p * r + 1.0;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits + 1023) << 52;  // the low bits of `shifted` are k in two's complement
  double power;
  memcpy(&power, &bits, sizeof power);
  return static_cast<float>(p * power);
}

// 1 / (1 + e^-x), rounded to f32 once after the division in double.
TILERY_HD float Sigmoid(float x) {
  return static_cast<float>(1.0 / (1.0 + static_cast<double>(Exp(-x))));
}

TILERY_HD float Clamp(float v, float lo, float hi) { return v < lo ? lo : (v > hi ? hi : v); }

TILERY_HD float Threshold(float v, float limit) { return v > limit ? 1.0f : 0.0f; }

// y = a x + b in double, rounded to f32 once.
TILERY_HD float ScaleBy(float v, double a, double b) {
  return static_cast<float>(a * static_cast<double>(v) + b);
}

// Softmax over `n` values that lie `stride` apart, in place: e^(x - max) over their sum, which is
// taken in channel order in double.
TILERY_HD void Softmax(float* v, int n, int64_t stride) {
  float top = v[0];
  for (int c = 1; c < n; ++c) top = v[c * stride] > top ? v[c * stride] : top;
  double sum = 0;
  for (int c = 0; c < n; ++c) {
    v[c * stride] = Exp(v[c * stride] - top);
    sum += static_cast<double>(v[c * stride]);
  }
  for (int c = 0; c < n; ++c) {
    v[c * stride] = static_cast<float>(static_cast<double>(v[c * stride]) / sum);
  }
}

// Index of the largest of `n` values that lie `stride` apart; the lowest index on a tie.
TILERY_HD int Argmax(const float* v, int n, int64_t stride) {
  int best = 0;
  for (int c = 1; c < n; ++c) best = v[c * stride] > v[best * stride] ? c : best;
  return best;
}

// Mean of `n` model outputs that lie `stride` apart: double sum in channel order, divided, rounded
// once.
TILERY_HD float MeanOf(const float* v, int n, int64_t stride) {
  double sum = 0;
  for (int c = 0; c < n; ++c) sum += static_cast<double>(v[c * stride]);
  return static_cast<float>(sum / n);
}

// Weight of a voxel from its three windows, see pipeline/window.h.
TILERY_HD float Weight(float wz, float wy, float wx) { return (wz * wy) * wx; }

// Linear interpolation of kResize: source position of output voxel `o` on an axis of scale num/den,
// as the lower neighbour and the share of the upper one. Positions count from the tile's first
// voxel.
struct LinearTap {
  int64_t below;
  double share;
};
TILERY_HD LinearTap ResizeTap(int64_t o, int64_t num, int64_t den) {
  // (o + 1/2) den / num - 1/2 = ((2 o + 1) den - num) / (2 num), floored in integers.
  const int64_t top = (2 * o + 1) * den - num, bottom = 2 * num;
  int64_t below = top / bottom;
  if (top % bottom < 0) --below;
  return {below, static_cast<double>(top - below * bottom) / static_cast<double>(bottom)};
}

}  // namespace tilery
