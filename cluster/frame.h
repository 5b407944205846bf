// Cutting a byte stream into frames, and judging a body before it is parsed.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tilery {

// Collects the bytes of one connection and hands out the bodies of whole frames. Its memory follows
// what has really arrived: a length that is claimed allocates nothing. Not thread-safe.
class FrameReader {
 public:
  // Longest body accepted from now on; a longer one is Error(kInternal) as soon as its length is
  // known.
  explicit FrameReader(size_t limit) : limit_(limit) {}
  void SetLimit(size_t limit) { limit_ = limit; }
  void Append(std::string_view bytes);
  std::optional<std::string> Next();

 private:
  size_t limit_;
  std::string buffer_;
  size_t taken_ = 0;  // bytes at the front of buffer_ that were handed out
};

// Error(kInternal) unless `body` is exactly one MessagePack value with at most kMaxDepth levels and
// kMaxValues values. Takes no memory in proportion to the body; a parser may then build the value
// without fear of its stack or of values that multiply.
void CheckMessagePack(std::string_view body);
inline constexpr int kMaxDepth = 32;
inline constexpr int64_t kMaxValues = 2'000'000;

}  // namespace tilery
