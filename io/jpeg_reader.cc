// Reading of JPEG through libjpeg-turbo: 8-bit gray, RGB and CMYK, rows in order.
//
// libjpeg goes on after damage and makes up the rest, saying so in a warning only. Here each
// warning about entropy-coded data is an error.
#include <cstddef>
#include <cstdio>
// libjpeg's headers need the two above.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "io/buffered_input.h"
#include "io/c_trap.h"
#include "io/container.h"
#include "io/exif.h"
#include "io/jpeg.h"
#include "io/packets.h"
#include "io/row_cursor.h"

namespace tilery {
namespace {

struct Errors {
  jpeg_error_mgr base;  // first, so that libjpeg's pointer is ours
  CTrap trap;
  bool in_header = true;
};

struct Source {
  jpeg_source_mgr base;  // first
  BufferedInput input;
};

Errors& ErrorsOf(j_common_ptr jpeg) { return *reinterpret_cast<Errors*>(jpeg->err); }

bool Harmless(const Errors& errors) {
  constexpr int kEndOfImage = 0xD9;
  switch (errors.base.msg_code) {
    case JWRN_ADOBE_XFORM:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
      return true;
    case JWRN_EXTRANEOUS_DATA:  // padding between segments, and before the end by some cameras
      return errors.in_header || errors.base.msg_parm.i[1] == kEndOfImage;
    default:
      return false;
  }
}

extern "C" {
static void JpegErrorHook(j_common_ptr jpeg) {
  char text[JMSG_LENGTH_MAX];
  jpeg->err->format_message(jpeg, text);
  ErrorsOf(jpeg).trap.Leave(text);
}
static void JpegMessageHook(j_common_ptr jpeg, int level) {
  if (level < 0 && !Harmless(ErrorsOf(jpeg))) JpegErrorHook(jpeg);
}
static void JpegPrintHook(j_common_ptr) {}

static void JpegNothingHook(j_decompress_ptr) {}

static boolean JpegFillHook(j_decompress_ptr jpeg) {
  auto* source = reinterpret_cast<Source*>(jpeg->src);
  CTrap& trap = ErrorsOf(reinterpret_cast<j_common_ptr>(jpeg)).trap;
  const std::byte* data = nullptr;
  size_t size = 0;
  try {
    const auto next = source->input.Next();
    data = next.data();
    size = next.size();
  } catch (...) {
    trap.pending = std::current_exception();
  }
  if (trap.pending || size == 0) trap.Leave("the file ends too early");
  source->base.next_input_byte = reinterpret_cast<const JOCTET*>(data);
  source->base.bytes_in_buffer = size;
  return TRUE;
}

static void JpegSkipHook(j_decompress_ptr jpeg, long bytes) {
  auto* source = reinterpret_cast<Source*>(jpeg->src);
  if (bytes <= 0) return;
  const auto count = static_cast<size_t>(bytes);
  if (count <= source->base.bytes_in_buffer) {
    source->base.next_input_byte += count;
    source->base.bytes_in_buffer -= count;
    return;
  }
  const auto beyond = static_cast<int64_t>(count - source->base.bytes_in_buffer);
  source->base.bytes_in_buffer = 0;
  if (source->input.Skip(beyond) < beyond) {
    ErrorsOf(reinterpret_cast<j_common_ptr>(jpeg)).trap.Leave("the file ends too early");
  }
}
}

class JpegReader final : public Reader {
 public:
  explicit JpegReader(InputFile file) : file_(std::move(file)), source_{{}, BufferedInput(file_)} {
    jpeg_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = JpegErrorHook;
    errors_.base.emit_message = JpegMessageHook;
    errors_.base.output_message = JpegPrintHook;
    source_.base.init_source = JpegNothingHook;
    source_.base.fill_input_buffer = JpegFillHook;
    source_.base.skip_input_data = JpegSkipHook;
    source_.base.resync_to_restart = jpeg_resync_to_restart;
    source_.base.term_source = JpegNothingHook;
    Call("at the start", [this] { jpeg_create_decompress(&jpeg_); });
    try {
      ReadHeader();
      TakeMetadata();
    } catch (...) {
      jpeg_destroy_decompress(&jpeg_);
      throw;
    }
    errors_.in_header = false;
  }
  ~JpegReader() override { jpeg_destroy_decompress(&jpeg_); }

