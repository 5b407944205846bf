// What a TIFF page carries beside its samples, to and from Metadata.
#include <tiffio.h>

#include <algorithm>
#include <cstring>

#include "io/container.h"
#include "io/exif_tree.h"
#include "io/packets.h"
#include "io/tiff.h"

namespace tilery {
namespace {

// Text fields that a TIFF and the first directory of EXIF share. Software and host alone (`weak`)
// make no EXIF: every program leaves its name.
struct TextTag {
  uint16_t tag;
  bool weak;
};
constexpr TextTag kTexts[] = {{TIFFTAG_MAKE, false},     {TIFFTAG_MODEL, false},
                              {TIFFTAG_SOFTWARE, true},  {TIFFTAG_DATETIME, false},
                              {TIFFTAG_ARTIST, false},   {TIFFTAG_HOSTCOMPUTER, true},
                              {TIFFTAG_COPYRIGHT, false}};
constexpr uint16_t kTextType = 2, kShortType = 3;

uint64_t PointerOf(TIFF* tiff, uint32_t tag) {
  uint64_t offset = 0;
  return TIFFGetField(tiff, tag, &offset) == 1 ? offset : 0;
}

// The file beside libtiff, which keeps parts of it to itself.
struct FileBytes {
  explicit FileBytes(const InputFile& file) {
    source = [&file](uint64_t offset, void* into, size_t bytes) {
      if (offset > static_cast<uint64_t>(file.size())) return false;
      const std::span<std::byte> span(static_cast<std::byte*>(into), bytes);
      return file.ReadSome(static_cast<int64_t>(offset), span) == bytes;
    };
    char head[4] = {};
    source(0, head, sizeof head);
    big_endian = head[0] == 'M';
    big_tiff = head[big_endian ? 3 : 2] == '+';
  }

