// PNG files written by hand, chunk by chunk, as other programs might.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/byte_order.h"

namespace tilery {

inline std::string BigEndian32(uint32_t value) {
  std::string out(4, '\0');
  Store(out.data(), value, true);
  return out;
}

inline std::string PngChunk(const std::string& name, const std::string& content) {
  const std::string body = name + content;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return BigEndian32(static_cast<uint32_t>(content.size())) + body +
         BigEndian32(static_cast<uint32_t>(crc));
}

inline std::string Zlib(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  compress(reinterpret_cast<Bytef*>(out.data()), &size,
           reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
  out.resize(size);
  return out;
}

struct PngSpec {
  uint32_t width = 0, height = 0;
  uint8_t bits = 8;
  uint8_t type = 0;  // 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGBA
  bool interlaced = false;
  std::vector<std::pair<std::string, std::string>> chunks = {};  // between IHDR and IDAT
};

// `filtered_rows`: packed samples, each row after its filter byte.

inline std::string PngFile(const PngSpec& spec, const std::string& filtered_rows) {
  std::string header = BigEndian32(spec.width) + BigEndian32(spec.height);
  header += {static_cast<char>(spec.bits), static_cast<char>(spec.type), 0, 0, spec.interlaced};
  std::string file = "\x89PNG\r\n\x1A\n" + PngChunk("IHDR", header);
  for (const auto& [name, content] : spec.chunks) file += PngChunk(name, content);
  return file + PngChunk("IDAT", Zlib(filtered_rows)) + PngChunk("IEND", "");
}

// `samples` row by row, values of `bits` bits (16: big-endian in the file).
inline std::string PngRows(const std::vector<uint32_t>& samples, size_t per_row, int bits) {
  std::string rows;
  for (size_t begin = 0; begin < samples.size(); begin += per_row) {
    rows += '\0';
    uint32_t packed = 0;
    int filled = 0;
    for (size_t i = begin; i < begin + per_row; ++i) {
      if (bits >= 8) {
        if (bits == 16) rows += static_cast<char>(samples[i] >> 8);
        rows += static_cast<char>(samples[i]);
        continue;
      }
      packed = packed << bits | samples[i];
      if ((filled += bits) == 8) rows += static_cast<char>(packed), packed = 0, filled = 0;
    }
    if (filled > 0) rows += static_cast<char>(packed << (8 - filled));
  }
  return rows;
}

}  // namespace tilery