  const Header& header() const override { return header_; }
  const Metadata& metadata() const override { return metadata_; }
  const FileStamp& stamp() const override { return file_.stamp(); }

  void Read(const Box& box, const View& out) override {
    const int64_t due = cursor_.next();
    const RowRange rows = cursor_.Advance(box);
    Start();
    for (int64_t y = due; y < rows.begin; ++y) ReadRow(row_.data(), y);
    const ConstView line =
        DenseView(static_cast<const std::byte*>(row_.data()), DType::kU8, header_.channels,
                  {1, 1, header_.shape[2]}, Layout::kInterleaved);
    for (int64_t y = rows.begin; y < rows.end; ++y) {
      const int64_t at = y - rows.begin;
      const View target = out.Crop({{0, at, 0}, {1, at + 1, header_.shape[2]}});
      if (IsDense(target, Layout::kInterleaved)) {
        ReadRow(target.data, y);
      } else {
        ReadRow(row_.data(), y);
        CopyView(line, target);
      }
    }
  }

  void CheckEnd() override {
    Start();
    for (int64_t y = cursor_.next(); y < header_.shape[1]; ++y) ReadRow(row_.data(), y);
    Call("after the last row", [this] { jpeg_finish_decompress(&jpeg_); });
  }

 private:
  template <typename F>
  void Call(const char* where, F&& call) {
    if (!Trapped(errors_.trap, call)) Fail(where);
  }

  [[noreturn]] void Fail(const std::string& where) {
    if (errors_.trap.pending) std::rethrow_exception(errors_.trap.pending);
    const auto unread = static_cast<int64_t>(source_.base.bytes_in_buffer);
    ThrowInput(file_.path(), "damaged JPEG, " + where + ": " + errors_.trap.message +
                                 " (near byte " +
                                 std::to_string(source_.input.position() - unread) + " of " +
                                 std::to_string(file_.size()) + ")");
  }

  void ReadHeader() {
    Call("in its header", [this] {
      jpeg_.src = &source_.base;
      for (const int marker : {JPEG_APP0 + 1, JPEG_APP0 + 2, JPEG_APP0 + 13, JPEG_COM}) {
        jpeg_save_markers(&jpeg_, marker, 0xFFFF);
      }
      jpeg_read_header(&jpeg_, TRUE);
    });
    const int stored = jpeg_.num_components;
    if (jpeg_.jpeg_color_space == JCS_UNKNOWN || (stored != 1 && stored != 3 && stored != 4)) {
      ThrowInput(file_.path(), "JPEG with " + std::to_string(stored) +
                                   " components of unknown colour is not supported");
    }
    header_.format = "jpeg";
    header_.access = Access::kRows;
    header_.channels = stored == 1 ? 1 : 3;
    header_.shape = {1, jpeg_.image_height, jpeg_.image_width};
    cursor_ = RowCursor(header_.shape);
    const int64_t coefficients = header_.shape[1] * header_.shape[2] * stored * 2;
    if (jpeg_has_multiple_scans(&jpeg_) != 0 && coefficients > kWholePictureLimit) {
      ThrowInput(file_.path(), "a progressive JPEG is decoded whole and would take " +
                                   Bytes(coefficients) + ", the limit is " +
                                   Bytes(kWholePictureLimit) + "; save it as baseline");
    }
  }

