#include "io/error.h"

#include <array>
#include <cstdint>
#include <system_error>

namespace tilery {
namespace {

constexpr std::array<const char*, 6> kFaultNames = {"usage", "input",     "output",
                                                    "model", "transient", "internal"};

// Length of the well-formed UTF-8 sequence at `at`, or 0. Overlong forms, surrogates and code
// points beyond U+10FFFF count as malformed.
size_t Utf8Length(const std::string& s, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t lead = byte(at);
  size_t length = 0;
  uint32_t code = 0;
  uint32_t smallest = 0;
  if (lead < 0x80) return 1;
  if ((lead & 0xE0) == 0xC0) {
    length = 2, code = lead & 0x1F, smallest = 0x80;
  } else if ((lead & 0xF0) == 0xE0) {
    length = 3, code = lead & 0x0F, smallest = 0x800;
  } else if ((lead & 0xF8) == 0xF0) {
    length = 4, code = lead & 0x07, smallest = 0x10000;
  } else {
    return 0;
  }
  if (at + length > s.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
    code = (code << 6) | (byte(at + i) & 0x3F);
  }
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  return code < smallest || code > 0x10FFFF || surrogate ? 0 : length;
}

// C0, DEL and C1 (two bytes in UTF-8): they would move the cursor or change colours of a terminal.
bool IsControl(const std::string& s, size_t at, size_t length) {
  const auto lead = static_cast<uint8_t>(s[at]);
  if (length == 1) return lead < 0x20 || lead == 0x7F;
  return length == 2 && lead == 0xC2 && static_cast<uint8_t>(s[at + 1]) < 0xA0;
}

bool IsContinuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

}  // namespace

const char* FaultName(Fault fault) { return kFaultNames.at(static_cast<size_t>(fault)); }

Fault FaultFromName(const std::string& name) {
  for (size_t i = 0; i < kFaultNames.size(); ++i) {
    if (name == kFaultNames[i]) return static_cast<Fault>(i);
  }
  throw Error(Fault::kInternal, "\"" + Printable(name, 40) + "\" is no kind of fault");
}

std::string Errno(const std::string& what, int errno_value) {
  return what + ": " + std::generic_category().message(errno_value);
}

std::string Printable(const std::string& bytes, size_t limit) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text;
  text.reserve(bytes.size());
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = Utf8Length(bytes, at);
    if (length == 0 || IsControl(bytes, at, length)) {
      for (size_t i = 0; i < (length == 0 ? 1 : length); ++i) {
        const auto value = static_cast<uint8_t>(bytes[at + i]);
        text += {'\\', 'x', kHex[value >> 4], kHex[value & 15]};
      }
      at += length == 0 ? 1 : length;
    } else {
      text.append(bytes, at, length);
      at += length;
    }
  }
  static const std::string kCut = "...";
  if (text.size() <= limit) return text;
  if (limit <= kCut.size()) return kCut.substr(0, limit);
  // The end of a path says more than its middle, so both ends stay; never inside a character.
  size_t head = (limit - kCut.size()) / 2;
  size_t tail = text.size() - (limit - kCut.size() - head);
  while (head > 0 && IsContinuation(text[head])) --head;
  while (tail < text.size() && IsContinuation(text[tail])) ++tail;
  return text.substr(0, head) + kCut + text.substr(tail);
}

}  // namespace tilery
