#include "pipeline/codec/context_network.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tilery {
namespace {

constexpr int16_t kWeights[] = {
#include "pipeline/codec/context_weights.inc"
};
constexpr int32_t kBiases[] = {
#include "pipeline/codec/context_biases.inc"
};
static_assert(std::size(kWeights) == kContextHidden * kContextInputs +
                                         kContextSecond * kContextHidden +
                                         kContextOutputs * kContextSecond);
static_assert(std::size(kBiases) == kContextHidden + kContextSecond + kContextOutputs);

// Not the library's: that may differ in the last bit from machine to machine.
double Exp(double x) {
  constexpr int kHalvings = 16;
  const double small = x / (1 << kHalvings);
  double sum = 1, term = 1;
  for (int i = 1; i <= 8; ++i) {
    term = term * small / i;
    sum += term;
  }
  for (int i = 0; i < kHalvings; ++i) sum *= sum;
  return sum;
}

uint32_t Rounded(double v) { return static_cast<uint32_t>(v + 0.5); }

std::unique_ptr<const ContextTables> MakeTables() {
  auto tables = std::make_unique<ContextTables>();
  const int16_t* weights = kWeights;
  const auto copy = [&weights](auto& to) {
    std::memcpy(&to, weights, sizeof to);
    weights += sizeof to / sizeof *weights;
  };
  copy(tables->first);
  copy(tables->second);
  copy(tables->last);
  const int32_t* bias = kBiases;
  for (int32_t& to : tables->first_bias) to = *bias++;
  for (int32_t& to : tables->second_bias) to = *bias++;
  for (int32_t& to : tables->last_bias) to = *bias++;
  for (size_t i = 0; i < std::size(tables->share); ++i)
    tables->share[i] = Rounded(65536 * Exp(-static_cast<double>(i) / 256));
  for (size_t i = 0; i < std::size(tables->inverse); ++i)
    tables->inverse[i] =
        Rounded(1024 * Exp(-(static_cast<double>(i) + ContextTables::kLeastScale) / 256));
  for (size_t i = 0; i < std::size(tables->logistic); ++i) {
    const double at = (static_cast<double>(i) - ContextTables::kFarthest) / 64;
    tables->logistic[i] = std::min<uint32_t>(Rounded(65536 / (1 + Exp(-at))), 65535);
  }
  // 16 log2(1 + i / 16), by squaring: each time it passes 2 is one bit.
  for (size_t i = 0; i < std::size(tables->log2); ++i) {
    double v = 1 + static_cast<double>(i) / 16;
    uint32_t bits = 0;
    for (int bit = 0; bit < 5; ++bit) {
      v *= v;
      bits = 2 * bits + (v >= 2 ? 1 : 0);
      if (v >= 2) v /= 2;
    }
    tables->log2[i] = static_cast<uint8_t>((bits + 1) / 2);
  }
  return tables;
}

std::unique_ptr<const ContextWaves> MakeWaves() {
  auto waves = std::make_unique<ContextWaves>();
  int32_t count = 0;
  for (int wave = 0; wave < kContextWaves; ++wave) {
    waves->begin[wave] = count;
    for (int x = 0; x < kContextSide && 4 * x <= wave; ++x) {
      for (int y = 0; y < kContextSide && 4 * x + 2 * y <= wave; ++y) {
        const int z = wave - 4 * x - 2 * y;
        if (z >= kContextSide) continue;
        waves->at[count++] =
            ((x + kContextBelow) * kContextPadded + y + kContextBelow) * kContextPadded + z +
            kContextBelow;
      }
    }
  }
  waves->begin[kContextWaves] = count;
  return waves;
}

// ---- kernels ----

template <size_t kOut, size_t kIn, typename From, typename Finish>
void Layer(const int16_t (&weights)[kOut][kIn], const int32_t (&bias)[kOut], const From* from,
           int32_t* to, const Finish& finish) {
  for (size_t out = 0; out < kOut; ++out) {
    int32_t sum = bias[out];
    for (size_t in = 0; in < kIn; ++in) sum += int32_t{weights[out][in]} * from[in];
    to[out] = finish(sum);
  }
}

void RunPortable(const int8_t* inputs, size_t count, int32_t* outputs) {
  const ContextTables& tables = ContextModel();
  for (size_t i = 0; i < count; ++i) {
    int32_t first[kContextHidden], second[kContextSecond];
    Layer(tables.first, tables.first_bias, inputs + i * kContextInputs, first,
          [](int32_t sum) { return ContextHidden(sum, true); });
    Layer(tables.second, tables.second_bias, first, second,
          [](int32_t sum) { return ContextHidden(sum, false); });
    Layer(tables.last, tables.last_bias, second, outputs + i * kContextOutputs,
          [](int32_t sum) { return ContextOutput(sum); });
  }
}

#if defined(__x86_64__)

// Weights of pairs of inputs side by side, eight outputs to a vector.
template <int kIn, int kOut>
struct alignas(32) Pairs {
  int16_t weights[kIn / 2][kOut][2] = {};
  int32_t bias[kOut] = {};

