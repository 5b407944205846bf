#include "io/run_deflate.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/byte_order.h"
#include "io/huffman.h"

namespace tilery {
namespace {

constexpr uint32_t kBlockSymbols = 32 << 10;
constexpr int kMostCodeBits = 14;  // so that four codes and seven bits fit 64
constexpr uint32_t kEndOfBlock = 256;
constexpr uint32_t kFirstLength = 257;  // the symbol of length 3
constexpr size_t kLeastMatch = 3, kMostMatch = 258;
constexpr size_t kMostStored = 65535;         // of one stored block
constexpr uint64_t kStoredBits = 3 + 7 + 32;  // its kind, to a byte boundary, its size twice
// Both distance codes have one bit: one would do, but some decoders want a code to be complete.
constexpr size_t kDistances = 2;
constexpr uint64_t kDistanceBits = 1;

constexpr size_t kLengthSymbols = 19;
constexpr int kMostLengthBits = 7;
constexpr uint8_t kRepeat = 16, kZeros = 17, kManyZeros = 18;
constexpr std::array<uint8_t, kLengthSymbols> kLengthOrder = {16, 17, 18, 0, 8,  7, 9,  6, 10, 5,
                                                              11, 4,  12, 3, 13, 2, 14, 1, 15};

struct LengthSymbol {
  uint16_t symbol;
  uint8_t extra_bits;
  uint8_t extra;
};

constexpr std::array<LengthSymbol, kMostMatch + 1> MakeLengthSymbols() {
  std::array<LengthSymbol, kMostMatch + 1> table{};
  size_t length = kLeastMatch;
  for (uint16_t symbol = kFirstLength; symbol < 285; ++symbol) {
    const int step = symbol - static_cast<int>(kFirstLength);
    const auto extra_bits = static_cast<uint8_t>(step < 8 ? 0 : step / 4 - 1);
    for (size_t extra = 0; extra < size_t{1} << extra_bits && length < kMostMatch; ++extra) {
      table[length++] = {symbol, extra_bits, static_cast<uint8_t>(extra)};
    }
  }
  table[kMostMatch] = {285, 0, 0};
  return table;
}
constexpr auto kLengthSymbol = MakeLengthSymbols();

// 0x80 in each byte where the 8 bytes at `a` and `b` are equal.
uint64_t EqualBytes(const std::byte* a, const std::byte* b) {
  constexpr uint64_t kLow7 = 0x7F7F7F7F7F7F7F7F;
  const uint64_t unlike = LoadLittle<uint64_t>(a) ^ LoadLittle<uint64_t>(b);
  return ~(((unlike & kLow7) + kLow7) | unlike | kLow7);
}

// The first place in [at, end) from which kLeastMatch bytes repeat the one before, or `end`.
size_t FindRun(const std::byte* data, size_t at, size_t end) {
  at = std::max<size_t>(at, 1);
  for (; at + 8 <= end; at += 8 - (kLeastMatch - 1)) {
    const uint64_t equal = EqualBytes(data + at, data + at - 1);
    if (const uint64_t runs = equal & equal >> 8 & equal >> 16) {
      return at + static_cast<size_t>(std::countr_zero(runs)) / 8;
    }
  }
  for (; at + kLeastMatch <= end; ++at) {
    const std::byte before = data[at - 1];
    if (data[at] == before && data[at + 1] == before && data[at + 2] == before) return at;
  }
  return end;
}

size_t RunLength(const std::byte* data, size_t at, size_t end) {
  end = std::min(end, at + kMostMatch);
  size_t next = at + kLeastMatch;
  for (; next + 8 <= end; next += 8) {
    const uint64_t equal = EqualBytes(data + next, data + next - 1);
    if (~equal & 0x8080808080808080) break;
  }
  while (next < end && data[next] == data[next - 1]) ++next;
  return next - at;
}

struct LengthCode {
  uint8_t symbol;
  uint8_t extra_bits;
  uint8_t extra;
};

// The code lengths of a block's codes with repetitions packed. Source: RFC 1951, 3.2.7.
size_t PackLengths(std::span<const uint8_t> lengths, LengthCode* out) {
  size_t count = 0;
  const auto add = [&](uint8_t symbol, int bits, size_t extra) {
    out[count++] = {symbol, static_cast<uint8_t>(bits), static_cast<uint8_t>(extra)};
  };
  for (size_t i = 0; i < lengths.size();) {
    const uint8_t length = lengths[i];
    size_t run = 1;
    while (i + run < lengths.size() && lengths[i + run] == length) ++run;
    i += run;
    if (length != 0) {
      add(length, 0, 0);
      --run;
    }
    while (run >= 3) {
      const size_t part = std::min<size_t>(run, length != 0 ? 6 : 138);
      if (length != 0) {
        add(kRepeat, 2, part - 3);
      } else if (part <= 10) {
        add(kZeros, 3, part - 3);
      } else {
        add(kManyZeros, 7, part - 11);
      }
      run -= part;
    }
    for (; run > 0; --run) add(length, 0, 0);
  }
  return count;
}

}  // namespace

// Bits into memory, the first one lowest. Writes up to 8 bytes beyond what is complete.
class RunDeflater::Bits {
 public:
  explicit Bits(std::byte* at) : at_(at) {}

