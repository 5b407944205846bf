#include "io/exif.h"

#include "io/byte_order.h"

namespace tilery {
namespace {

constexpr uint16_t kOrientation = 0x0112;
constexpr uint16_t kExifIfd = 0x8769;
constexpr uint16_t kPixelX = 0xA002;
constexpr uint16_t kPixelY = 0xA003;
constexpr uint16_t kShort = 3;
constexpr uint16_t kLong = 4;
constexpr size_t kEntryBytes = 12;

bool IsBig(const std::string& exif) { return exif.compare(0, 4, std::string("MM\0*", 4)) == 0; }
bool IsPayload(const std::string& exif) {
  return exif.size() >= 8 && (IsBig(exif) || exif.compare(0, 4, std::string("II*\0", 4)) == 0);
}

// Offset of the entry with `tag` in the directory at `ifd`, if both lie inside the payload.
std::optional<size_t> FindEntry(const std::string& exif, size_t ifd, uint16_t tag) {
  if (ifd < 8 || ifd + 2 > exif.size()) return {};
  const bool big = IsBig(exif);
  const size_t count = Load<uint16_t>(exif.data() + ifd, big);
  for (size_t i = 0; i < count; ++i) {
    const size_t entry = ifd + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > exif.size()) return {};
    if (Load<uint16_t>(exif.data() + entry, big) == tag) return entry;
  }
  return {};
}

std::optional<size_t> FirstIfd(const std::string& exif) {
  if (!IsPayload(exif)) return {};
  return Load<uint32_t>(exif.data() + 4, IsBig(exif));
}

// Value of a single SHORT or LONG.
std::optional<uint32_t> SmallValue(const std::string& exif, size_t entry) {
  const bool big = IsBig(exif);
  const char* at = exif.data() + entry;
  if (Load<uint32_t>(at + 4, big) != 1) return {};
  if (Load<uint16_t>(at + 2, big) == kShort) return Load<uint16_t>(at + 8, big);
  if (Load<uint16_t>(at + 2, big) == kLong) return Load<uint32_t>(at + 8, big);
  return {};
}

void SetSmallValue(std::string& exif, size_t entry, uint32_t value) {
  const bool big = IsBig(exif);
  char* at = exif.data() + entry;
  Store<uint32_t>(at + 4, 1, big);
  Store<uint32_t>(at + 8, 0, big);
  if (value > 0xFFFF) {
    Store<uint16_t>(at + 2, kLong, big);
    Store<uint32_t>(at + 8, value, big);
  } else {
    Store<uint16_t>(at + 2, kShort, big);
    Store<uint16_t>(at + 8, static_cast<uint16_t>(value), big);
  }
}

std::string OrientationAlone(int orientation) {
  std::string exif("II*\0\x08\0\0\0\x01\0", 10);
  exif.resize(26, '\0');  // one entry and no next directory
  Store<uint16_t>(exif.data() + 10, kOrientation, false);
  SetSmallValue(exif, 10, static_cast<uint32_t>(orientation));
  return exif;
}

}  // namespace

int ExifOrientation(const std::string& exif) {
  const auto ifd = FirstIfd(exif);
  const auto entry = ifd ? FindEntry(exif, *ifd, kOrientation) : std::nullopt;
  const auto value = entry ? SmallValue(exif, *entry) : std::nullopt;
  return value && *value >= 1 && *value <= 8 ? static_cast<int>(*value) : 1;
}

std::string WithExifOrientation(const std::string& exif, int orientation) {
  if (exif.empty()) return orientation == 1 ? "" : OrientationAlone(orientation);
  if (ExifOrientation(exif) == orientation) return exif;
  std::string out = exif;
  const auto ifd = FirstIfd(exif);
  const auto entry = ifd ? FindEntry(exif, *ifd, kOrientation) : std::nullopt;
  if (entry) SetSmallValue(out, *entry, static_cast<uint32_t>(orientation));
  return out;
}

std::string WithExifPixelSize(const std::string& exif, int64_t width, int64_t height) {
  const auto ifd = FirstIfd(exif);
  const auto pointer = ifd ? FindEntry(exif, *ifd, kExifIfd) : std::nullopt;
  const auto inner = pointer ? SmallValue(exif, *pointer) : std::nullopt;
  if (!inner) return exif;
  std::string out = exif;
  const auto set = [&](uint16_t tag, int64_t value) {
    const auto entry = FindEntry(exif, *inner, tag);
    if (entry && value >= 0 && value <= 0xFFFFFFFF) {
      SetSmallValue(out, *entry, static_cast<uint32_t>(value));
    }
  };
  set(kPixelX, width);
  set(kPixelY, height);
  return out;
}

}  // namespace tilery