  ExifSource source;
  bool big_endian = false, big_tiff = false;
};

// The bytes of a field of the current page as they lie in the file: libtiff passes over packets of
// a type that it does not expect, and turns words round. Cut ones are passed over, too large ones
// named in `left_out`.
std::string ReadPacket(TIFF* tiff, const FileBytes& file, uint16_t tag, const char* what,
                       Metadata* metadata) {
  const auto extent =
      FindExifField(file.source, TIFFCurrentDirOffset(tiff), tag, file.big_endian, file.big_tiff);
  if (!extent) return "";
  if (extent->bytes > kMostPacket) {
    metadata->left_out.push_back(TooLarge(what, kMostPacket));
    return "";
  }
  std::string packet(extent->bytes, '\0');
  if (file.source(extent->offset, packet.data(), packet.size())) return packet;
  metadata->left_out.push_back(std::string(what) + " (it lies beyond the end of the file)");
  return "";
}

std::string ReadExif(TIFF* tiff, const FileBytes& file, int orientation) {
  ExifTree tree;
  ReadExifBelow(file.source, PointerOf(tiff, TIFFTAG_EXIFIFD), PointerOf(tiff, TIFFTAG_GPSIFD),
                file.big_endian, file.big_tiff, &tree);
  bool worth_it = !tree.empty();
  for (const TextTag& known : kTexts) {
    const char* text = nullptr;
    if (TIFFGetField(tiff, known.tag, &text) != 1 || text == nullptr) continue;
    const std::string value(text, std::strlen(text) + 1);
    tree.main.push_back({known.tag, kTextType, static_cast<uint32_t>(value.size()), value});
    worth_it = worth_it || !known.weak;
  }
  if (!worth_it) return "";
  if (orientation != 1) {
    const std::string value{static_cast<char>(orientation), 0};
    tree.main.push_back({kOrientationTag, kShortType, 1, value});
  }
  return BuildExif(tree);
}

}  // namespace

Metadata ReadTiffMetadata(TiffHandle& handle, const InputFile& file) {
  TIFF* tiff = handle.get();
  Metadata metadata;
  uint32_t bytes = 0;
  const void* data = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_ICCPROFILE, &bytes, &data) == 1) {
    metadata.icc.assign(static_cast<const char*>(data), bytes);
  }
  uint16_t orientation = 1;
  TIFFGetFieldDefaulted(tiff, TIFFTAG_ORIENTATION, &orientation);
  if (orientation >= 1 && orientation <= 8) metadata.orientation = orientation;
  float x = 0, y = 0;
  if (TIFFGetField(tiff, TIFFTAG_XRESOLUTION, &x) == 1 &&
      TIFFGetField(tiff, TIFFTAG_YRESOLUTION, &y) == 1 && x > 0 && y > 0) {
    uint16_t unit = RESUNIT_INCH;
    TIFFGetFieldDefaulted(tiff, TIFFTAG_RESOLUTIONUNIT, &unit);
    if (unit == RESUNIT_INCH || unit == RESUNIT_CENTIMETER || x != y) {
      metadata.resolution = {x, y};
      metadata.resolution_unit = unit == RESUNIT_INCH ? 2 : unit == RESUNIT_CENTIMETER ? 3 : 0;
    }
  }
  const char* text = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_IMAGEDESCRIPTION, &text) == 1 && text != nullptr) {
    // {"shape": [h, w]} alone describes the file, not the picture, and would be wrong in the next
    // one.
    const std::string said(text);
    const bool shape_only = said.starts_with("{\"shape\": [") && said.find(']') == said.size() - 2;
    if (!shape_only) metadata.description = said;
  }
  const FileBytes beside(file);
  metadata.exif = ReadExif(tiff, beside, metadata.orientation);
  metadata.xmp = ReadPacket(tiff, beside, TIFFTAG_XMLPACKET, "XMP", &metadata);
  const std::string sets = ReadPacket(tiff, beside, TIFFTAG_RICHTIFFIPTC, "IPTC", &metadata);
  metadata.iptc = WithoutPadding(sets);
  if (metadata.iptc.empty()) {
    const std::string resources =
        ReadPacket(tiff, beside, TIFFTAG_PHOTOSHOP, "Photoshop resources", &metadata);
    metadata.iptc = IptcOfResources(resources);
  }
  return metadata;
}

void WriteTiffExif(TiffHandle& handle, OutputFile& file, const std::string& exif, bool big_tiff) {
  const ExifTree tree = ParseExif(exif);
  TIFF* tiff = handle.get();
  const char* described = nullptr;
  TIFFGetField(tiff, TIFFTAG_IMAGEDESCRIPTION, &described);
  for (const ExifField& field : tree.main) {
    const bool known =
        std::any_of(std::begin(kTexts), std::end(kTexts),
                    [&field](const TextTag& text) { return text.tag == field.tag; }) ||
        (field.tag == TIFFTAG_IMAGEDESCRIPTION && described == nullptr);
    if (!known || field.type != kTextType) continue;
    const std::string text = field.value.c_str();
    handle.Call("tag " + std::to_string(field.tag),
                [&] { return TIFFSetField(tiff, uint32_t{field.tag}, text.c_str()) == 1; });
  }
  // libtiff appends its own directory behind whatever the file ends with.
  const uint64_t at = (static_cast<uint64_t>(file.size()) + 1) / 2 * 2;
  const PlacedExif placed = PlaceExif(tree, at, big_tiff);
  if (placed.bytes.empty()) return;
  file.WriteAt(static_cast<int64_t>(at), std::as_bytes(std::span(placed.bytes)));
  for (const auto& [tag, offset] : {std::pair<uint32_t, uint64_t>{TIFFTAG_EXIFIFD, placed.exif},
                                    {TIFFTAG_GPSIFD, placed.gps}}) {
    if (offset == 0) continue;
    handle.Call("tag " + std::to_string(tag),
                [&, tag = tag, offset = offset] { return TIFFSetField(tiff, tag, offset) == 1; });
  }
}

}  // namespace tilery
