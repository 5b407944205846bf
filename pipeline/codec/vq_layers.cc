#include "pipeline/codec/vq_layers.h"

#include <cstring>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tilery {
namespace {

// Where the runs of inputs of a cell begin, from its first one on.
template <int kInputs>
struct Around {
  static constexpr int kRuns = 9, kRun = 3 * kInputs;
  static constexpr int Offset(int run) {
    return ((run / 3 - 1) * kVqPaddedSide * kVqPaddedSide + (run % 3 - 1) * kVqPaddedSide - 1) *
           kInputs;
  }
};
template <int kInputs>
struct Alone {
  static constexpr int kRuns = 1, kRun = kInputs;
  static constexpr int Offset(int) { return 0; }
};

template <typename Runs, int kOut>
void Portable(const int8_t (&weights)[kOut][Runs::kRuns * Runs::kRun], const int32_t (&bias)[kOut],
              const int8_t* from, int32_t* to) {
  for (int out = 0; out < kOut; ++out) {
    const int8_t* weight = weights[out];
    int32_t sum = bias[out];
    for (int run = 0; run < Runs::kRuns; ++run) {
      const int8_t* const in = from + Runs::Offset(run);
      for (int i = 0; i < Runs::kRun; ++i) sum += int32_t{*weight++} * in[i];
    }
    to[out] = sum;
  }
}

#if defined(__x86_64__)

// Weights of four inputs side by side, for one output after the other.
template <int kIn, int kOut>
struct alignas(32) Fours {
  int8_t weights[kIn / 4][kOut][4];
  int32_t bias[kOut];

  Fours(const int8_t (&from)[kOut][kIn], const int32_t (&from_bias)[kOut]) {
    static_assert(kIn % 4 == 0 && kOut % 8 == 0);
    for (int out = 0; out < kOut; ++out) {
      for (int in = 0; in < kIn; ++in) weights[in / 4][out][in % 4] = from[out][in];
      bias[out] = from_bias[out];
    }
  }
};

struct AvxWeights {
  const VqTables& from = VqModel();
  Fours<kVqPatch, kVqHidden> encoder_first{from.encoder_first, from.encoder_first_bias};
  Fours<kVqAround, kVqSecond> encoder_second{from.encoder_second, from.encoder_second_bias};
  Fours<kVqSecond, kVqWidth> encoder_last{from.encoder_last, from.encoder_last_bias};
  Fours<kVqCodesAround, kVqHidden> decoder_first{from.decoder_first, from.decoder_first_bias};
  Fours<kVqAround, kVqSecond> decoder_second{from.decoder_second, from.decoder_second_bias};
  Fours<kVqSecond, 8> decoder_last{from.decoder_last, from.decoder_last_bias};
  // Pairs of numbers of the codes' vectors, and their squares.
  alignas(32) int16_t codes[kVqStages][kVqWidth / 2][kVqCodes][2];
  alignas(32) int32_t squares[kVqStages][kVqCodes];

  AvxWeights() {
    for (int stage = 0; stage < kVqStages; ++stage) {
      for (int code = 0; code < kVqCodes; ++code) {
        int32_t square = 0;
        for (int i = 0; i < kVqWidth; ++i) {
          const int32_t number = from.codebooks[stage][code][i];
          codes[stage][i / 2][code][i % 2] = static_cast<int16_t>(number);
          square += number * number;
        }
        squares[stage][code] = square;
      }
    }
  }
};

const AvxWeights& Avx() {
  static const std::unique_ptr<const AvxWeights> weights = std::make_unique<AvxWeights>();
  return *weights;
}

// Four cells side by side along z, kVectors * 8 of the outputs. Products of pairs stay within
// int16: none of the factors is larger than 127.
template <typename Runs, bool kSigned, int kVectors, int kIn, int kOut>
__attribute__((target("avx2"), always_inline)) inline void AvxCells(const Fours<kIn, kOut>& layer,
                                                                    const int8_t* from, int step,
                                                                    int first, int32_t* to) {
  static_assert(kIn == Runs::kRuns * Runs::kRun);
  constexpr int kCells = 4;
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[kCells][kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const __m256i bias =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(layer.bias + first) + v);
    for (int cell = 0; cell < kCells; ++cell) sums[cell][v] = bias;
  }
  const int8_t* weights = layer.weights[0][first];
  for (int run = 0; run < Runs::kRuns; ++run) {
    const int8_t* const in = from + Runs::Offset(run);
    for (int i = 0; i < Runs::kRun; i += 4, weights += kOut * 4) {
      __m256i factors[kVectors];
      for (int v = 0; v < kVectors; ++v)
        factors[v] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights) + v);
      for (int cell = 0; cell < kCells; ++cell) {
        int32_t four;
        std::memcpy(&four, in + cell * step + i, sizeof four);
        const __m256i input = _mm256_set1_epi32(four);
        const __m256i size = kSigned ? _mm256_abs_epi8(input) : input;
        for (int v = 0; v < kVectors; ++v) {
          const __m256i factor = kSigned ? _mm256_sign_epi8(factors[v], input) : factors[v];
          sums[cell][v] = _mm256_add_epi32(
              sums[cell][v], _mm256_madd_epi16(_mm256_maddubs_epi16(size, factor), ones));
        }
      }
    }
  }
  for (int cell = 0; cell < kCells; ++cell) {
    for (int v = 0; v < kVectors; ++v)
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + cell * kOut + first) + v, sums[cell][v]);
  }
}

