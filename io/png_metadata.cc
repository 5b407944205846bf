// What a PNG carries beside its samples. Chunks are taken as they lie in the file, before and after
// the image data: libpng drops or changes what it finds inconsistent, and an output must carry what
// its input said. Of chunks of one kind the last counts, as for viewers.
#include <zlib.h>

#include <algorithm>
#include <optional>

#include "io/byte_order.h"
#include "io/container.h"
#include "io/exif.h"
#include "io/jpeg.h"
#include "io/packets.h"
#include "io/png.h"
#include "io/png_chunks.h"

namespace tilery {
namespace {

constexpr int64_t kChunkLimit = 64 << 20;           // of one chunk, as stored
constexpr size_t kProfileLimit = size_t{64} << 20;  // of a colour profile, inflated
constexpr size_t kTextLimit = 2 * kMostPacket + (kMostPacket >> 4);  // a packet in hexadecimal

// Nothing if damaged; what is longer than `most` is cut somewhere beyond it.
std::optional<std::string> Inflate(const char* data, size_t size, size_t most) {
  z_stream stream{};
  if (inflateInit(&stream) != Z_OK) throw Error(Fault::kTransient, "zlib has no memory");
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data));
  stream.avail_in = static_cast<uInt>(size);
  std::string out;
  int rc = Z_OK;
  while (rc == Z_OK && out.size() <= most) {
    const size_t had = out.size();
    out.resize(had + std::clamp<size_t>(had, 4096, most / 4));
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + had);
    stream.avail_out = static_cast<uInt>(out.size() - had);
    rc = inflate(&stream, Z_NO_FLUSH);
    out.resize(out.size() - stream.avail_out);
  }
  inflateEnd(&stream);
  if (rc != Z_STREAM_END && out.size() <= most) return {};
  return out;
}

std::string Latin1ToUtf8(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      out += c;
    } else {
      out += static_cast<char>(0xC0 | byte >> 6);
      out += static_cast<char>(0x80 | (byte & 0x3F));
    }
  }
  return out;
}

// The text of a tEXt, zTXt or iTXt chunk behind its key; nothing if it can't be unpacked.
std::optional<std::string> TextOf(const std::string& chunk, const std::string& content,
                                  size_t key_bytes) {
  size_t at = key_bytes + 1;
  bool packed = chunk == "zTXt";
  if (packed) at += 1;    // the method
  if (chunk == "iTXt") {  // whether packed, method, language, translated key
    if (content.size() < at + 2) return {};
    packed = content[at] != 0;
    at += 2;
    for (int i = 0; i < 2; ++i) {
      at = content.find('\0', at);
      if (at == std::string::npos) return {};
      ++at;
    }
  }
  if (at > content.size()) return {};
  return packed ? Inflate(content.data() + at, content.size() - at, kTextLimit)
                : content.substr(at);
}

class Collector {
 public:
  explicit Collector(const InputFile& file) : file_(file), chunks_(file) {}

  Metadata Collect() {
    while (chunks_.Next()) {
      const std::string& name = chunks_.name();
      if (name == "tEXt" || name == "zTXt" || name == "iTXt") {
        TakeText();
      } else if (name == "eXIf") {
        if (Fits("EXIF")) metadata_.exif = chunks_.Content();
      } else if (!chunks_.after_data()) {
        TakeColour(name);
      }
    }
    NameFrames();
    if (metadata_.exif.empty()) metadata_.exif = profile_exif_;
    if (metadata_.xmp.empty()) TakeXmp(profile_xmp_, &metadata_);
    metadata_.orientation = ExifOrientation(metadata_.exif);
    return std::move(metadata_);
  }

 private:
  bool Fits(const std::string& what) {
    if (chunks_.size() <= kChunkLimit) return true;
    metadata_.left_out.push_back(TooLarge(what, kChunkLimit));
    return false;
  }

