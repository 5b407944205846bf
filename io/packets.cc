#include "io/packets.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "io/byte_order.h"

namespace tilery {
namespace {

constexpr char kBlock[] = "8BIM";
constexpr size_t kBlockBytes = 4;  // of the word above
constexpr uint16_t kIptcResource = 0x0404;
constexpr char kDataSet = 0x1C;
constexpr size_t kLineBytes = 36;  // of a raw profile: 72 digits

size_t Even(size_t bytes) { return bytes + bytes % 2; }

void Take(const char* what, std::string packet, std::string* into, Metadata* metadata) {
  if (packet.empty()) return;
  if (packet.size() > kMostPacket) {
    metadata->left_out.push_back(TooLarge(what, kMostPacket));
  } else {
    *into = std::move(packet);
  }
}

// Where the data sets end: at the first byte that begins none, or that a size leads beyond.
size_t EndOfDataSets(const std::string& iptc) {
  constexpr size_t kHead = 5;  // mark, record, number, length
  constexpr size_t kExtended = 0x8000;
  size_t at = 0;
  while (iptc.size() - at >= kHead && iptc[at] == kDataSet) {
    size_t next = at + kHead;
    size_t bytes = LoadBig<uint16_t>(iptc.data() + at + 3);
    if (bytes >= kExtended) {  // then it is the length of the length
      const size_t width = bytes - kExtended;
      if (width > 4 || width > iptc.size() - next) break;
      bytes = 0;
      for (size_t i = 0; i < width; ++i) {
        bytes = bytes << 8 | static_cast<unsigned char>(iptc[next + i]);
      }
      next += width;
    }
    if (bytes > iptc.size() - next) break;
    at = next + bytes;
  }
  return at;
}

int Digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string TooLarge(const std::string& what, size_t most) {
  return what + " (larger than " + std::to_string(most) + " bytes)";
}

void TakeXmp(std::string packet, Metadata* metadata) {
  Take("XMP", std::move(packet), &metadata->xmp, metadata);
}

void TakeIptc(std::string packet, Metadata* metadata) {
  Take("IPTC", std::move(packet), &metadata->iptc, metadata);
}

std::string IptcOfResources(const std::string& resources) {
  if (!resources.empty() && resources[0] == kDataSet) return resources;
  // Mark, number, name (length first, even in all), size, data (even).
  size_t at = resources.find(kBlock);
  while (at != std::string::npos) {
    const size_t name = at + kBlockBytes + 2;
    if (name >= resources.size()) break;
    const size_t size = name + Even(1 + static_cast<unsigned char>(resources[name]));
    if (size + 4 > resources.size()) break;
    const size_t bytes = LoadBig<uint32_t>(resources.data() + size);
    const size_t left = resources.size() - (size + 4);
    if (LoadBig<uint16_t>(resources.data() + at + kBlockBytes) == kIptcResource && bytes > 0) {
      return resources.substr(size + 4, bytes);
    }
    // Beyond a damaged size the next block may still be found by its mark.
    const size_t next = bytes <= left ? std::min(size + 4 + Even(bytes), resources.size()) : at + 1;
    at = resources.find(kBlock, next);
  }
  return "";
}

std::string ResourcesOfIptc(const std::string& iptc) {
  std::string head(12, '\0');  // no name
  head.replace(0, kBlockBytes, kBlock);
  Store(head.data() + kBlockBytes, kIptcResource, true);
  Store(head.data() + 8, static_cast<uint32_t>(iptc.size()), true);
  return head + iptc + std::string(iptc.size() % 2, '\0');
}

std::string WithoutPadding(const std::string& iptc) {
  constexpr size_t kMostPadding = 3;
  const size_t end = EndOfDataSets(iptc);
  const bool padded = end > 0 && iptc.size() - end <= kMostPadding &&
                      iptc.find_first_not_of('\0', end) == std::string::npos;
  return padded ? iptc.substr(0, end) : iptc;
}

std::string RawProfileText(const std::string& name, const std::string& bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  constexpr size_t kLengthWidth = 8;
  std::string length = std::to_string(bytes.size());
  length.insert(0, length.size() < kLengthWidth ? kLengthWidth - length.size() : 0, ' ');
  std::string text = "\n" + name + "\n" + length;
  text.reserve(text.size() + bytes.size() * 2 + bytes.size() / kLineBytes + 2);
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (i % kLineBytes == 0) text += '\n';
    text += kDigits[static_cast<unsigned char>(bytes[i]) >> 4];
    text += kDigits[static_cast<unsigned char>(bytes[i]) & 15];
  }
  return text + "\n";
}

std::optional<std::string> RawProfileBytes(const std::string& text) {
  if (text.empty() || text[0] != '\n') return {};
  const size_t name_end = text.find('\n', 1);
  if (name_end == std::string::npos) return {};
  size_t at = text.find_first_not_of(' ', name_end + 1);
  size_t length = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && length <= text.size(); ++at) {
    length = length * 10 + static_cast<size_t>(text[at] - '0');
  }
  if (at >= text.size() || text[at] != '\n' || length > text.size() / 2) return {};
  std::string bytes;
  bytes.reserve(length);
  int high = -1;
  for (; at < text.size() && bytes.size() < length; ++at) {
    const int digit = Digit(text[at]);
    if (digit < 0) continue;
    if (high < 0) {
      high = digit;
    } else {
      bytes += static_cast<char>(high << 4 | digit);
      high = -1;
    }
  }
  if (bytes.size() != length) return {};
  return bytes;
}

}  // namespace tilery
