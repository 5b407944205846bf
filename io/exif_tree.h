// EXIF taken apart into fields, for moving it between a payload (JPEG, PNG) and the directories of
// a TIFF.
//
// Damaged parts are left out, never an error. Values keep their bytes but for byte order; offsets
// inside a maker note, which only its maker knows, are not followed. The thumbnail is left out.
// Source: EXIF 2.32, TIFF 6.0, the BigTIFF design.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tilery {

struct ExifField {
  uint16_t tag = 0;
  uint16_t type = 0;
  uint32_t count = 0;
  std::string value;  // host order
};
using ExifDirectory = std::vector<ExifField>;

struct ExifTree {
  ExifDirectory main;  // of the first directory, without the pointers to the others
  ExifDirectory exif, gps, interoperability;

  bool empty() const { return main.empty() && exif.empty() && gps.empty(); }
};

inline constexpr uint16_t kExifPointer = 34665;
inline constexpr uint16_t kGpsPointer = 34853;
inline constexpr uint16_t kOrientationTag = 274;

// Where directories are read from: false if these bytes are not there.
using ExifSource = std::function<bool(uint64_t offset, void* into, size_t bytes)>;

// The directory at `offset`; in a BigTIFF its entries are wider.
ExifDirectory ReadExifDirectory(const ExifSource& source, uint64_t offset, bool big_endian,
                                bool big_tiff);
// Where the values of one field lie, whatever their type; nothing if there is none with this tag.
struct ExifExtent {
  uint64_t offset = 0, bytes = 0;
};
std::optional<ExifExtent> FindExifField(const ExifSource& source, uint64_t directory, uint16_t tag,
                                        bool big_endian, bool big_tiff);
// The directories of `tree` that the pointers given lead to; 0: none.
void ReadExifBelow(const ExifSource& source, uint64_t exif, uint64_t gps, bool big_endian,
                   bool big_tiff, ExifTree* tree);

ExifTree ParseExif(const std::string& payload);
std::string BuildExif(const ExifTree& tree);  // little-endian; "" if empty

// The exif, interoperability and gps directories as they stand in a little-endian TIFF from byte
// `at` (even) on; the offsets of the first and last, 0 where empty.
struct PlacedExif {
  std::string bytes;
  uint64_t exif = 0, gps = 0;
};
PlacedExif PlaceExif(const ExifTree& tree, uint64_t at, bool big_tiff);

}  // namespace tilery