  template <size_t kRows, size_t kColumns>
  Pairs(const int16_t (&from)[kRows][kColumns], const int32_t (&from_bias)[kRows]) {
    static_assert(kRows <= kOut && kColumns == kIn);
    for (size_t out = 0; out < kRows; ++out) {
      for (size_t in = 0; in < kColumns; ++in) weights[in / 2][out][in % 2] = from[out][in];
      bias[out] = from_bias[out];
    }
  }
};

struct AvxWeights {
  Pairs<kContextInputs, kContextHidden> first{ContextModel().first, ContextModel().first_bias};
  Pairs<kContextHidden, kContextSecond> second{ContextModel().second, ContextModel().second_bias};
  Pairs<kContextSecond, 16> last{ContextModel().last, ContextModel().last_bias};
};

template <int kIn, int kOut>
__attribute__((target("avx2"), always_inline)) inline void AvxLayer(const Pairs<kIn, kOut>& layer,
                                                                    const int16_t* from,
                                                                    __m256i* sums) {
  constexpr int kVectors = kOut / 8;
  for (int v = 0; v < kVectors; ++v)
    sums[v] = _mm256_load_si256(reinterpret_cast<const __m256i*>(layer.bias) + v);
  for (int pair = 0; pair < kIn / 2; ++pair) {
    int32_t both;
    std::memcpy(&both, from + 2 * pair, sizeof both);
    const __m256i input = _mm256_set1_epi32(both);
    const auto* const weights = reinterpret_cast<const __m256i*>(layer.weights[pair]);
    for (int v = 0; v < kVectors; ++v)
      sums[v] = _mm256_add_epi32(sums[v], _mm256_madd_epi16(input, _mm256_load_si256(weights + v)));
  }
}

// To int16, at least 0, at most 8191.
template <int kShift, int kVectors>
__attribute__((target("avx2"), always_inline)) inline void AvxHidden(const __m256i* sums,
                                                                     int16_t* to) {
  const __m256i half = _mm256_set1_epi32(1 << (kShift - 1)), least = _mm256_setzero_si256(),
                most = _mm256_set1_epi32(8191);
  for (int v = 0; v < kVectors; v += 2) {
    __m256i part[2];
    for (int i = 0; i < 2; ++i) {
      part[i] = _mm256_srai_epi32(_mm256_add_epi32(sums[v + i], half), kShift);
      part[i] = _mm256_min_epi32(_mm256_max_epi32(part[i], least), most);
    }
    const __m256i packed =
        _mm256_permute4x64_epi64(_mm256_packs_epi32(part[0], part[1]), _MM_SHUFFLE(3, 1, 2, 0));
    _mm256_store_si256(reinterpret_cast<__m256i*>(to) + v / 2, packed);
  }
}

__attribute__((target("avx2"))) void RunAvx2(const int8_t* inputs, size_t count, int32_t* outputs) {
  static const AvxWeights weights;
  alignas(32) int16_t wide[kContextInputs], first[kContextHidden], second[kContextSecond];
  alignas(32) int32_t last[16];
  for (size_t i = 0; i < count; ++i) {
    const int8_t* const from = inputs + i * kContextInputs;
    for (int v = 0; v < kContextInputs; v += 16)
      _mm256_store_si256(
          reinterpret_cast<__m256i*>(wide + v),
          _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + v))));
    __m256i sums[4];
    AvxLayer(weights.first, wide, sums);
    AvxHidden<6, 4>(sums, first);
    AvxLayer(weights.second, first, sums);
    AvxHidden<10, 2>(sums, second);
    AvxLayer(weights.last, second, sums);
    for (int v = 0; v < 2; ++v) _mm256_store_si256(reinterpret_cast<__m256i*>(last) + v, sums[v]);
    for (int out = 0; out < kContextOutputs; ++out)
      outputs[i * kContextOutputs + static_cast<size_t>(out)] = ContextOutput(last[out]);
  }
}

#endif

}  // namespace

const ContextTables& ContextModel() {
  static const std::unique_ptr<const ContextTables> tables = MakeTables();
  return *tables;
}

const ContextWaves& ContextOrder() {
  static const std::unique_ptr<const ContextWaves> waves = MakeWaves();
  return *waves;
}

uint64_t ContextModelHash() {
  static const uint64_t hash = XXH3_64bits(&ContextModel(), sizeof(ContextTables));
  return hash;
}

ContextKernel FastestContextKernel() {
#if defined(__x86_64__)
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0;
  if (avx2) return ContextKernel::kAvx2;
#endif
  return ContextKernel::kPortable;
}

void RunContextNetwork(std::span<const int8_t> inputs, std::span<int32_t> outputs,
                       ContextKernel kernel) {
  const size_t count = inputs.size() / kContextInputs;
#if defined(__x86_64__)
  if (kernel == ContextKernel::kAvx2) return RunAvx2(inputs.data(), count, outputs.data());
#endif
  RunPortable(inputs.data(), count, outputs.data());
}

}  // namespace tilery
