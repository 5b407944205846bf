// Numbers and texts as the bytes of our own files, little-endian as hosts are (io/dtype.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tilery {

class BytePacker {
 public:
  template <typename T>
  void Put(T value) {
    static_assert(std::is_integral_v<T>);
    PutBytes(&value, sizeof(value));
  }
  void PutBytes(const void* data, size_t size) {
    const auto* begin = static_cast<const std::byte*>(data);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what BytePacker wrote; asking for more than is left yields zeros and `failed`.
class ByteUnpacker {
 public:
  explicit ByteUnpacker(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename T>
  T Get() {
    T value = 0;
    if (bytes_.size() < sizeof(T)) {
      failed_ = true;
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }
  std::string GetText(size_t size) {
    if (bytes_.size() < size) {
      failed_ = true;
      return {};
    }
    std::string text(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return text;
  }
  size_t left() const { return bytes_.size(); }
  bool failed() const { return failed_; }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

}  // namespace tilery
