// Classic TIFF files written by hand: any byte order, strips or tiles, one plane or several.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "io/byte_order.h"

namespace tilery {

class TiffBuilder {
 public:
  explicit TiffBuilder(bool big_endian = false) : big_(big_endian) {
    file_ = big_endian ? std::string("MM\0*", 4) : std::string("II*\0", 4);
    file_ += std::string(4, '\0');
  }

  std::string Number(uint32_t value, int bytes) const {
    char out[4];
    if (bytes == 1) out[0] = static_cast<char>(value);
    if (bytes == 2) Store(out, static_cast<uint16_t>(value), big_);
    if (bytes == 4) Store(out, value, big_);
    return {out, static_cast<size_t>(bytes)};
  }

  // Fields of the page that comes next. Types: 2 text, 3 short, 4 long.
  void Short(int tag, const std::vector<uint32_t>& values) { Numbers(tag, 3, 2, values); }
  void Long(int tag, const std::vector<uint32_t>& values) { Numbers(tag, 4, 4, values); }
  void Text(int tag, const std::string& text) {
    fields_[tag] = {2, static_cast<uint32_t>(text.size() + 1), text + '\0'};
  }
  // Values of any type as they shall lie in the file, `unit` bytes each; the second form also says
  // how many there are, and a `data` of four bytes can be their offset.
  void Bytes(int tag, uint32_t type, size_t unit, const std::string& data) {
    Field(tag, type, static_cast<uint32_t>(data.size() / unit), data);
  }
  void Field(int tag, uint32_t type, uint32_t count, const std::string& data) {
    fields_[tag] = {type, count, data};
  }

  void Size(uint32_t width, uint32_t height, uint32_t bits, uint32_t samples,
            uint32_t photometric) {
    Long(256, {width});
    Long(257, {height});
    Short(258, std::vector<uint32_t>(samples, bits));
    Short(259, {1});
    Short(262, {photometric});
    Short(277, {samples});
  }
  // Encoded strips, or tiles of tile_width x tile_height.
  void Strips(const std::vector<std::string>& strips, uint32_t rows) {
    Chunks(strips, 273, 279);
    Long(278, {rows});
  }
  void Tiles(const std::vector<std::string>& tiles, uint32_t tile_width, uint32_t tile_height) {
    Chunks(tiles, 324, 325);
    Long(322, {tile_width});
    Long(323, {tile_height});
  }

  void EndPage() {
    std::string entries;
    for (const auto& [tag, field] : fields_) {
      std::string data = field.data;
      if (data.size() > 4) data = Number(Append(data), 4);
      data.resize(4, '\0');
      entries += Number(static_cast<uint32_t>(tag), 2) + Number(field.type, 2) +
                 Number(field.count, 4) + data;
    }
    const uint32_t at =
        Append(Number(static_cast<uint32_t>(fields_.size()), 2) + entries + std::string(4, '\0'));
    file_.replace(next_, 4, Number(at, 4));
    next_ = at + 2 + 12 * static_cast<uint32_t>(fields_.size());
    fields_.clear();
  }

  const std::string& file() const { return file_; }

 private:
  struct Entry {
    uint32_t type;
    uint32_t count;
    std::string data;
  };

  void Numbers(int tag, uint32_t type, int bytes, const std::vector<uint32_t>& values) {
    std::string data;
    for (const uint32_t value : values) data += Number(value, bytes);
    fields_[tag] = {type, static_cast<uint32_t>(values.size()), data};
  }
  uint32_t Append(const std::string& data) {
    if (file_.size() % 2 == 1) file_ += '\0';
    const auto at = static_cast<uint32_t>(file_.size());
    file_ += data;
    return at;
  }
  void Chunks(const std::vector<std::string>& chunks, int offsets_tag, int counts_tag) {
    std::vector<uint32_t> offsets, counts;
    for (const std::string& chunk : chunks) {
      offsets.push_back(Append(chunk));
      counts.push_back(static_cast<uint32_t>(chunk.size()));
    }
    Long(offsets_tag, offsets);
    Long(counts_tag, counts);
  }

  bool big_;
  std::string file_;
  uint32_t next_ = 4;  // where the offset of the next page goes
  std::map<int, Entry> fields_;
};

}  // namespace tilery
