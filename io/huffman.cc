#include "io/huffman.h"

#include <algorithm>
#include <array>

namespace tilery {
namespace {

constexpr size_t kMostSymbols = 512;
constexpr int kMostBits = 15;

// How many of `counts`, which ascend, get codes of each length. Two queues: leaves, and inner nodes
// in the order in which they are made, which ascends too.
std::array<uint32_t, kMostBits + 1> CodesOfLength(std::span<const uint32_t> counts, int most) {
  const size_t leaves = counts.size();
  std::array<uint32_t, 2 * kMostSymbols> weight;
  std::array<uint16_t, 2 * kMostSymbols> parent, depth;
  std::copy(counts.begin(), counts.end(), weight.begin());
  size_t leaf = 0, inner = leaves;
  const size_t root = 2 * leaves - 2;
  for (size_t next = leaves; next <= root; ++next) {
    weight[next] = 0;
    for (int i = 0; i < 2; ++i) {
      const bool take_leaf = leaf < leaves && (inner == next || weight[leaf] <= weight[inner]);
      const size_t taken = take_leaf ? leaf++ : inner++;
      weight[next] += weight[taken];
      parent[taken] = static_cast<uint16_t>(next);
    }
  }
  std::array<uint32_t, kMostBits + 1> number{};
  depth[root] = 0;
  for (size_t i = root; i-- > 0;) {
    depth[i] = static_cast<uint16_t>(depth[parent[i]] + 1);
    if (i < leaves) ++number[static_cast<size_t>(std::min<int>(depth[i], most))];
  }
  // Cut codes claim more than there is (Kraft's sum above 1). Each step splits the longest code
  // that is not yet of full length, and moves one of full length there: one unit less.
  const auto full = static_cast<size_t>(most);
  uint64_t claimed = 0;
  for (size_t l = 1; l <= full; ++l) claimed += uint64_t{number[l]} << (full - l);
  for (; claimed > uint64_t{1} << full; --claimed) {
    size_t l = full - 1;
    while (number[l] == 0) --l;
    --number[l];
    number[l + 1] += 2;
    --number[full];
  }
  return number;
}

}  // namespace

void HuffmanLengths(std::span<const uint32_t> counts, int most, std::span<uint8_t> lengths) {
  struct Symbol {
    uint32_t count;
    uint32_t symbol;
  };
  std::array<Symbol, kMostSymbols> symbols;
  size_t used = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) symbols[used++] = {counts[i], static_cast<uint32_t>(i)};
  }
  for (uint32_t i = 0; used < 2; ++i) {
    if (counts[i] == 0) symbols[used++] = {1, i};
  }
  std::sort(symbols.begin(), symbols.begin() + used, [](const Symbol& a, const Symbol& b) {
    return a.count != b.count ? a.count < b.count : a.symbol < b.symbol;
  });
  std::array<uint32_t, kMostSymbols> sorted;
  for (size_t i = 0; i < used; ++i) sorted[i] = symbols[i].count;
  const auto number = CodesOfLength(std::span(sorted).first(used), most);
  std::fill(lengths.begin(), lengths.end(), uint8_t{0});
  size_t at = 0;
  for (int l = most; l > 0; --l) {
    for (uint32_t i = 0; i < number[static_cast<size_t>(l)]; ++i) {
      lengths[symbols[at++].symbol] = static_cast<uint8_t>(l);
    }
  }
}

void HuffmanCodes(std::span<const uint8_t> lengths, std::span<uint16_t> codes) {
  std::array<uint32_t, kMostBits + 2> next{};
  for (const uint8_t length : lengths) {
    if (length > 0) ++next[length + 1u];
  }
  // next[l] holds how many have length l - 1, and becomes the first code of length l.
  uint32_t code = 0;
  for (size_t l = 1; l <= kMostBits; ++l) {
    code = (code + next[l]) << 1;
    next[l] = code;
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] == 0) continue;
    uint32_t forward = next[lengths[i]]++;
    uint32_t reversed = 0;
    for (int bit = 0; bit < lengths[i]; ++bit, forward >>= 1) {
      reversed = reversed << 1 | (forward & 1);
    }
    codes[i] = static_cast<uint16_t>(reversed);
  }
}

}  // namespace tilery