template <typename Runs, bool kSigned, int kIn, int kOut, typename At>
__attribute__((target("avx2"))) void AvxLayer(const Fours<kIn, kOut>& layer, int step, const At& at,
                                              int32_t* to) {
  constexpr int kVectors = kOut % 24 == 0 ? 3 : kOut % 16 == 0 ? 2 : 1;
  for (int cell = 0; cell < kVqCells; cell += 4) {
    for (int first = 0; first < kOut; first += 8 * kVectors)
      AvxCells<Runs, kSigned, kVectors>(layer, at(cell), step, first, to + cell * kOut);
  }
}

__attribute__((target("avx2"))) int AvxNearest(int stage, const int16_t* rest) {
  const AvxWeights& weights = Avx();
  __m256i pairs[kVqWidth / 2];
  for (int i = 0; i < kVqWidth / 2; ++i) {
    int32_t both;
    std::memcpy(&both, rest + 2 * i, sizeof both);
    pairs[i] = _mm256_set1_epi32(both);
  }
  __m256i least = _mm256_set1_epi32(INT32_MAX), found = _mm256_setzero_si256();
  __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  for (int code = 0; code < kVqCodes; code += 8) {
    __m256i product = _mm256_setzero_si256();
    for (int i = 0; i < kVqWidth / 2; ++i) {
      const __m256i codes =
          _mm256_load_si256(reinterpret_cast<const __m256i*>(weights.codes[stage][i][code]));
      product = _mm256_add_epi32(product, _mm256_madd_epi16(codes, pairs[i]));
    }
    const __m256i square =
        _mm256_load_si256(reinterpret_cast<const __m256i*>(&weights.squares[stage][code]));
    const __m256i far = _mm256_sub_epi32(square, _mm256_slli_epi32(product, 1));
    const __m256i nearer = _mm256_cmpgt_epi32(least, far);
    least = _mm256_blendv_epi8(least, far, nearer);
    found = _mm256_blendv_epi8(found, index, nearer);
    index = _mm256_add_epi32(index, _mm256_set1_epi32(8));
  }
  alignas(32) int32_t far[8], codes[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(far), least);
  _mm256_store_si256(reinterpret_cast<__m256i*>(codes), found);
  int best = 0;
  for (int i = 1; i < 8; ++i) {
    if (far[i] < far[best] || (far[i] == far[best] && codes[i] < codes[best])) best = i;
  }
  return codes[best];
}

#endif

template <int kInputs>
auto CellsOf(const VqGrid<kInputs>& grid) {
  return [&grid](int cell) { return grid.values.data() + VqGrid<kInputs>::At(cell); };
}
template <int kInputs>
auto CellsOf(const int8_t* values) {
  return [values](int cell) { return values + cell * kInputs; };
}

template <typename Runs, typename At, int kOut, int kIn>
void PortableLayer(const int8_t (&weights)[kOut][kIn], const int32_t (&bias)[kOut], const At& at,
                   int32_t* to) {
  for (int cell = 0; cell < kVqCells; ++cell)
    Portable<Runs, kOut>(weights, bias, at(cell), to + cell * kOut);
}

}  // namespace

#if defined(__x86_64__)
#define TILERY_VQ_LAYER(name, runs, is_signed, step, at)                   \
  if (avx2_) return AvxLayer<runs, is_signed>(Avx().name, step, at, sums); \
  PortableLayer<runs>(VqModel().name, VqModel().name##_bias, at, sums)
#else
#define TILERY_VQ_LAYER(name, runs, is_signed, step, at) \
  PortableLayer<runs>(VqModel().name, VqModel().name##_bias, at, sums)
#endif

void VqLayers::EncoderFirst(const int8_t* patches, int32_t* sums) const {
  TILERY_VQ_LAYER(encoder_first, Alone<kVqPatch>, true, kVqPatch, CellsOf<kVqPatch>(patches));
}
void VqLayers::EncoderSecond(const VqGrid<kVqHidden>& grid, int32_t* sums) const {
  TILERY_VQ_LAYER(encoder_second, Around<kVqHidden>, false, kVqHidden, CellsOf(grid));
}
void VqLayers::EncoderLast(const int8_t* hidden, int32_t* sums) const {
  TILERY_VQ_LAYER(encoder_last, Alone<kVqSecond>, false, kVqSecond, CellsOf<kVqSecond>(hidden));
}
void VqLayers::DecoderFirst(const VqGrid<kVqCellInputs>& grid, int32_t* sums) const {
  TILERY_VQ_LAYER(decoder_first, Around<kVqCellInputs>, true, kVqCellInputs, CellsOf(grid));
}
void VqLayers::DecoderSecond(const VqGrid<kVqHidden>& grid, int32_t* sums) const {
  TILERY_VQ_LAYER(decoder_second, Around<kVqHidden>, false, kVqHidden, CellsOf(grid));
}
void VqLayers::DecoderLast(const int8_t* hidden, int32_t* sums) const {
  TILERY_VQ_LAYER(decoder_last, Alone<kVqSecond>, false, kVqSecond, CellsOf<kVqSecond>(hidden));
}
#undef TILERY_VQ_LAYER

int VqLayers::Nearest(int stage, const int16_t* rest) const {
#if defined(__x86_64__)
  if (avx2_) return AvxNearest(stage, rest);
#endif
  const auto& book = VqModel().codebooks[stage];
  int best = 0;
  int32_t least = INT32_MAX;
  for (int code = 0; code < kVqCodes; ++code) {
    int32_t far = 0;
    for (int i = 0; i < kVqWidth; ++i) far += (book[code][i] - 2 * rest[i]) * book[code][i];
    if (far >= least) continue;
    least = far;
    best = code;
  }
  return best;
}

VqKernel FastestVqKernel() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) return VqKernel::kAvx2;
#endif
  return VqKernel::kPortable;
}

}  // namespace tilery