  void TakeColour(const std::string& name) {
    const int64_t size = chunks_.size();
    std::string content;
    const auto number = [&content](int i) { return LoadBig<uint32_t>(content.data() + 4 * i); };
    const auto is = [&](const char* wanted, int64_t bytes) {
      if (name != wanted || size != bytes) return false;
      content = chunks_.Content();
      return true;
    };
    if (is("gAMA", 4)) metadata_.gamma = number(0) / 100000.0;
    if (is("sRGB", 1)) metadata_.srgb_intent = static_cast<unsigned char>(content[0]);
    if (is("cHRM", 32)) {
      metadata_.chromaticities.emplace();
      for (int i = 0; i < 8; ++i) {
        (*metadata_.chromaticities)[static_cast<size_t>(i)] = number(i) / 100000.0;
      }
    }
    if (is("pHYs", 9)) {
      const bool metres = content[8] == 1;
      if (number(0) > 0 && number(1) > 0 && (metres || number(0) != number(1))) {
        metadata_.resolution = {static_cast<double>(number(0)), static_cast<double>(number(1))};
        metadata_.resolution_unit = metres ? 1 : 0;
      }
    }
    if (is("acTL", 8)) frames_ = number(0);
    if (name == "fcTL") first_frame_is_picture_ = true;
    if (name == "iCCP" && Fits("ICC profile")) {
      content = chunks_.Content();
      const size_t name_end = content.find('\0');
      const size_t used = name_end == std::string::npos ? content.size() : name_end + 2;
      if (used < content.size()) {
        metadata_.icc =
            Inflate(content.data() + used, content.size() - used, kProfileLimit).value_or("");
      }
      if (metadata_.icc.empty() || metadata_.icc.size() > kProfileLimit) {
        ThrowInput(file_.path(), "damaged PNG: unreadable colour profile");
      }
    }
  }

  void TakeText() {
    constexpr int64_t kMostKey = 80;  // with its zero
    static constexpr const char kRaw[] = "Raw profile type ";
    std::string key = chunks_.Head(kMostKey);
    if (key.find('\0') == std::string::npos) return;
    key.resize(key.find('\0'));
    const bool raw = key.starts_with(kRaw);
    const std::string profile = raw ? key.substr(sizeof kRaw - 1) : "";
    const std::string what = key == kPngDescription                   ? "description"
                             : key == kPngXmp || profile == "xmp"     ? "XMP"
                             : profile == "iptc" || profile == "8bim" ? "IPTC"
                             : profile == "exif" || profile == "APP1" ? "EXIF"
                                                                      : "";
    if (what.empty() || !Fits(what)) return;
    const std::string chunk = chunks_.name();
    std::optional<std::string> unpacked = TextOf(chunk, chunks_.Content(), key.size());
    if (unpacked && unpacked->size() > kTextLimit) {
      metadata_.left_out.push_back(TooLarge(what, kTextLimit));
      return;
    }
    if (unpacked && raw) unpacked = RawProfileBytes(*unpacked);
    if (!unpacked) {
      metadata_.left_out.push_back(what + " (its text is damaged)");
      return;
    }
    std::string& text = *unpacked;
    if (what == "description") {
      metadata_.description = chunk == "iTXt" ? text : Latin1ToUtf8(text);
    } else if (what == "IPTC") {
      TakeIptc(IptcOfResources(text), &metadata_);
    } else if (key == kPngXmp) {
      TakeXmp(std::move(text), &metadata_);
    } else if (what == "XMP") {
      profile_xmp_ = std::move(text);
    } else if (text.starts_with(std::string(kXmpTag, kXmpTagBytes))) {
      profile_xmp_ = text.substr(kXmpTagBytes);
    } else {
      const bool tagged = text.starts_with(std::string(kExifTag, kExifTagBytes));
      profile_exif_ = tagged ? text.substr(kExifTagBytes) : text;
    }
  }

  void NameFrames() {
    // The picture may be one of the frames or stand in for them.
    if (frames_ <= (first_frame_is_picture_ ? 1u : 0u)) return;
    metadata_.left_out.push_back("animation (" + std::to_string(frames_) +
                                 (frames_ == 1 ? " frame" : " frames") +
                                 ", of which only the first picture is read)");
  }

  const InputFile& file_;
  PngChunks chunks_;
  Metadata metadata_;
  uint32_t frames_ = 0;
  bool first_frame_is_picture_ = false;
  std::string profile_exif_, profile_xmp_;  // used where no chunk of its own has them
};

}  // namespace

Metadata ReadPngMetadata(const InputFile& file) { return Collector(file).Collect(); }

}  // namespace tilery
