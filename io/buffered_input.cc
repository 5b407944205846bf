#include "io/buffered_input.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace tilery {

void BufferedInput::Fill() {
  const size_t grown = buffer_.empty() ? kFirst : std::min(kMost, buffer_.size() * 4);
  if (buffer_.size() != grown) buffer_.resize(grown);
  const size_t got = file_.ReadSome(next_, buffer_);
  rest_ = std::span<const std::byte>(buffer_).first(got);
  next_ += static_cast<int64_t>(got);
}

std::span<const std::byte> BufferedInput::Next() {
  if (rest_.empty()) Fill();
  return std::exchange(rest_, {});
}

size_t BufferedInput::Read(std::span<std::byte> into) {
  size_t done = 0;
  while (done < into.size()) {
    if (rest_.empty()) Fill();
    if (rest_.empty()) break;
    const size_t part = std::min(rest_.size(), into.size() - done);
    std::memcpy(into.data() + done, rest_.data(), part);
    rest_ = rest_.subspan(part);
    done += part;
  }
  return done;
}

int64_t BufferedInput::Skip(int64_t bytes) {
  const auto buffered = static_cast<int64_t>(rest_.size());
  if (bytes <= buffered) {
    rest_ = rest_.subspan(static_cast<size_t>(bytes));
    return bytes;
  }
  const int64_t left = std::max<int64_t>(0, file_.size() - next_);
  const int64_t beyond = std::min(bytes - buffered, left);
  rest_ = {};
  next_ += beyond;
  return buffered + beyond;
}

}  // namespace tilery
