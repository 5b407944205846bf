// Pictures and volumes in memory, and whole files through the Reader and Writer.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/error.h"
#include "io/format.h"
#include "io/thread_pool.h"
#include "tests/io/temp_folder.h"

namespace tilery {

struct Picture {
  Header header;
  Metadata metadata;
  std::vector<std::byte> samples;  // [z,y,x,c]

  View view() {
    return DenseView(samples.data(), header.dtype, header.channels, header.shape,
                     Layout::kInterleaved);
  }
  template <typename T>
  T at(int64_t c, int64_t z, int64_t y, int64_t x) {
    T value;
    std::memcpy(&value, view().at(c, z, y, x), sizeof value);
    return value;
  }
};

inline size_t SampleBytes(const Header& header, const Index& shape) {
  return static_cast<size_t>(Product(shape) * header.channels) * DTypeSize(header.dtype);
}

// Random bits: floats come with not-a-numbers and infinities. `smooth` makes a picture that JPEG
// likes.
inline Picture MakePicture(const Header& header, uint32_t seed = 1, bool smooth = false) {
  Picture picture{header, {}, std::vector<std::byte>(SampleBytes(header, header.shape))};
  std::minstd_rand random(seed);
  for (size_t i = 0; i < picture.samples.size(); ++i) {
    picture.samples[i] = static_cast<std::byte>(smooth ? 100 + i / 97 % 60 : random() >> 8);
  }
  return picture;
}

inline RawLayout RawLayoutOf(const Header& header) {
  return {header.dtype, header.shape, header.channels, false, 0};
}

inline std::unique_ptr<Reader> Open(const std::filesystem::path& path,
                                    const std::optional<Header>& raw = {}) {
  if (raw && FormatOfExtension(path) == "raw") return OpenReader(path, RawLayoutOf(*raw));
  return OpenReader(path);
}

// Puts `content` into a new file: replacing one makes some file systems flush, which takes its
// time.
inline void PutFile(const std::filesystem::path& path, const std::string& content) {
  std::filesystem::remove(path);
  MakeFile(path, content);
}

// Reads all, in bands of `rows` rows (0: at once), and checks the end.
inline Picture ReadPicture(Reader& reader, int64_t rows = 0) {
  Picture picture{reader.header(), reader.metadata(), {}};
  const Index shape = picture.header.shape;
  picture.samples.resize(SampleBytes(picture.header, shape));
  if (rows == 0) {
    reader.Read(Box::Whole(shape), picture.view());
  } else {
    for (int64_t z = 0; z < shape[0]; ++z) {
      for (int64_t y = 0; y < shape[1]; y += rows) {
        const Box band{{z, y, 0}, {z + 1, std::min(y + rows, shape[1]), shape[2]}};
        reader.Read(band, picture.view().Crop(band));
      }
    }
  }
  reader.CheckEnd();
  return picture;
}

inline Picture ReadPicture(const std::filesystem::path& path,
                           const std::optional<Header>& raw = {}) {
  return ReadPicture(*Open(path, raw));
}

inline void WriteBands(Writer& writer, Picture& picture, int64_t rows) {
  const Index shape = picture.header.shape;
  if (rows == 0) {
    writer.Write(Box::Whole(shape), picture.view());
  } else {
    for (int64_t z = 0; z < shape[0]; ++z) {
      for (int64_t y = 0; y < shape[1]; y += rows) {
        const Box band{{z, y, 0}, {z + 1, std::min(y + rows, shape[1]), shape[2]}};
        writer.Write(band, picture.view().Crop(band));
      }
    }
  }
  writer.Finish();
}

inline void WritePicture(const std::filesystem::path& path, Picture picture, int64_t rows = 0,
                         int threads = 0) {
  std::filesystem::remove(path);
  OutputFile file(path, "test");
  std::optional<ThreadPool> pool;
  if (threads > 0) pool.emplace(threads);
  WriteSpec spec{picture.header, picture.metadata, pool ? &*pool : nullptr};
  spec.header.format = FormatOfExtension(path);
  const auto writer = CreateWriter(file, spec);
  WriteBands(*writer, picture, rows);
  file.Publish(Durability::kRename);
}

inline std::string FromBase64(const std::string& text) {
  static constexpr char kDigits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const char* digit = std::strchr(kDigits, c);
    if (c == '=' || digit == nullptr) break;
    bits = bits << 6 | static_cast<uint32_t>(digit - kDigits);
    if ((count += 6) >= 8) out += static_cast<char>(bits >> (count -= 8) & 0xFF);
  }
  return out;
}

// An EXIF payload of one field, the orientation.
inline std::string ExifOfOrientation(int orientation, bool big_endian = false) {
  std::string exif = big_endian ? std::string("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01", 18)
                                : std::string("II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18);
  exif += big_endian ? std::string{'\0', static_cast<char>(orientation)}
                     : std::string{static_cast<char>(orientation), '\0'};
  return exif + std::string(6, '\0');
}

// One data set of IPTC-IIM, a keyword.
inline std::string IptcOf(const std::string& keyword) {
  return std::string("\x1C\2\x19", 3) + static_cast<char>(keyword.size() >> 8) +
         static_cast<char>(keyword.size()) + keyword;
}

// A colour profile as far as its header says: size, colour space, signature. Filled up to `size`.
inline std::string ProfileOf(const std::string& colour_space, size_t size = 600) {
  std::string icc(size, '\0');
  std::minstd_rand random(7);
  for (size_t i = 128; i < size; ++i) icc[i] = static_cast<char>(random() >> 8);
  for (int i = 0; i < 4; ++i) icc[static_cast<size_t>(i)] = static_cast<char>(size >> (24 - 8 * i));
  icc.replace(12, 12, "mntr" + colour_space + "XYZ ");
  icc.replace(36, 4, "acsp");
  return icc;
}

}  // namespace tilery
