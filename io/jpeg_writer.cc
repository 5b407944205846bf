// Writing of JPEG through libjpeg-turbo: quality 95, no chroma subsampling, baseline. The bytes
// depend on samples and metadata alone.
#include <cstddef>
#include <cstdio>
// libjpeg's header needs the two above.
#include <jpeglib.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "io/c_trap.h"
#include "io/container.h"
#include "io/exif.h"
#include "io/jpeg.h"
#include "io/packets.h"
#include "io/row_cursor.h"

namespace tilery {
namespace {

constexpr int kQuality = 95;
constexpr size_t kMostExif = kSegmentBytes - kExifTagBytes;
constexpr size_t kMostXmp = kSegmentBytes - kXmpTagBytes;

struct Errors {
  jpeg_error_mgr base;  // first, so that libjpeg's pointer is ours
  CTrap trap;
};

struct Sink {
  jpeg_destination_mgr base;  // first
  OutputFile* file;
  std::array<std::byte, 64 << 10> buffer;
};

extern "C" {
static void JpegWriteErrorHook(j_common_ptr jpeg) {
  char text[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, text);
  reinterpret_cast<Errors*>(jpeg->err)->trap.Leave(text);
}
static void JpegWriteMessageHook(j_common_ptr, int) {}
static void JpegWritePrintHook(j_common_ptr) {}

static void JpegInitHook(j_compress_ptr jpeg) {
  auto* sink = reinterpret_cast<Sink*>(jpeg->dest);
  sink->base.next_output_byte = reinterpret_cast<JOCTET*>(sink->buffer.data());
  sink->base.free_in_buffer = sink->buffer.size();
}

static void Drain(j_compress_ptr jpeg, size_t bytes) {
  auto* sink = reinterpret_cast<Sink*>(jpeg->dest);
  CTrap& trap = reinterpret_cast<Errors*>(jpeg->err)->trap;
  try {
    sink->file->Write({sink->buffer.data(), bytes});
  } catch (...) {
    trap.pending = std::current_exception();
  }
  if (trap.pending) trap.Leave("write failed");
  JpegInitHook(jpeg);
}
static boolean JpegFullHook(j_compress_ptr jpeg) {
  Drain(jpeg, reinterpret_cast<Sink*>(jpeg->dest)->buffer.size());
  return TRUE;
}
static void JpegTermHook(j_compress_ptr jpeg) {
  const auto* sink = reinterpret_cast<Sink*>(jpeg->dest);
  Drain(jpeg, sink->buffer.size() - sink->base.free_in_buffer);
}
}

class JpegWriter final : public Writer {
 public:
  JpegWriter(OutputFile& file, const WriteSpec& spec)
      : file_(file), header_(spec.header), cursor_(spec.header.shape) {
    jpeg_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = JpegWriteErrorHook;
    errors_.base.emit_message = JpegWriteMessageHook;
    errors_.base.output_message = JpegWritePrintHook;
    sink_.base.init_destination = JpegInitHook;
    sink_.base.empty_output_buffer = JpegFullHook;
    sink_.base.term_destination = JpegTermHook;
    sink_.file = &file;
    Call([this] { jpeg_create_compress(&jpeg_); });
    try {
      Start(spec.metadata);
    } catch (...) {
      jpeg_destroy_compress(&jpeg_);
      throw;
    }
  }
  ~JpegWriter() override { jpeg_destroy_compress(&jpeg_); }

  void Write(const Box& band, const ConstView& samples) override {
    const RowRange rows = cursor_.Continue(band);
    const View line = DenseView(row_.data(), DType::kU8, header_.channels, {1, 1, header_.shape[2]},
                                Layout::kInterleaved);
    for (int64_t y = 0; y < rows.end - rows.begin; ++y) {
      const ConstView from = samples.Crop({{0, y, 0}, {1, y + 1, header_.shape[2]}});
      const std::byte* data = from.data;
      if (!IsDense(from, Layout::kInterleaved)) {
        CopyView(from, line);
        data = row_.data();
      }
      Call([this, data] {
        auto* row = reinterpret_cast<JSAMPROW>(const_cast<std::byte*>(data));
        jpeg_write_scanlines(&jpeg_, &row, 1);
      });
    }
  }

  void Finish() override {
    cursor_.RequireEnd();
    Call([this] { jpeg_finish_compress(&jpeg_); });
  }

 private:
  template <typename F>
  void Call(F&& call) {
    if (Trapped(errors_.trap, call)) return;
    if (errors_.trap.pending) std::rethrow_exception(errors_.trap.pending);
    throw Error(Fault::kOutput,
                InFile(file_.target(), std::string("libjpeg: ") + errors_.trap.message));
  }