  // Between two calls of Flush 56 bits at most.
  void Put(uint64_t bits, int count) {
    pending_ |= bits << count_;
    count_ += count;
  }
  void Flush() {
    std::memcpy(at_, &pending_, sizeof pending_);
    at_ += count_ >> 3;
    pending_ >>= count_ & ~7;
    count_ &= 7;
  }
  void PutStored(std::span<const std::byte> bytes) {
    Put(0, 3);
    count_ = (count_ + 7) & ~7;
    Flush();
    const auto size = static_cast<uint32_t>(bytes.size());
    Put(size | (~size & 0xFFFF) << 16, 32);
    Flush();
    if (size > 0) std::memcpy(at_, bytes.data(), size);
    at_ += size;
  }
  std::byte* end() const { return at_; }  // on a byte boundary

 private:
  std::byte* at_;
  uint64_t pending_ = 0;
  int count_ = 0;
};

void RunDeflater::Deflate(std::span<const std::byte> data, std::vector<std::byte>* out) {
  // No block is larger than stored, and all but the last have kBlockSymbols bytes at least.
  constexpr size_t kMostExtra = 12, kSlack = 32;
  out->resize(data.size() + (data.size() / kBlockSymbols + 1) * kMostExtra + kSlack);
  Bits bits(out->data());
  for (size_t begin = 0; begin < data.size();) {
    const size_t end = Parse(data, begin);
    Count(data.data() + begin);
    WriteBlock(data.subspan(begin, end - begin), &bits);
    begin = end;
  }
  bits.PutStored({});
  out->resize(static_cast<size_t>(bits.end() - out->data()));
}

// Cuts data from `begin` on into segments, until the symbols of a block are reached; returns where.
size_t RunDeflater::Parse(std::span<const std::byte> data, size_t begin) {
  segments_.clear();
  uint32_t symbols = 0;
  size_t at = begin;
  while (at < data.size() && symbols < kBlockSymbols) {
    const size_t most = std::min<size_t>(data.size(), at + (kBlockSymbols - symbols));
    const size_t run = FindRun(data.data(), at, most);
    const auto literals = static_cast<uint32_t>(run - at);
    const bool match = run < most;
    const size_t length = match ? RunLength(data.data(), run, data.size()) : 0;
    segments_.push_back({literals, static_cast<uint32_t>(length)});
    symbols += literals + (match ? 1 : 0);
    at = run + length;
  }
  return at;
}

void RunDeflater::Count(const std::byte* data) {
  // Equal bytes often follow each other: four tables, so that no count waits for the one before.
  std::array<std::array<uint32_t, 256>, 4> tables{};
  counts_.fill(0);
  for (const Segment& segment : segments_) {
    const std::byte* const end = data + segment.literals;
    for (; end - data >= 4; data += 4) {
      for (size_t k = 0; k < 4; ++k) ++tables[k][static_cast<size_t>(data[k])];
    }
    for (; data < end; ++data) ++tables[0][static_cast<size_t>(*data)];
    if (segment.match > 0) ++counts_[kLengthSymbol[segment.match].symbol];
    data += segment.match;
  }
  for (size_t i = 0; i < 256; ++i) {
    counts_[i] = tables[0][i] + tables[1][i] + tables[2][i] + tables[3][i];
  }
  counts_[kEndOfBlock] = 1;
}

void RunDeflater::WriteBlock(std::span<const std::byte> block, Bits* bits) {
  HuffmanLengths(counts_, kMostCodeBits, lengths_);
  size_t used = kSymbols;
  while (lengths_[used - 1] == 0) --used;
  std::array<uint8_t, kSymbols + kDistances> all;
  std::copy_n(lengths_.begin(), used, all.begin());
  std::fill_n(all.begin() + static_cast<std::ptrdiff_t>(used), kDistances, uint8_t{1});
  std::array<LengthCode, kSymbols + kDistances> packed;
  const size_t packed_count = PackLengths(std::span(all).first(used + kDistances), packed.data());

  std::array<uint32_t, kLengthSymbols> packed_counts{};
  for (size_t i = 0; i < packed_count; ++i) ++packed_counts[packed[i].symbol];
  std::array<uint8_t, kLengthSymbols> packed_lengths;
  HuffmanLengths(packed_counts, kMostLengthBits, packed_lengths);
  size_t sent = kLengthSymbols;
  while (sent > 4 && packed_lengths[kLengthOrder[sent - 1]] == 0) --sent;

  uint64_t coded_bits = 3 + 5 + 5 + 4 + 3 * sent;
  for (size_t i = 0; i < packed_count; ++i) {
    coded_bits += packed_lengths[packed[i].symbol] + packed[i].extra_bits;
  }
  for (size_t i = 0; i < used; ++i) coded_bits += uint64_t{counts_[i]} * lengths_[i];
  for (const Segment& segment : segments_) {
    if (segment.match > 0) coded_bits += kLengthSymbol[segment.match].extra_bits + kDistanceBits;
  }
  const uint64_t stored_blocks = (block.size() + kMostStored - 1) / kMostStored;
  if (coded_bits > 8 * block.size() + kStoredBits * stored_blocks) {
    for (; !block.empty(); block = block.subspan(std::min(block.size(), kMostStored))) {
      bits->PutStored(block.first(std::min(block.size(), kMostStored)));
    }
    return;
  }

  constexpr uint64_t kDynamic = 2;
  bits->Put(kDynamic << 1, 3);
  bits->Put(used - kFirstLength, 5);
  bits->Put(kDistances - 1, 5);
  bits->Put(sent - 4, 4);
  bits->Flush();
  for (size_t i = 0; i < sent; ++i) {
    bits->Put(packed_lengths[kLengthOrder[i]], 3);
    bits->Flush();
  }
  std::array<uint16_t, kLengthSymbols> packed_codes;
  HuffmanCodes(packed_lengths, packed_codes);
  for (size_t i = 0; i < packed_count; ++i) {
    const LengthCode& code = packed[i];
    bits->Put(packed_codes[code.symbol], packed_lengths[code.symbol]);
    bits->Put(code.extra, code.extra_bits);
    bits->Flush();
  }
  HuffmanCodes(lengths_, codes_);
  WriteCoded(block.data(), bits);
}

void RunDeflater::WriteCoded(const std::byte* data, Bits* bits) {
  struct Code {
    uint16_t bits;
    uint16_t length;
  };
  std::array<Code, kSymbols> table;
  for (size_t i = 0; i < kSymbols; ++i) table[i] = {codes_[i], lengths_[i]};
  const auto put = [&](size_t symbol) { bits->Put(table[symbol].bits, table[symbol].length); };
  Bits local = *bits;  // in registers: `bits` might be what is written to
  const auto put_byte = [&](std::byte byte) {
    const Code code = table[static_cast<size_t>(byte)];
    local.Put(code.bits, code.length);
  };
  for (const Segment& segment : segments_) {
    const std::byte* const end = data + segment.literals;
    for (; end - data >= 4; data += 4) {
      for (size_t k = 0; k < 4; ++k) put_byte(data[k]);
      local.Flush();
    }
    for (; data < end; ++data) put_byte(*data);
    local.Flush();
    if (segment.match == 0) continue;
    const LengthSymbol& match = kLengthSymbol[segment.match];
    local.Put(table[match.symbol].bits, table[match.symbol].length);
    local.Put(match.extra, match.extra_bits);
    local.Put(0, kDistanceBits);
    local.Flush();
    data += segment.match;
  }
  *bits = local;
  put(kEndOfBlock);
  bits->Flush();
}

}  // namespace tilery
