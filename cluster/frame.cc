#include "cluster/frame.h"

#include <array>
#include <string>

#include "io/error.h"

namespace tilery {
namespace {

uint64_t BigEndian(std::string_view bytes) {
  uint64_t value = 0;
  for (char c : bytes) value = value << 8 | static_cast<uint8_t>(c);
  return value;
}

[[noreturn]] void Refuse(const std::string& why) {
  throw Error(Fault::kInternal, "damaged control message: " + why);
}

// What follows one type byte: `header` bytes of length or number, then `payload` bytes, then
// `children` values.
struct Extent {
  uint64_t payload = 0;
  uint64_t children = 0;
};

class Scanner {
 public:
  explicit Scanner(std::string_view body) : body_(body) {}

  Extent Value() {
    const auto type = static_cast<uint8_t>(Take(1)[0]);
    if (type <= 0x7f || type >= 0xe0) return {};
    if (type <= 0x8f) return {0, 2ULL * (type & 0x0f)};
    if (type <= 0x9f) return {0, static_cast<uint64_t>(type & 0x0f)};
    if (type <= 0xbf) return {static_cast<uint64_t>(type & 0x1f), 0};
    switch (type) {
      case 0xc0:
      case 0xc2:
      case 0xc3:
        return {};
      case 0xc4:
      case 0xd9:
        return {BigEndian(Take(1)), 0};
      case 0xc5:
      case 0xda:
        return {BigEndian(Take(2)), 0};
      case 0xc6:
      case 0xdb:
        return {BigEndian(Take(4)), 0};
      case 0xca:
      case 0xce:
      case 0xd2:
        return {4, 0};
      case 0xcb:
      case 0xcf:
      case 0xd3:
        return {8, 0};
      case 0xcc:
      case 0xd0:
        return {1, 0};
      case 0xcd:
      case 0xd1:
        return {2, 0};
      case 0xdc:
        return {0, BigEndian(Take(2))};
      case 0xdd:
        return {0, BigEndian(Take(4))};
      case 0xde:
        return {0, 2 * BigEndian(Take(2))};
      case 0xdf:
        return {0, 2 * BigEndian(Take(4))};
      default:
        Refuse("type byte " + std::to_string(type) + " is not used here");
    }
  }

  std::string_view Take(uint64_t count) {
    if (count > body_.size() - at_) Refuse("it ends early");
    const std::string_view taken = body_.substr(at_, count);
    at_ += count;
    return taken;
  }
  size_t left() const { return body_.size() - at_; }

 private:
  std::string_view body_;
  size_t at_ = 0;
};

}  // namespace

void FrameReader::Append(std::string_view bytes) {
  if (taken_ == buffer_.size()) {
    buffer_.clear();
    taken_ = 0;
    // A single large message must not hold its memory for the life of the connection.
    if (buffer_.capacity() > (1 << 20)) buffer_.shrink_to_fit();
  } else if (taken_ > buffer_.size() / 2) {
    buffer_.erase(0, taken_);
    taken_ = 0;
  }
  buffer_.append(bytes);
}

std::optional<std::string> FrameReader::Next() {
  if (buffer_.size() - taken_ < 4) return std::nullopt;
  uint32_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | static_cast<uint8_t>(buffer_[taken_ + i]);
  if (length > limit_) {
    throw Error(Fault::kInternal, "a control message of " + std::to_string(length) +
                                      " bytes is longer than the " + std::to_string(limit_) +
                                      " allowed");
  }
  if (buffer_.size() - taken_ - 4 < length) return std::nullopt;
  std::string body = buffer_.substr(taken_ + 4, length);
  taken_ += 4 + length;
  return body;
}

void CheckMessagePack(std::string_view body) {
  Scanner scanner(body);
  std::array<uint64_t, kMaxDepth> open{};  // values still to come, per level
  int depth = 0;
  open[0] = 1;
  int64_t values = 0;
  while (depth >= 0) {
    if (open[depth] == 0) {
      --depth;
      continue;
    }
    --open[depth];
    if (++values > kMaxValues) Refuse("more than " + std::to_string(kMaxValues) + " values");
    const Extent extent = scanner.Value();
    scanner.Take(extent.payload);
    if (extent.children == 0) continue;
    if (extent.children > scanner.left()) Refuse("it ends early");
    if (++depth == kMaxDepth) Refuse("more than " + std::to_string(kMaxDepth) + " levels");
    open[depth] = extent.children;
  }
  if (scanner.left() != 0) Refuse("bytes follow its end");
}

}  // namespace tilery
