#include "io/brick_layout.h"

#include "io/error.h"
#include "io/hash.h"

namespace tilery {
namespace {

constexpr uint32_t kVersion = 2;
constexpr size_t kKeySize = 32;

}  // namespace

std::optional<int64_t> BrickArrayBytes(const BrickArray& array) {
  if (array.channels < 0) return std::nullopt;
  __int128 bytes = static_cast<__int128>(array.channels) * DTypeSize(array.dtype);
  for (int axis = 0; axis < 3; ++axis) {
    const __int128 extent = static_cast<__int128>(array.box.end[axis]) - array.box.begin[axis];
    if (extent < 0 || extent > (__int128{1} << 62)) return std::nullopt;
    bytes *= extent;
    if (bytes > (__int128{1} << 62)) return std::nullopt;
  }
  return static_cast<int64_t>(bytes);
}

std::vector<std::byte> MakeBrickHeader(const std::string& unit_key) {
  if (unit_key.size() != kKeySize) {
    throw Error(Fault::kInternal, "brick key \"" + Printable(unit_key, 80) + "\" has " +
                                      std::to_string(unit_key.size()) + " digits instead of 32");
  }
  BytePacker header;
  header.PutBytes(kBrickMagic, kBrickMagicSize);
  header.Put(kVersion);
  header.PutBytes(unit_key.data(), kKeySize);
  return {header.bytes().begin(), header.bytes().end()};
}

uint64_t BrickTableHash(std::span<const std::byte> header, std::span<const std::byte> table,
                        uint64_t table_offset) {
  BytePacker all;
  all.PutBytes(header.data(), header.size());
  all.Put(table_offset);
  all.Put(static_cast<uint64_t>(table.size()));
  all.PutBytes(table.data(), table.size());
  return ShortHash(all.bytes());
}

}  // namespace tilery