  void TakeMetadata() {
    std::string resources, xmp;  // image resources go on from segment to segment
    std::vector<std::string> extended;
    size_t extended_bytes = 0;
    for (auto* marker = jpeg_.marker_list; marker != nullptr; marker = marker->next) {
      const std::string_view content(reinterpret_cast<const char*>(marker->data),
                                     marker->data_length);
      const auto is = [&](int number, const char* tag, size_t bytes) {
        return marker->marker == number && content.size() > bytes &&
               content.substr(0, bytes) == std::string_view(tag, bytes);
      };
      constexpr int kApp1 = JPEG_APP0 + 1, kApp13 = JPEG_APP0 + 13;
      if (is(kApp1, kExifTag, kExifTagBytes)) {
        if (metadata_.exif.empty()) metadata_.exif = content.substr(kExifTagBytes);
      } else if (is(kApp1, kXmpTag, kXmpTagBytes)) {
        if (xmp.empty()) xmp = content.substr(kXmpTagBytes);
      } else if (is(kApp1, kExtendedXmpTag, kExtendedXmpTagBytes)) {
        extended_bytes += content.size();
        if (extended_bytes <= kMostPacket) extended.emplace_back(content);
      } else if (is(kApp13, kResourcesTag, kResourcesTagBytes)) {
        resources += content.substr(kResourcesTagBytes);
      } else if (marker->marker == JPEG_COM && metadata_.description.empty()) {
        metadata_.description = content;
      }
    }
    TakeXmp(std::move(xmp), &metadata_);
    TakeIptc(IptcOfResources(resources), &metadata_);
    if (extended_bytes > kMostPacket) {  // part of it would be no use
      metadata_.left_out.push_back(TooLarge("extended XMP", kMostPacket));
    } else {
      metadata_.extended_xmp = std::move(extended);
    }
    metadata_.orientation = ExifOrientation(metadata_.exif);
    TakeProfile();
    const int unit = jpeg_.density_unit;
    if (jpeg_.saw_JFIF_marker && jpeg_.X_density > 0 && jpeg_.Y_density > 0 &&
        (unit == 1 || unit == 2 || jpeg_.X_density != jpeg_.Y_density)) {
      metadata_.resolution = {static_cast<double>(jpeg_.X_density),
                              static_cast<double>(jpeg_.Y_density)};
      metadata_.resolution_unit = unit == 1 ? 2 : unit == 2 ? 3 : 0;
    }
  }

  void TakeProfile() {
    JOCTET* profile = nullptr;
    unsigned int size = 0;
    Call("in its colour profile", [this, &profile, &size] {
      errors_.in_header = true;
      jpeg_read_icc_profile(&jpeg_, &profile, &size);
    });
    if (profile == nullptr) return;
    metadata_.icc.assign(reinterpret_cast<const char*>(profile), size);
    std::free(profile);
    // Samples come out as RGB, so a profile of the inks would be wrong from here on.
    if (!ForeignProfile(metadata_.icc, header_.channels).empty()) metadata_.icc.clear();
  }

  void Start() {
    if (started_) return;
    Call("before its first row", [this] {
      jpeg_.out_color_space = jpeg_.num_components == 1   ? JCS_GRAYSCALE
                              : jpeg_.num_components == 3 ? JCS_RGB
                                                          : JCS_CMYK;
      jpeg_.dct_method = JDCT_ISLOW;
      jpeg_start_decompress(&jpeg_);
    });
    row_.resize(static_cast<size_t>(header_.shape[2] * header_.channels));
    if (jpeg_.num_components == 4) inks_.resize(static_cast<size_t>(header_.shape[2] * 4));
    started_ = true;
  }

  void ReadRow(std::byte* into, int64_t y) {
    std::byte* target = inks_.empty() ? into : inks_.data();
    const bool ok = Trapped(errors_.trap, [this, target] {
      auto* row = reinterpret_cast<JSAMPROW>(target);
      jpeg_read_scanlines(&jpeg_, &row, 1);
    });
    if (!ok) Fail("row " + std::to_string(y) + " of " + std::to_string(header_.shape[1]));
    if (!inks_.empty()) InksToRgb(reinterpret_cast<uint8_t*>(into));
  }

  // Adobe writes inks inverted (255 = none), and then the product of ink and black is the light
  // left.
  void InksToRgb(uint8_t* rgb) const {
    const auto* inks = reinterpret_cast<const uint8_t*>(inks_.data());
    const int flip = jpeg_.saw_Adobe_marker ? 0 : 255;
    for (size_t i = 0; i < inks_.size(); i += 4) {
      const int black = inks[i + 3] ^ flip;
      for (size_t c = 0; c < 3; ++c) {
        *rgb++ = static_cast<uint8_t>(((inks[i + c] ^ flip) * black + 127) / 255);
      }
    }
  }

  InputFile file_;
  Errors errors_{};
  Source source_;
  jpeg_decompress_struct jpeg_{};
  Header header_;
  Metadata metadata_;
  RowCursor cursor_{{1, 0, 0}};
  bool started_ = false;
  std::vector<std::byte> row_;
  std::vector<std::byte> inks_;  // one row of CMYK
};

}  // namespace

std::unique_ptr<Reader> OpenJpeg(InputFile file) {
  return std::make_unique<JpegReader>(std::move(file));
}

}  // namespace tilery
