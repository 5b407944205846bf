// Reads a file from front to back through a buffer that starts small, so that headers cost one
// short read and pictures few long ones. Not thread-safe; `file` outlives it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "io/file.h"

namespace tilery {

class BufferedInput {
 public:
  explicit BufferedInput(const InputFile& file, int64_t offset = 0) : file_(file), next_(offset) {}

  // The next bytes, at least one; empty at the end. Valid until the next call.
  std::span<const std::byte> Next();
  // Fills `into`; returns how much was there.
  size_t Read(std::span<std::byte> into);
  // Leaves out so many bytes; returns how many were there.
  int64_t Skip(int64_t bytes);
  // Position in the file of the next byte.
  int64_t position() const { return next_ - static_cast<int64_t>(rest_.size()); }

 private:
  static constexpr size_t kFirst = 4 << 10;
  static constexpr size_t kMost = 256 << 10;

  void Fill();

  const InputFile& file_;
  int64_t next_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> rest_;
};

}  // namespace tilery
