#include "pipeline/codec/vq_codes.h"

#include <algorithm>
#include <bit>
#include <memory>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tilery {
namespace {

// Cells whose codes count, all earlier in the order of cells: (x, y, z) away.
constexpr int kNeighbours[kVqNeighbours][3] = {{0, 0, -1}, {0, -1, 0}, {-1, 0, 0},
                                               {0, -1, 1}, {-1, 0, 1}, {-1, 1, 0}};

using Contexts = std::array<int, kVqContexts>;  // rows of the embeddings

// Bits of each code in 1/1024, up to a common number.
void PortableBits(int stage, const Contexts& contexts, int32_t* bits) {
  const VqTables& tables = VqModel();
  int32_t hidden[kVqPriorHidden] = {};
  for (size_t context = 0; context < contexts.size(); ++context) {
    const int8_t* const row = tables.embeddings[stage][context][contexts[context]];
    for (int i = 0; i < kVqPriorHidden; ++i) hidden[i] += row[i];
  }
  for (int32_t& value : hidden) value = std::clamp(value, 0, kVqMost);
  for (int code = 0; code < kVqCodes; ++code) {
    int32_t sum = tables.prior_bias[stage][code];
    for (int i = 0; i < kVqPriorHidden; ++i)
      sum += int32_t{tables.prior[stage][code][i]} * hidden[i];
    bits[code] = sum;
  }
}

#if defined(__x86_64__)

// Weights of four hidden values side by side, for one code after the other.
struct AvxPrior {
  alignas(32) int8_t weights[kVqStages][kVqPriorHidden / 4][kVqCodes][4];
  AvxPrior() {
    for (int stage = 0; stage < kVqStages; ++stage) {
      for (int code = 0; code < kVqCodes; ++code) {
        for (int i = 0; i < kVqPriorHidden; ++i)
          weights[stage][i / 4][code][i % 4] = VqModel().prior[stage][code][i];
      }
    }
  }
};

__attribute__((target("avx2"))) void AvxBits(int stage, const Contexts& contexts, int32_t* bits) {
  static const std::unique_ptr<const AvxPrior> prior = std::make_unique<AvxPrior>();
  const VqTables& tables = VqModel();
  static_assert(kVqPriorHidden == 32);
  __m256i low = _mm256_setzero_si256(), high = low;
  for (size_t context = 0; context < contexts.size(); ++context) {
    const auto* const row =
        reinterpret_cast<const __m128i*>(tables.embeddings[stage][context][contexts[context]]);
    low = _mm256_add_epi16(low, _mm256_cvtepi8_epi16(_mm_loadu_si128(row)));
    high = _mm256_add_epi16(high, _mm256_cvtepi8_epi16(_mm_loadu_si128(row + 1)));
  }
  const __m256i most = _mm256_set1_epi16(kVqMost), least = _mm256_setzero_si256();
  low = _mm256_max_epi16(_mm256_min_epi16(low, most), least);
  high = _mm256_max_epi16(_mm256_min_epi16(high, most), least);
  alignas(32) int32_t hidden[kVqPriorHidden / 4];
  _mm256_store_si256(
      reinterpret_cast<__m256i*>(hidden),
      _mm256_permute4x64_epi64(_mm256_packus_epi16(low, high), _MM_SHUFFLE(3, 1, 2, 0)));
  const __m256i ones = _mm256_set1_epi16(1);
  for (int code = 0; code < kVqCodes; code += 8) {
    __m256i sum =
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(&tables.prior_bias[stage][code]));
    for (int i = 0; i < kVqPriorHidden / 4; ++i) {
      const __m256i weights =
          _mm256_load_si256(reinterpret_cast<const __m256i*>(prior->weights[stage][i][code]));
      sum = _mm256_add_epi32(
          sum,
          _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi32(hidden[i]), weights), ones));
    }
    _mm256_store_si256(reinterpret_cast<__m256i*>(bits + code), sum);
  }
}

#define TILERY_CLONES __attribute__((target_clones("avx2", "default")))
#else
#define TILERY_CLONES
#endif

// Parts of 65536 from bits in 1/1024; each has at least one.
TILERY_CLONES void Parts(const int32_t* bits, uint32_t* parts) {
  int32_t most = bits[0];
  for (int code = 1; code < kVqCodes; ++code) most = std::max(most, bits[code]);
  uint32_t sum = 0;
  for (int code = 0; code < kVqCodes; ++code) {
    const uint32_t below = static_cast<uint32_t>(std::min(most - bits[code], 17 * 1024));
    // 2^-f is about 1 - f (0.671875 - 0.171875 f), which is exact at both ends.
    const uint32_t f = below & 1023;
    parts[code] = (65536 - (f * (688 * 1024 - 176 * f) >> 14)) >> (below >> 10);
    sum += parts[code];
  }
  const auto share = static_cast<uint32_t>((uint64_t{65536 - kVqCodes} << 16) / sum);
  for (int code = 0; code < kVqCodes; ++code) parts[code] = 1 + (parts[code] * share >> 16);
}

}  // namespace

