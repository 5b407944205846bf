// How bricks lie in their files; for io's sources only. All numbers are little-endian:
//   header   magic, version, key of the unit
//   blocks   of every array in turn, without gaps
//   table    per array: name, dtype, channels, box, and one XXH3-64 per block
//   footer   offset and size of the table, XXH3-64 of header + table + those two numbers, magic
// The size of the file must be exactly what the footer says, so no byte of it is unchecked.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/brick.h"
#include "io/byte_packer.h"

namespace tilery {

inline constexpr char kBrickMagic[] = "TileryBr";
inline constexpr char kBrickEndMagic[] = "TileryBe";
inline constexpr size_t kBrickMagicSize = 8;
inline constexpr size_t kBrickHeaderSize = kBrickMagicSize + sizeof(uint32_t) + 32;
inline constexpr size_t kBrickFooterSize = 3 * sizeof(uint64_t) + kBrickMagicSize;

// How an array is cut into blocks: whole planes where a plane is small, else whole rows of one
// plane. A single row is never cut, however long.
struct BrickBlocking {
  Index shape;
  int64_t row_bytes;
  int64_t planes;  // per block, at least 1
  int64_t rows;    // per block, shape[1] if `planes` may be more than 1

  explicit BrickBlocking(const BrickArray& array)
      : shape(array.box.shape()),
        row_bytes(shape[2] * array.channels * static_cast<int64_t>(DTypeSize(array.dtype))) {
    constexpr int64_t kAim = 256 << 10;
    const int64_t row = std::max<int64_t>(row_bytes, 1);
    const int64_t plane = std::max<int64_t>(row_bytes * shape[1], 1);
    planes = plane <= kAim ? kAim / plane : 1;
    rows = plane <= kAim ? shape[1] : std::max<int64_t>(kAim / row, 1);
  }
  int64_t blocks_per_plane() const { return (shape[1] + rows - 1) / rows; }  // of a group of planes
  int64_t count() const {
    if (shape[0] * shape[1] * row_bytes == 0) return 0;
    return (shape[0] + planes - 1) / planes * blocks_per_plane();
  }
  // In the array's own coordinates, which count from the corner of its box.
  Box BoxOf(int64_t block) const {
    const int64_t z = block / blocks_per_plane() * planes;
    const int64_t y = block % blocks_per_plane() * rows;
    return {{z, y, 0}, {std::min(z + planes, shape[0]), std::min(y + rows, shape[1]), shape[2]}};
  }
  int64_t OffsetOf(int64_t block) const {
    const Box box = BoxOf(block);
    return (box.begin[0] * shape[1] + box.begin[1]) * row_bytes;
  }
  int64_t BytesOf(int64_t block) const {
    const Box box = BoxOf(block);
    return box.extent(0) * box.extent(1) * row_bytes;
  }
};

// Bytes of the array, or nothing for one that no file can hold; for tables that may be nonsense.
std::optional<int64_t> BrickArrayBytes(const BrickArray& array);

// Error(kInternal) unless the key has 32 digits.
std::vector<std::byte> MakeBrickHeader(const std::string& unit_key);

// Ties header, table and its place in the file together.
uint64_t BrickTableHash(std::span<const std::byte> header, std::span<const std::byte> table,
                        uint64_t table_offset);

}  // namespace tilery
