// What the outputs of the context network mean: how likely each symbol of a value is, and how a
// value is told by symbols. In integers, one copy for every device, as
// pipeline/codec/context_formulas.h; docs/codec-model.md has it in words. C++17.
#pragma once

#include <cstdint>

#include "pipeline/codec/context_formulas.h"

namespace tilery {

// The distribution of a value's symbol: a mixture of logistics.
struct ContextDistribution {
  uint32_t share[kContextMixture];   // in 1 / kContextWhole
  int32_t move[kContextMixture];     // of the centre from the prediction, in 1/256 of the unit
  int32_t inverse[kContextMixture];  // of the scale, in 1/1024
  int32_t base;                      // the prediction as a whole number
  int32_t half;                      // half a step and what rounding took, in 1/256 of the unit
  int shift;
};

// `outputs`: of the network, in 1/256.
TILERY_HD ContextDistribution Distribution(const ContextTables& tables, const int32_t* outputs,
                                           int32_t prediction, int shift) {
  ContextDistribution all;
  int32_t top = outputs[0];
  for (int k = 1; k < kContextMixture; ++k) top = outputs[k] > top ? outputs[k] : top;
  uint32_t sum = 0;
  for (int k = 0; k < kContextMixture; ++k) {
    const int32_t below = top - outputs[k];
    all.share[k] = tables.share[below > 2047 ? 2047 : below];
    sum += all.share[k];
  }
  uint32_t left = kContextWhole;
  for (int k = 1; k < kContextMixture; ++k) {
    all.share[k] = static_cast<uint32_t>((uint64_t{all.share[k]} << 16) / sum);
    left -= all.share[k];
  }
  all.share[0] = left;
  for (int k = 0; k < kContextMixture; ++k) {
    all.move[k] = context::Clamp(outputs[kContextMixture + k], -8192, 8192);
    const int scale = context::Clamp(outputs[2 * kContextMixture + k], ContextTables::kLeastScale,
                                     ContextTables::kMostScale);
    all.inverse[k] = static_cast<int32_t>(tables.inverse[scale - ContextTables::kLeastScale]);
  }
  all.base = (prediction + 8) >> 4;
  all.half = ((8 + prediction - 16 * all.base) * 16) >> shift;
  all.shift = shift;
  return all;
}

// How much of kContextWhole the symbols before this one have.
// `logistic`: that of ContextTables.
TILERY_HD uint32_t Below(const uint32_t* logistic, const ContextDistribution& all, int symbol) {
  if (symbol <= 0) return 0;
  if (symbol >= kContextSymbols) return kContextWhole;
  const int32_t edge = (symbol - kContextMiddle) * 256 - all.half;
  uint32_t sum = 0;
  for (int k = 0; k < kContextMixture; ++k) {
    constexpr int32_t kMost = 12 << 18;
    const int32_t off = context::Clamp(edge - all.move[k], -16384, 16384) * all.inverse[k];
    const uint32_t place = static_cast<uint32_t>(context::Clamp(off, -kMost, kMost) + kMost);
    const uint32_t* const entry = logistic + (place >> 12);
    const uint32_t value = entry[0] + ((entry[1] - entry[0]) * (place & 4095) >> 12);
    sum += all.share[k] * value >> 16;
  }
  return static_cast<uint32_t>(symbol) +
         static_cast<uint32_t>(uint64_t{sum} * (kContextWhole - kContextSymbols) >> 16);
}

// How a value is told.
struct ContextSymbol {
  uint32_t below, part;  // of its symbol in kContextWhole
  uint32_t beyond;       // of an escape: how far it lies beyond
  uint32_t low;          // its lowest `shift` bits
  int shift;
  bool escape;
};

TILERY_HD ContextSymbol SymbolOf(const ContextTables& tables, const ContextDistribution& all,
                                 int32_t value) {
  const int64_t off = int64_t{value} - all.base;
  const int64_t place = (off >> all.shift) + kContextMiddle;
  const int symbol = context::Clamp(place, 0, kContextSymbols - 1);
  ContextSymbol told;
  told.below = Below(tables.logistic, all, symbol);
  told.part = Below(tables.logistic, all, symbol + 1) - told.below;
  told.beyond = static_cast<uint32_t>(place < symbol ? symbol - place : place - symbol);
  told.low = static_cast<uint32_t>(off) & ((uint32_t{1} << all.shift) - 1);
  told.shift = all.shift;
  told.escape = symbol == 0 || symbol == kContextSymbols - 1;
  return told;
}
// Any value within 2^26 for what is no symbol of one.
TILERY_HD int32_t ValueOf(const ContextDistribution& all, int symbol, uint32_t beyond,
                          uint32_t low) {
  const int64_t units = symbol == 0 ? -int64_t{beyond} - kContextMiddle
                        : symbol == kContextSymbols - 1
                            ? int64_t{beyond} + kContextSymbols - 1 - kContextMiddle
                            : symbol - kContextMiddle;
  return context::Clamp(all.base + units * (int64_t{1} << all.shift) + low, -(1 << 26), 1 << 26);
}

// What lies beyond the symbols, from 0 on: its length in ones and a zero, and its bits.
template <typename Writer>
TILERY_HD void WriteBeyond(Writer& writer, uint32_t beyond) {
  const int length = context::BitWidth(beyond + 1) - 1;
  for (int i = 0; i < length; ++i) writer.Raw(1, 1);
  writer.Raw(0, 1);
  writer.Raw((beyond + 1) & ((uint32_t{1} << length) - 1), length);
}
template <typename Reader>
TILERY_HD uint32_t ReadBeyond(Reader& reader) {
  int length = 0;
  while (length < 30 && reader.Raw(1) != 0) ++length;
  return (uint32_t{1} << length) + reader.Raw(length) - 1;
}

// `Writer`, `Reader`: of pipeline/codec/range_core.h.
template <typename Writer>
TILERY_HD void WriteSymbol(const ContextSymbol& symbol, Writer& writer) {
  writer.Part(symbol.below, symbol.part);
  if (symbol.escape) WriteBeyond(writer, symbol.beyond);
  writer.Raw(symbol.low, symbol.shift);
}
// The rest of a value whose symbol is known.
template <typename Reader>
TILERY_HD int32_t ReadRest(const ContextDistribution& all, int symbol, Reader& reader) {
  const bool escape = symbol == 0 || symbol == kContextSymbols - 1;
  const uint32_t beyond = escape ? ReadBeyond(reader) : 0;
  return ValueOf(all, symbol, beyond, reader.Raw(all.shift));
}
template <typename Reader>
TILERY_HD int32_t ReadValue(const ContextTables& tables, const ContextDistribution& all,
                            Reader& reader) {
  const uint32_t where = reader.Where();
  int symbol = 0;
  for (int step = kContextSymbols / 2; step > 0; step /= 2)
    symbol += Below(tables.logistic, all, symbol + step) <= where ? step : 0;
  const uint32_t below = Below(tables.logistic, all, symbol);
  reader.Take(below, Below(tables.logistic, all, symbol + 1) - below);
  return ReadRest(all, symbol, reader);
}

}  // namespace tilery