// Calls code(parts, code's place) for each cell that has active voxels, stage by stage.
template <typename Code>
void VqCodesModel::ForCodes(const LeafMask& mask, VqLeaf* leaf, const Code& code) const {
  std::array<int, kVqCells> active;
  for (int cell = 0; cell < kVqCells; ++cell)
    active[static_cast<size_t>(cell)] =
        std::popcount(static_cast<unsigned>(VqActive(mask.data(), cell)));
  for (int stage = 0; stage < leaf->stages; ++stage) {
    auto& codes = leaf->codes[static_cast<size_t>(stage)];
    for (int cell = 0; cell < kVqCells; ++cell) {
      const auto here = static_cast<size_t>(cell);
      codes[here] = active[here] == 0 ? uint8_t{0} : codes[here];
      if (active[here] == 0) continue;
      Contexts contexts;
      size_t next = 0;
      for (const auto& away : kNeighbours) {
        const int x = cell / 16 + away[0], y = cell / 4 % 4 + away[1], z = cell % 4 + away[2];
        const auto there = static_cast<size_t>((x * 4 + y) * 4 + z);
        const bool known = x >= 0 && y >= 0 && y < 4 && z >= 0 && z < 4 && active[there] > 0;
        contexts[next++] = known ? codes[there] : kVqNone;
      }
      for (int before = 0; before < kVqStages - 1; ++before) {
        contexts[next++] =
            before < stage ? leaf->codes[static_cast<size_t>(before)][here] : kVqNone;
      }
      contexts[next] = active[here];
      alignas(32) int32_t bits[kVqCodes];
      alignas(32) uint32_t parts[kVqCodes];
#if defined(__x86_64__)
      kernel_ == VqKernel::kAvx2 ? AvxBits(stage, contexts, bits)
                                 : PortableBits(stage, contexts, bits);
#else
      PortableBits(stage, contexts, bits);
#endif
      Parts(bits, parts);
      code(parts, &codes[here]);
    }
  }
}

void VqCodesModel::Encode(RangeEncoder* coder, size_t component, const LeafMask& mask,
                          const VqLeaf& leaf) {
  Component& models = components_[component];
  models.scale.Encode(coder, int64_t{leaf.place.scale} - models.last.scale);
  const int64_t unit = int64_t{1} << VqOffsetShift(leaf.place.scale);
  models.offset.Encode(coder, VqOffset(leaf.place) / unit - VqOffset(models.last) / unit);
  models.last = leaf.place;
  for (int stage = 0; leaf.place.scale != 0 && stage < kVqStages; ++stage) {
    coder->Encode(&models.more[static_cast<size_t>(stage)], stage < leaf.stages);
    if (stage >= leaf.stages) break;
  }
  VqLeaf known = leaf;
  ForCodes(mask, &known, [coder](const uint32_t* parts, const uint8_t* code) {
    uint32_t below = 0;
    for (int i = 0; i < *code; ++i) below += parts[i];
    coder->core().Part(below, parts[*code]);
  });
}

VqLeaf VqCodesModel::Decode(RangeDecoder* coder, size_t component, const LeafMask& mask) {
  Component& models = components_[component];
  VqLeaf leaf;
  // Damaged bytes may give any numbers, which must not overflow.
  leaf.place.scale =
      static_cast<uint8_t>(models.last.scale + static_cast<uint64_t>(models.scale.Decode(coder)));
  const int64_t unit = int64_t{1} << VqOffsetShift(leaf.place.scale);
  leaf.place.offset = vq::Clamp(
      VqOffset(models.last) / unit + vq::Clamp(models.offset.Decode(coder), -(1 << 28), 1 << 28),
      -(1 << 26), 1 << 26);
  models.last = leaf.place;
  while (leaf.place.scale != 0 && leaf.stages < kVqStages &&
         coder->Decode(&models.more[leaf.stages]))
    ++leaf.stages;
  ForCodes(mask, &leaf, [coder](const uint32_t* parts, uint8_t* code) {
    const uint32_t where = coder->core().Where();
    uint32_t below = 0;
    int found = 0;
    while (found + 1 < kVqCodes && below + parts[found] <= where) below += parts[found++];
    coder->core().Take(below, parts[found]);
    *code = static_cast<uint8_t>(found);
  });
  return leaf;
}

}  // namespace tilery
