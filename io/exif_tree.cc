#include "io/exif_tree.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "io/byte_order.h"

namespace tilery {
namespace {

constexpr uint16_t kInteroperabilityPointer = 40965;
constexpr uint16_t kShort = 3, kLong = 4, kIfd = 13, kLong8 = 16, kIfd8 = 18;
constexpr uint64_t kMostFields = 4096;
constexpr uint64_t kMostBytes = 16 << 20;  // of all values: many fields may share the same bytes

struct TypeSize {
  size_t bytes;  // of one value
  size_t unit;   // what byte order applies to
};
TypeSize SizeOf(uint16_t type) {
  switch (type) {
    case 1:
    case 2:
    case 6:
    case 7:
      return {1, 1};  // byte, text, signed byte, undefined
    case 3:
    case 8:
      return {2, 2};  // short
    case 4:
    case 9:
    case 11:
    case 13:
      return {4, 4};  // long, float, directory
    case 5:
    case 10:
      return {8, 4};  // rational
    case 12:
    case 16:
    case 17:
    case 18:
      return {8, 8};  // double and BigTIFF's own
    default:
      return {0, 0};
  }
}

std::optional<uint64_t> Number(const ExifField& field) {
  if (field.count != 1) return {};
  if (field.type == kShort) return LoadLittle<uint16_t>(field.value.data());
  if (field.type == kLong || field.type == kIfd) return LoadLittle<uint32_t>(field.value.data());
  if (field.type == kLong8 || field.type == kIfd8) return LoadLittle<uint64_t>(field.value.data());
  return {};
}

// Takes a pointer out of the directory.
uint64_t TakePointer(ExifDirectory& fields, uint16_t tag) {
  const auto at = std::find_if(fields.begin(), fields.end(),
                               [tag](const ExifField& field) { return field.tag == tag; });
  if (at == fields.end()) return 0;
  const uint64_t value = Number(*at).value_or(0);
  fields.erase(at);
  return value;
}

// Widths of a directory's parts.
struct Widths {
  size_t count, entry, value;  // of the number of entries, of an entry, of the value inside it
};
Widths WidthsOf(bool big_tiff) { return big_tiff ? Widths{8, 20, 8} : Widths{2, 12, 4}; }

size_t DirectoryBytes(const ExifDirectory& fields, bool big_tiff) {
  const Widths widths = WidthsOf(big_tiff);
  size_t bytes = widths.count + fields.size() * widths.entry + widths.value;
  bytes += bytes % 2;
  for (const ExifField& field : fields) {
    if (field.value.size() > widths.value) bytes += field.value.size() + field.value.size() % 2;
  }
  return bytes;
}

// A directory for byte `at` of its file, values behind it, no next one.
std::string WriteDirectory(ExifDirectory fields, uint64_t at, bool big_tiff) {
  std::stable_sort(fields.begin(), fields.end(),
                   [](const ExifField& a, const ExifField& b) { return a.tag < b.tag; });
  const Widths widths = WidthsOf(big_tiff);
  const auto number = [big_tiff](uint64_t value) {
    std::string out(8, '\0');
    Store(out.data(), value, false);
    return out.substr(0, big_tiff ? 8 : 4);
  };
  std::string out = number(fields.size()).substr(0, widths.count);
  std::string values;
  size_t after = widths.count + fields.size() * widths.entry + widths.value;
  after += after % 2;
  for (const ExifField& field : fields) {
    std::string entry(4, '\0');
    Store(entry.data(), field.tag, false);
    Store(entry.data() + 2, field.type, false);
    entry += number(field.count);
    if (field.value.size() <= widths.value) {
      entry += field.value;
      entry.resize(widths.entry, '\0');
    } else {
      entry += number(at + after + values.size());
      values += field.value;
      values.resize(values.size() + values.size() % 2, '\0');
    }
    out += entry;
  }
  out.resize(after, '\0');
  return out + values;
}

ExifField Pointer(uint16_t tag, uint64_t offset, bool big_tiff) {
  std::string value(8, '\0');
  Store(value.data(), offset, false);
  value.resize(big_tiff ? 8 : 4);
  return {tag, big_tiff ? kIfd8 : kLong, 1, value};
}

}  // namespace

ExifDirectory ReadExifDirectory(const ExifSource& source, uint64_t offset, bool big_endian,
                                bool big_tiff) {
  const Widths widths = WidthsOf(big_tiff);
  const auto number = [&](const char* from) {
    return big_tiff ? Load<uint64_t>(from, big_endian) : Load<uint32_t>(from, big_endian);
  };
  char head[8];
  if (offset == 0 || !source(offset, head, widths.count)) return {};
  const uint64_t count =
      big_tiff ? Load<uint64_t>(head, big_endian) : Load<uint16_t>(head, big_endian);
  ExifDirectory fields;
  uint64_t left = kMostBytes;
  for (uint64_t i = 0; i < std::min(count, kMostFields); ++i) {
    char entry[20];
    if (!source(offset + widths.count + i * widths.entry, entry, widths.entry)) break;
    ExifField field{
        Load<uint16_t>(entry, big_endian), Load<uint16_t>(entry + 2, big_endian), 0, {}};
    const uint64_t values = number(entry + 4);
    const TypeSize size = SizeOf(field.type);
    if (size.bytes == 0 || values == 0 || values > left / size.bytes) continue;
    field.count = static_cast<uint32_t>(values);
    field.value.resize(values * size.bytes);
    const char* inside = entry + 4 + widths.value;
    if (field.value.size() <= widths.value) {
      std::memcpy(field.value.data(), inside, field.value.size());
    } else if (!source(number(inside), field.value.data(), field.value.size())) {
      continue;
    }
    if (big_endian) {
      SwapSamples(reinterpret_cast<std::byte*>(field.value.data()), field.value.size() / size.unit,
                  size.unit);
    }
    left -= field.value.size();
    fields.push_back(std::move(field));
  }
  return fields;
}

std::optional<ExifExtent> FindExifField(const ExifSource& source, uint64_t directory, uint16_t tag,
                                        bool big_endian, bool big_tiff) {
  const Widths widths = WidthsOf(big_tiff);
  const auto number = [&](const char* from) {
    return big_tiff ? Load<uint64_t>(from, big_endian) : Load<uint32_t>(from, big_endian);
  };
  char head[8];
  if (directory == 0 || !source(directory, head, widths.count)) return {};
  const uint64_t count =
      big_tiff ? Load<uint64_t>(head, big_endian) : Load<uint16_t>(head, big_endian);
  for (uint64_t i = 0; i < std::min(count, kMostFields); ++i) {
    const uint64_t at = directory + widths.count + i * widths.entry;
    char entry[20];
    if (!source(at, entry, widths.entry)) break;
    if (Load<uint16_t>(entry, big_endian) != tag) continue;
    const size_t size = SizeOf(Load<uint16_t>(entry + 2, big_endian)).bytes;
    const uint64_t values = number(entry + 4);
    if (size == 0 || values == 0 || values > UINT64_MAX / size) return {};
    const uint64_t inside = at + 4 + widths.value;
    const bool fits = values * size <= widths.value;
    return ExifExtent{fits ? inside : number(entry + 4 + widths.value), values * size};
  }
  return {};
}

void ReadExifBelow(const ExifSource& source, uint64_t exif, uint64_t gps, bool big_endian,
                   bool big_tiff, ExifTree* tree) {
  tree->exif = ReadExifDirectory(source, exif, big_endian, big_tiff);
  tree->gps = ReadExifDirectory(source, gps, big_endian, big_tiff);
  const uint64_t interoperability = TakePointer(tree->exif, kInteroperabilityPointer);
  tree->interoperability = ReadExifDirectory(source, interoperability, big_endian, big_tiff);
  for (ExifDirectory* fields : {&tree->exif, &tree->gps, &tree->interoperability}) {
    std::erase_if(*fields, [](const ExifField& field) { return field.type >= kIfd; });
  }
}

ExifTree ParseExif(const std::string& payload) {
  const bool big = payload.starts_with(std::string("MM\0*", 4));
  if (payload.size() < 8 || (!big && !payload.starts_with(std::string("II*\0", 4)))) return {};
  const ExifSource source = [&payload](uint64_t offset, void* into, size_t bytes) {
    if (offset > payload.size() || bytes > payload.size() - offset) return false;
    std::memcpy(into, payload.data() + offset, bytes);
    return true;
  };
  ExifTree tree;
  tree.main = ReadExifDirectory(source, Load<uint32_t>(payload.data() + 4, big), big, false);
  const uint64_t exif = TakePointer(tree.main, kExifPointer);
  const uint64_t gps = TakePointer(tree.main, kGpsPointer);
  ReadExifBelow(source, exif, gps, big, false, &tree);
  return tree;
}

PlacedExif PlaceExif(const ExifTree& tree, uint64_t at, bool big_tiff) {
  PlacedExif out;
  if (!tree.exif.empty()) {
    ExifDirectory exif = tree.exif;
    std::string below;
    if (!tree.interoperability.empty()) {
      exif.push_back(Pointer(kInteroperabilityPointer, 0, big_tiff));
      const uint64_t after = at + DirectoryBytes(exif, big_tiff);
      exif.back() = Pointer(kInteroperabilityPointer, after, big_tiff);
      below = WriteDirectory(tree.interoperability, after, big_tiff);
    }
    out.exif = at;
    out.bytes = WriteDirectory(exif, at, big_tiff) + below;
  }
  if (!tree.gps.empty()) {
    out.gps = at + out.bytes.size();
    out.bytes += WriteDirectory(tree.gps, out.gps, big_tiff);
  }
  return out;
}

std::string BuildExif(const ExifTree& tree) {
  if (tree.empty()) return "";
  constexpr uint64_t kStart = 8;
  ExifDirectory main = tree.main;
  const size_t fields = main.size();
  if (!tree.exif.empty()) main.push_back(Pointer(kExifPointer, 0, false));
  if (!tree.gps.empty()) main.push_back(Pointer(kGpsPointer, 0, false));
  const PlacedExif below = PlaceExif(tree, kStart + DirectoryBytes(main, false), false);
  size_t next = fields;
  if (below.exif != 0) main[next++] = Pointer(kExifPointer, below.exif, false);
  if (below.gps != 0) main[next++] = Pointer(kGpsPointer, below.gps, false);
  return std::string("II*\0\x08\0\0\0", 8) + WriteDirectory(main, kStart, false) + below.bytes;
}

}  // namespace tilery
