// Writing of PNG through libpng. Bytes depend on samples and metadata alone: fixed filter, level
// and chunk size, no time chunk.
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/byte_order.h"
#include "io/c_trap.h"
#include "io/container.h"
#include "io/exif.h"
#include "io/packets.h"
#include "io/png.h"
#include "io/row_cursor.h"

namespace tilery {
namespace {

// On filtered photographs run lengths alone pack as well as level 4 with three filters does, at
// three times the speed.
constexpr int kLevel = 1;
constexpr int kStrategy = Z_RLE;
constexpr size_t kDataChunk = 256 << 10;

struct Sink {
  OutputFile* file;
  CTrap trap;
};

extern "C" {
static void PngWriteHook(png_structp png, png_bytep data, size_t bytes) {
  auto* sink = static_cast<Sink*>(png_get_io_ptr(png));
  try {
    sink->file->Write({reinterpret_cast<const std::byte*>(data), bytes});
  } catch (...) {
    sink->trap.pending = std::current_exception();
  }
  if (sink->trap.pending) png_error(png, "write failed");
}
static void PngFlushHook(png_structp) {}
static void PngWriteErrorHook(png_structp png, png_const_charp text) {
  static_cast<CTrap*>(png_get_error_ptr(png))->Leave(text);
}
static void PngWriteWarningHook(png_structp, png_const_charp) {}
}

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
      : sink_{&file, {}}, header_(spec.header), cursor_(spec.header.shape) {
    png_ = png_create_write_struct(PNG_LIBPNG_VER_STRING, &sink_.trap, PngWriteErrorHook,
                                   PngWriteWarningHook);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    try {
      if (info_ == nullptr) throw Error(Fault::kTransient, "libpng has no memory");
      WriteHeader(spec.metadata);
    } catch (...) {
      png_destroy_write_struct(&png_, &info_);
      throw;
    }
  }
  ~PngWriter() override { png_destroy_write_struct(&png_, &info_); }

  void Write(const Box& band, const ConstView& samples) override {
    const RowRange rows = cursor_.Continue(band);
    const View line = DenseView(row_.data(), header_.dtype, header_.channels,
                                {1, 1, header_.shape[2]}, Layout::kInterleaved);
    for (int64_t y = 0; y < rows.end - rows.begin; ++y) {
      const ConstView from = samples.Crop({{0, y, 0}, {1, y + 1, header_.shape[2]}});
      const std::byte* data = from.data;
      if (!IsDense(from, Layout::kInterleaved)) {
        CopyView(from, line);
        data = row_.data();
      }
      Call([this, data] { png_write_row(png_, reinterpret_cast<png_const_bytep>(data)); });
    }
  }

  void Finish() override {
    cursor_.RequireEnd();
    Call([this] { png_write_end(png_, nullptr); });
  }

 private:
  template <typename F>
  void Call(F&& call) {
    if (Trapped(sink_.trap, call)) return;
    if (sink_.trap.pending) std::rethrow_exception(sink_.trap.pending);
    throw Error(Fault::kOutput,
                InFile(sink_.file->target(), std::string("libpng: ") + sink_.trap.message));
  }

  void WriteHeader(const Metadata& metadata) {
    static constexpr int kTypes[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                     PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    const int type = kTypes[header_.channels - 1];
    const int bits = header_.dtype == DType::kU16 ? 16 : 8;
    row_.resize(static_cast<size_t>(header_.shape[2] * header_.channels * bits / 8));
    Call([this, type, bits] {
      png_set_write_fn(png_, &sink_, PngWriteHook, PngFlushHook);
      png_set_user_limits(png_, 0x7FFFFFFF, 0x7FFFFFFF);
      png_set_compression_level(png_, kLevel);
      png_set_compression_strategy(png_, kStrategy);
      png_set_compression_buffer_size(png_, kDataChunk);
      png_set_filter(png_, PNG_FILTER_TYPE_BASE, PNG_FILTER_PAETH);
      png_set_IHDR(png_, info_, static_cast<png_uint_32>(header_.shape[2]),
                   static_cast<png_uint_32>(header_.shape[1]), bits, type, PNG_INTERLACE_NONE,
                   PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
      png_write_info(png_, info_);
      png_set_swap(png_);
    });
    WriteMetadata(metadata);
  }

  void WriteMetadata(const Metadata& metadata) {
    if (metadata.chromaticities) {
      const auto& c = *metadata.chromaticities;
      WriteChunk("cHRM", BigEndian({c[0] * 1e5, c[1] * 1e5, c[2] * 1e5, c[3] * 1e5, c[4] * 1e5,
                                    c[5] * 1e5, c[6] * 1e5, c[7] * 1e5}));
    }
    if (metadata.gamma) WriteChunk("gAMA", BigEndian({*metadata.gamma * 1e5}));
    if (!metadata.icc.empty() && ForeignProfile(metadata.icc, Colours(header_)).empty()) {
      WriteChunk("iCCP", std::string("ICC profile\0\0", 13) + Deflated(metadata.icc));
    } else if (metadata.srgb_intent) {
      WriteChunk("sRGB", std::string(1, static_cast<char>(*metadata.srgb_intent)));
    }
    if (metadata.resolution) {
      // 2 is inch, 3 centimetre; PNG knows metres only.
      const double per = metadata.resolution_unit == 2   ? 1 / 0.0254
                         : metadata.resolution_unit == 3 ? 100
                                                         : 1;
      WriteChunk("pHYs",
                 BigEndian({(*metadata.resolution)[0] * per, (*metadata.resolution)[1] * per}) +
                     std::string(1, metadata.resolution_unit == 0 ? '\0' : '\1'));
    }
    const std::string exif = WithExifOrientation(metadata.exif, metadata.orientation);
    if (!exif.empty()) WriteChunk("eXIf", exif);
    if (!metadata.description.empty()) {
      const auto& text = metadata.description;
      const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c > 0; });
      const std::string key(kPngDescription, sizeof kPngDescription);  // with its zero
      if (ascii) {
        WriteChunk("tEXt", key + text);
      } else {
        WriteChunk("iTXt", key + std::string(4, '\0') + text);  // plain, no language
      }
    }
    if (!metadata.xmp.empty()) {
      const std::string key(kPngXmp, sizeof kPngXmp);
      WriteChunk("iTXt", key + std::string(4, '\0') + metadata.xmp);
    }
    if (!metadata.iptc.empty()) {
      const std::string key(kPngIptc, sizeof kPngIptc);
      const std::string text = RawProfileText("iptc", ResourcesOfIptc(metadata.iptc));
      WriteChunk("zTXt", key + '\0' + Deflated(text));
    }
  }

  void WriteChunk(const char* name, const std::string& content) {
    const char* data = content.data();
    const size_t size = content.size();
    Call([this, name, data, size] {
      png_write_chunk(png_, reinterpret_cast<png_const_bytep>(name),
                      reinterpret_cast<png_const_bytep>(data), size);
    });
  }

  Sink sink_;
  Header header_;
  RowCursor cursor_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<std::byte> row_;
};

bool RecognisesPng(std::span<const std::byte> head) {
  static constexpr unsigned char kMagic[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
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