  void Start(const Metadata& metadata) {
    row_.resize(static_cast<size_t>(header_.shape[2] * header_.channels));
    Call([this] {
      jpeg_.dest = &sink_.base;
      jpeg_.image_width = static_cast<JDIMENSION>(header_.shape[2]);
      jpeg_.image_height = static_cast<JDIMENSION>(header_.shape[1]);
      jpeg_.input_components = header_.channels;
      jpeg_.in_color_space = header_.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
      jpeg_set_defaults(&jpeg_);
      jpeg_set_quality(&jpeg_, kQuality, TRUE);
      jpeg_.dct_method = JDCT_ISLOW;
      for (int i = 0; i < jpeg_.num_components; ++i) {
        jpeg_.comp_info[i].h_samp_factor = jpeg_.comp_info[i].v_samp_factor = 1;
      }
    });
    SetDensity(metadata);
    Call([this] { jpeg_start_compress(&jpeg_, TRUE); });
    const std::string exif = WithExifOrientation(metadata.exif, metadata.orientation);
    if (!exif.empty() && exif.size() <= kMostExif) {
      WriteMarker(JPEG_APP0 + 1, std::string(kExifTag, kExifTagBytes) + exif);
    }
    if (!metadata.xmp.empty() && metadata.xmp.size() <= kMostXmp) {
      WriteMarker(JPEG_APP0 + 1, std::string(kXmpTag, kXmpTagBytes) + metadata.xmp);
    }
    for (const std::string& segment : metadata.extended_xmp) WriteMarker(JPEG_APP0 + 1, segment);
    if (!metadata.iptc.empty()) WriteResources(ResourcesOfIptc(metadata.iptc));
    if (!metadata.icc.empty() && ForeignProfile(metadata.icc, header_.channels).empty()) {
      const auto* data = reinterpret_cast<const JOCTET*>(metadata.icc.data());
      const auto size = static_cast<unsigned int>(metadata.icc.size());
      Call([this, data, size] { jpeg_write_icc_profile(&jpeg_, data, size); });
    }
    if (!metadata.description.empty() && metadata.description.size() <= kSegmentBytes) {
      WriteMarker(JPEG_COM, metadata.description);
    }
  }

  void SetDensity(const Metadata& metadata) {
    if (!metadata.resolution) return;
    const bool metres = metadata.resolution_unit == 1;
    const auto density = [&](size_t axis) {
      const double value = (*metadata.resolution)[axis] * (metres ? 0.0254 : 1);
      return static_cast<UINT16>(std::clamp(std::round(value), 1.0, 65535.0));
    };
    jpeg_.density_unit = metadata.resolution_unit == 0 ? 0 : metadata.resolution_unit == 3 ? 2 : 1;
    jpeg_.X_density = density(0);
    jpeg_.Y_density = density(1);
  }

  // What exceeds one segment goes on in the next.
  void WriteResources(const std::string& resources) {
    constexpr size_t kPart = kSegmentBytes - kResourcesTagBytes;
    for (size_t at = 0; at < resources.size(); at += kPart) {
      WriteMarker(JPEG_APP0 + 13,
                  std::string(kResourcesTag, kResourcesTagBytes) + resources.substr(at, kPart));
    }
  }

  void WriteMarker(int marker, const std::string& content) {
    const auto* data = reinterpret_cast<const JOCTET*>(content.data());
    const auto size = static_cast<unsigned int>(content.size());
    Call([this, marker, data, size] { jpeg_write_marker(&jpeg_, marker, data, size); });
  }

  OutputFile& file_;
  Header header_;
  RowCursor cursor_;
  Errors errors_{};
  Sink sink_{};
  jpeg_compress_struct jpeg_{};
  std::vector<std::byte> row_;
};

bool RecognisesJpeg(std::span<const std::byte> head) {
  return head.size() >= 3 && head[0] == std::byte{0xFF} && head[1] == std::byte{0xD8} &&
         head[2] == std::byte{0xFF};
}

std::string WhyNotJpeg(const Header& header) {
  constexpr int64_t kMost = JPEG_MAX_DIMENSION;
  if (header.dtype != DType::kU8) {
    return std::string("JPEG holds u8, not ") + DTypeName(header.dtype);
  }
  if (header.shape[0] != 1) {
    return "JPEG holds one picture, not " + std::to_string(header.shape[0]) + " planes";
  }
  if (header.alpha != AlphaKind::kNone) return "JPEG holds no alpha; PNG and TIFF do";
  if (header.channels != 1 && header.channels != 3) {
    return "JPEG holds 1 or 3 channels, not " + std::to_string(header.channels);
  }
  for (const size_t axis : {1, 2}) {
    if (header.shape[axis] > kMost) {
      return "JPEG holds 1 to " + std::to_string(kMost) + " pixels along an axis, not " +
             std::to_string(header.shape[axis]) + "; PNG and TIFF hold more";
    }
  }
  return "";
}

std::vector<std::string> JpegLosses(const Header& from, const Metadata& metadata) {
  std::vector<std::string> losses;
  const std::string foreign = ForeignProfile(metadata.icc, Colours(from));
  if (!foreign.empty()) losses.push_back("ICC profile (made for " + foreign + " pictures)");
  AddColourLosses(metadata, &losses);
  const auto add_too_large = [&losses](const char* what, const std::string& bytes, size_t most) {
    if (bytes.size() <= most) return;
    losses.push_back(std::string(what) + " (" + std::to_string(bytes.size()) +
                     " bytes; a JPEG holds " + std::to_string(most) + ")");
  };
  add_too_large("EXIF", metadata.exif, kMostExif);
  add_too_large("XMP", metadata.xmp, kMostXmp);
  add_too_large("description", metadata.description, kSegmentBytes);
  AddCommonLosses(metadata, true, &losses);
  if (!metadata.nifti.empty()) losses.push_back("NIfTI header (affine, units)");
  return losses;
}

}  // namespace

std::unique_ptr<Writer> CreateJpeg(OutputFile& file, const WriteSpec& spec) {
  return std::make_unique<JpegWriter>(file, spec);
}

const Container& JpegContainer() {
  static const Container container{"jpeg",     {".jpg", ".jpeg"}, RecognisesJpeg, OpenJpeg,
                                   CreateJpeg, WhyNotJpeg,        JpegLosses};
  return container;
}

}  // namespace tilery
