// The arithmetic of the method vq: how the whole numbers of a leaf become inputs of a small
// network, what its layers compute, and what its outputs mean. docs/codec-vq.md has it in words.
//
// One copy for every device: both g++ and nvcc compile this file, and all of it is in integers, so
// that codes and what comes back from them are the same everywhere. C++17.
//
// A leaf of 8^3 voxels has 4^3 cells of 2^3. Voxels, cells and voxels of a cell are numbered
// x-major, z fastest. Each component of a vector is a leaf of its own.
#pragma once

#include <cstdint>

#include "pipeline/formulas.h"

namespace tilery {

inline constexpr int kVqCells = 64, kVqCodes = 256, kVqStages = 4;
inline constexpr int kVqWidth = 16;  // numbers of a code's vector

// Layers of the encoder: 4^3 voxels around a cell and which of them are active; 3^3 cells; one
// cell.
inline constexpr int kVqPatch = 128, kVqHidden = 32, kVqAround = 27 * kVqHidden, kVqSecond = 48;
// Of the decoder: 3^3 cells, each with its vector and which of its voxels are active; 3^3 cells;
// one.
inline constexpr int kVqCellInputs = kVqWidth + 8, kVqCodesAround = 27 * kVqCellInputs;
// Weights are in 1 / 2^shift, inputs and hidden values in sixteenths.
inline constexpr int kVqFirstShift = 6, kVqSecondShift = 8, kVqLastShift = 6, kVqCodesShift = 8;
inline constexpr int32_t kVqOne = 16, kVqMost = 127;

// How likely codes are: from the codes of 6 neighbouring cells, those of the cell in earlier
// stages, and how many of its voxels are active.
inline constexpr int kVqNeighbours = 6, kVqContexts = kVqNeighbours + kVqStages - 1 + 1;
inline constexpr int kVqNone = kVqCodes;  // no code: beyond the leaf, a cell without active voxels
inline constexpr int kVqPriorHidden = 32, kVqPriorShift = 6;

// What does not change, as tools/train_codec.py writes it, little-endian: [output][input].
struct VqTables {
  int8_t encoder_first[kVqHidden][kVqPatch];
  int8_t encoder_second[kVqSecond][kVqAround];
  int8_t encoder_last[kVqWidth][kVqSecond];
  int8_t decoder_first[kVqHidden][kVqCodesAround];
  int8_t decoder_second[kVqSecond][kVqAround];
  int8_t decoder_last[8][kVqSecond];
  int8_t codebooks[kVqStages][kVqCodes][kVqWidth];  // in sixteenths
  int8_t embeddings[kVqStages][kVqContexts][kVqCodes + 1][kVqPriorHidden];
  int8_t prior[kVqStages][kVqCodes][kVqPriorHidden];
  // In the unit of the sums of their layers.
  int32_t encoder_first_bias[kVqHidden], encoder_second_bias[kVqSecond],
      encoder_last_bias[kVqWidth];
  int32_t decoder_first_bias[kVqHidden], decoder_second_bias[kVqSecond], decoder_last_bias[8];
  int32_t prior_bias[kVqStages][kVqCodes];
};

// Where the numbers of a leaf lie: they are offset + spread of them, about.
struct VqPlace {
  int32_t offset;  // in 1 << VqOffsetShift(scale)
  uint8_t scale;   // 0: all numbers are the same
};

namespace vq {

TILERY_HD int BitWidth(uint64_t v) {
#if defined(__CUDA_ARCH__)
  return 64 - __clzll(static_cast<long long>(v));
#else
  return v == 0 ? 0 : 64 - __builtin_clzll(v);
#endif
}
TILERY_HD int32_t Clamp(int64_t v, int64_t least, int64_t most) {
  return static_cast<int32_t>(v < least ? least : v > most ? most : v);
}
// a / b to the nearest, halves upwards. b > 0.
TILERY_HD int64_t Divide(int64_t a, int64_t b) {
  const int64_t twice = 2 * a + b, whole = twice / (2 * b);
  return twice % (2 * b) < 0 ? whole - 1 : whole;
}

}  // namespace vq

// A spread in sixteenths has three bits behind its highest.
TILERY_HD uint8_t VqScale(uint64_t sixteenths) {
  if (sixteenths == 0) return 0;
  const int width = vq::BitWidth(sixteenths);
  const auto rest =
      static_cast<int>(width > 4 ? sixteenths >> (width - 4) : sixteenths << (4 - width));
  return static_cast<uint8_t>(8 * (width - 1) + (rest & 7) + 1);
}
TILERY_HD int64_t VqSpread(int scale) {  // in sixteenths
  const int width = (scale - 1) / 8 + 1;
  const int64_t rest = 8 + (scale - 1) % 8;
  return width > 4 ? rest << (width - 4) : rest >> (4 - width);
}
// Offsets are in units of an eighth to a quarter of the spread, at least 1.
TILERY_HD int VqOffsetShift(int scale) {
  const int shift = (scale - 1) / 8 - 6;
  return scale == 0 || shift < 0 ? 0 : shift;
}

// `sum`: of a leaf's active numbers, `count` of them; `distances` of these from Mean.
TILERY_HD int32_t VqMean(int64_t sum, int32_t count) {
  return static_cast<int32_t>(vq::Divide(sum, count));
}
TILERY_HD VqPlace VqPlaceOf(int32_t mean, int64_t distances, int32_t count) {
  VqPlace place;
  place.scale = VqScale(static_cast<uint64_t>(16 * distances / count + (distances > 0 ? 1 : 0)));
  place.offset = static_cast<int32_t>(vq::Divide(mean, int64_t{1} << VqOffsetShift(place.scale)));
  return place;
}
TILERY_HD int32_t VqOffset(const VqPlace& place) {
  return vq::Clamp(int64_t{place.offset} * (int64_t{1} << VqOffsetShift(place.scale)), -(1 << 26),
                   1 << 26);
}

// A number as the encoder takes it: 24 sixteenths are the mean distance.
TILERY_HD int8_t VqInput(int32_t number, int32_t offset, int64_t spread) {
  return static_cast<int8_t>(
      vq::Clamp(vq::Divide((int64_t{number} - offset) * (16 * 24), spread), -kVqMost, kVqMost));
}
// The other way round, from an output of the decoder.
TILERY_HD int32_t VqNumber(int32_t output, int32_t offset, int64_t spread) {
  return vq::Clamp(offset + vq::Divide(output * spread, 16 * 16 * 24), -(1 << 26), 1 << 26);
}

// Squared errors of a leaf, and how large they may be for a mean square of `goal`.
TILERY_HD int64_t VqAddSquare(int64_t squares, int32_t number, int32_t restored) {
  const int64_t off = vq::Clamp(int64_t{number} - restored, -(1 << 26), 1 << 26);
  return squares + off * off;
}
TILERY_HD int64_t VqMostSquares(double goal, int32_t count) {
  const double most = goal * count;
  return most < 9e18 ? static_cast<int64_t>(most) : int64_t{9000000000000000000};
}

// Sums of layers as what follows takes them.
TILERY_HD int8_t VqHidden(int32_t sum, int shift) {
  return static_cast<int8_t>(vq::Clamp((sum + (1 << (shift - 1))) >> shift, 0, kVqMost));
}
TILERY_HD int8_t VqVector(int32_t sum) {
  return static_cast<int8_t>(
      vq::Clamp((sum + (1 << (kVqLastShift - 1))) >> kVqLastShift, -kVqMost, kVqMost));
}
TILERY_HD int32_t VqOutput(int32_t sum) { return (sum + 2) >> 2; }

// Which voxels of a cell are active, bit (x * 2 + y) * 2 + z. `words`: of a leaf's mask, one for
// each x, bit y * 8 + z.
TILERY_HD int VqActive(const uint64_t* words, int cell) {
  const int x = cell / 16 * 2, y = cell / 4 % 4 * 2, z = cell % 4 * 2;
  int active = 0;
  for (int i = 0; i < 2; ++i) {
    const auto at = static_cast<int>(words[x + i] >> (y * 8 + z));
    active |= ((at & 3) | (at >> 8 & 3) << 2) << (4 * i);
  }
  return active;
}
TILERY_HD int VqVoxel(int cell, int corner) {
  return ((cell / 16 * 2 + corner / 4) * 8 + cell / 4 % 4 * 2 + corner / 2 % 2) * 8 + cell % 4 * 2 +
         corner % 2;
}

}  // namespace tilery
