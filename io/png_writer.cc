// Writing of PNG: header and metadata here, image data in png_encoder. Bytes depend on samples and
// metadata alone: fixed filter, blocks and chunk size, no time chunk.
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/byte_order.h"
#include "io/container.h"
#include "io/exif.h"
#include "io/packets.h"
#include "io/png.h"
#include "io/png_encoder.h"
#include "io/row_cursor.h"

namespace tilery {
namespace {

constexpr unsigned char kMagic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};

std::string Deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  if (compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), 9) != Z_OK) {
    throw Error(Fault::kTransient, "zlib has no memory");
  }
  out.resize(size);
  return out;
}

std::string BigEndian(std::initializer_list<double> values) {
  std::string out(values.size() * 4, '\0');
  size_t at = 0;
  for (const double value : values) {
    const double kept = std::clamp(std::round(value), 0.0, 2147483647.0);
    Store<uint32_t>(out.data() + 4 * at++, static_cast<uint32_t>(kept), true);
  }
  return out;
}

class PngWriter final : public Writer {
 public:
  PngWriter(OutputFile& file, const WriteSpec& spec)
      : file_(file),
        header_(spec.header),
        cursor_(spec.header.shape),
        encoder_(file, spec.header, spec.pool) {
    WriteHeader();
    WriteMetadata(spec.metadata);
  }

  void Write(const Box& band, const ConstView& samples) override {
    cursor_.Continue(band);
    encoder_.Write(samples);
  }

  void Finish() override {
    cursor_.RequireEnd();
    encoder_.Finish();
    WritePngChunk(file_, "IEND", "");
  }

 private:
  void WriteHeader() {
    static constexpr char kTypes[] = {0, 4, 2, 6};  // gray, with alpha, RGB, with alpha
    file_.Write(std::as_bytes(std::span(kMagic)));
    std::string content =
        BigEndian({static_cast<double>(header_.shape[2]), static_cast<double>(header_.shape[1])});
    content += {static_cast<char>(8 * DTypeSize(header_.dtype)), kTypes[header_.channels - 1],
                0,   // deflate
                0,   // the five filters
                0};  // not interlaced
    WritePngChunk(file_, "IHDR", content);
  }

  void WriteMetadata(const Metadata& metadata) {
    if (metadata.chromaticities) {
      const auto& c = *metadata.chromaticities;
      WritePngChunk(file_, "cHRM",
                    BigEndian({c[0] * 1e5, c[1] * 1e5, c[2] * 1e5, c[3] * 1e5, c[4] * 1e5,
                               c[5] * 1e5, c[6] * 1e5, c[7] * 1e5}));
    }
    if (metadata.gamma) WritePngChunk(file_, "gAMA", BigEndian({*metadata.gamma * 1e5}));
    if (!metadata.icc.empty() && ForeignProfile(metadata.icc, Colours(header_)).empty()) {
      WritePngChunk(file_, "iCCP", std::string("ICC profile\0\0", 13) + Deflated(metadata.icc));
    } else if (metadata.srgb_intent) {
      WritePngChunk(file_, "sRGB", std::string(1, static_cast<char>(*metadata.srgb_intent)));
    }
    if (metadata.resolution) {
      // 2 is inch, 3 centimetre; PNG knows metres only.
      const double per = metadata.resolution_unit == 2   ? 1 / 0.0254
                         : metadata.resolution_unit == 3 ? 100
                                                         : 1;
      WritePngChunk(file_, "pHYs",
                    BigEndian({(*metadata.resolution)[0] * per, (*metadata.resolution)[1] * per}) +
                        std::string(1, metadata.resolution_unit == 0 ? '\0' : '\1'));
    }
    const std::string exif = WithExifOrientation(metadata.exif, metadata.orientation);
    if (!exif.empty()) WritePngChunk(file_, "eXIf", exif);
    if (!metadata.description.empty()) {
      const auto& text = metadata.description;
      const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
      const std::string key(kPngDescription, sizeof kPngDescription);  // with its zero
      if (ascii) {
        WritePngChunk(file_, "tEXt", key + text);
      } else {
        WritePngChunk(file_, "iTXt", key + std::string(4, '\0') + text);  // plain, no language
      }
    }
    if (!metadata.xmp.empty()) {
      const std::string key(kPngXmp, sizeof kPngXmp);
      WritePngChunk(file_, "iTXt", key + std::string(4, '\0') + metadata.xmp);
    }
    if (!metadata.iptc.empty()) {
      const std::string key(kPngIptc, sizeof kPngIptc);
      const std::string text = RawProfileText("iptc", ResourcesOfIptc(metadata.iptc));
      WritePngChunk(file_, "zTXt", key + '\0' + Deflated(text));
    }
  }

  OutputFile& file_;
  Header header_;
  RowCursor cursor_;
  PngEncoder encoder_;
};

bool RecognisesPng(std::span<const std::byte> head) {
  return head.size() >= sizeof kMagic && std::memcmp(head.data(), kMagic, sizeof kMagic) == 0;
}

std::string WhyNotPng(const Header& header) {
  constexpr int64_t kMost = 0x7FFFFFFF;
  if (header.dtype != DType::kU8 && header.dtype != DType::kU16) {
    return std::string("PNG holds u8 or u16, not ") + DTypeName(header.dtype);
  }
  if (header.shape[0] != 1) {
    return "PNG holds one picture, not " + std::to_string(header.shape[0]) + " planes";
  }
  if (header.alpha == AlphaKind::kAssociated) return "PNG holds straight alpha, not associated";
  const int colours = Colours(header);
  if (colours != 1 && colours != 3) {
    return "PNG holds 1 or 3 colour channels and alpha, not " + std::to_string(colours);
  }
  for (const int axis : {1, 2}) {
    if (header.shape[axis] < 1 || header.shape[axis] > kMost) {
      return "PNG holds 1 to " + std::to_string(kMost) + " pixels along an axis, not " +
             std::to_string(header.shape[axis]);
    }
  }
  return "";
}

std::vector<std::string> PngLosses(const Header& from, const Metadata& metadata) {
  std::vector<std::string> losses;
  const std::string foreign = ForeignProfile(metadata.icc, Colours(from));
  if (!foreign.empty()) losses.push_back("ICC profile (made for " + foreign + " pictures)");
  AddCommonLosses(metadata, false, &losses);
  if (!metadata.nifti.empty()) losses.push_back("NIfTI header");
  return losses;
}

}  // namespace

std::unique_ptr<Writer> CreatePng(OutputFile& file, const WriteSpec& spec) {
  return std::make_unique<PngWriter>(file, spec);
}

const Container& PngContainer() {
  static const Container container{"png",     {".png"},  RecognisesPng, OpenPng,
                                   CreatePng, WhyNotPng, PngLosses};
  return container;
}

}  // namespace tilery
