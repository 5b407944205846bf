// Byte order of what lies in files. Hosts are little-endian (io/dtype.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace tilery {

template <typename T>
T LoadLittle(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename T>
T LoadBig(const void* from) {
  unsigned char bytes[sizeof(T)];
  for (size_t i = 0; i < sizeof(T); ++i) {
    bytes[i] = static_cast<const unsigned char*>(from)[sizeof(T) - 1 - i];
  }
  return LoadLittle<T>(bytes);
}

template <typename T>
T Load(const void* from, bool big_endian) {
  return big_endian ? LoadBig<T>(from) : LoadLittle<T>(from);
}

template <typename T>
void Store(void* to, T value, bool big_endian) {
  unsigned char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof value);
  for (size_t i = 0; i < sizeof(T); ++i) {
    static_cast<unsigned char*>(to)[i] = bytes[big_endian ? sizeof(T) - 1 - i : i];
  }
}

// Reverses each of `count` samples of `size` bytes (1, 2, 4 or 8).
inline void SwapSamples(std::byte* data, size_t count, size_t size) {
  const auto each = [&]<typename T>(T (*swap)(T)) {
    for (size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, data + i * sizeof(T), sizeof(T));
      value = swap(value);
      std::memcpy(data + i * sizeof(T), &value, sizeof(T));
    }
  };
  if (size == 2) each(+[](uint16_t v) { return __builtin_bswap16(v); });
  if (size == 4) each(+[](uint32_t v) { return __builtin_bswap32(v); });
  if (size == 8) each(+[](uint64_t v) { return static_cast<uint64_t>(__builtin_bswap64(v)); });
}

}  // namespace tilery
