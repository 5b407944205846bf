// Writing of TIFF: strips of a fixed number of rows, encoded here (libtiff only places them), so
// that several threads can share the work and the bytes depend on nothing but samples and metadata.
// Integers are deflated after horizontal differencing; floats, which hardly shrink, lie
// uncompressed.
#include <tiffio.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "io/byte_order.h"
#include "io/container.h"
#include "io/ordered_work.h"
#include "io/row_cursor.h"
#include "io/run_deflate.h"
#include "io/tiff.h"

namespace tilery {
namespace {

constexpr int64_t kStripBytes = 256 << 10;  // about
constexpr int64_t kMargin = 1 << 16;        // for what is not samples, tables or metadata

int PhotometricColours(const Header& header) {
  const int colours = Colours(header);
  return colours == 3 || (colours == 4 && header.alpha == AlphaKind::kNone) ? 3 : 1;
}

template <typename T>
void Difference(std::byte* row, int64_t samples, int64_t channels) {
  T before, value;
  for (int64_t i = samples - 1; i >= channels; --i) {
    std::memcpy(&value, row + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    std::memcpy(&before, row + (i - channels) * static_cast<int64_t>(sizeof(T)), sizeof(T));
    value = static_cast<T>(value - before);
    std::memcpy(row + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

class TiffWriter final : public Writer {
  using Strip = std::vector<std::byte>;

 public:
  TiffWriter(OutputFile& file, const WriteSpec& spec, const TiffOptions& options)
      : file_(file),
        header_(spec.header),
        cursor_(spec.header.shape),
        exif_(spec.metadata.exif),
        row_bytes_(header_.shape[2] * header_.channels *
                   static_cast<int64_t>(DTypeSize(header_.dtype))),
        strip_rows_(std::clamp<int64_t>(kStripBytes / row_bytes_, 1, header_.shape[1])),
        strips_(spec.pool, PiecesAhead(spec.pool, strip_rows_ * row_bytes_)) {
    big_ = IsBig(spec.metadata, options);
    handle_ = std::make_unique<TiffHandle>(file, big_ ? "wl8" : "wl");
    SetLayout();
    SetMetadata(spec.metadata);
  }

  int64_t RowGranularity() const override { return strip_rows_; }

  void Write(const Box& band, const ConstView& samples) override {
    const RowRange rows = cursor_.Continue(band);
    for (int64_t row = rows.begin; row < rows.end;) {
      const int64_t strip_row = row % strip_rows_;  // a strip may span bands
      const int64_t taken = std::min(strip_rows_ - strip_row, rows.end - row);
      strip_.resize(static_cast<size_t>((strip_row + taken) * row_bytes_));
      const View to =
          DenseView(strip_.data() + strip_row * row_bytes_, header_.dtype, header_.channels,
                    {1, taken, header_.shape[2]}, Layout::kInterleaved);
      const int64_t from = row - rows.begin;
      CopyView(samples.Crop({{0, from, 0}, {1, from + taken, header_.shape[2]}}), to);
      row += taken;
      if (row % strip_rows_ == 0 || row == header_.shape[1]) SubmitStrip();
    }
  }

  void Finish() override {
    cursor_.RequireEnd();
    while (!strips_.empty()) WriteOldestStrip();
    WriteTiffExif(*handle_, file_, exif_, big_);
    handle_->Call("its directory", [this] { return TIFFWriteDirectory(handle_->get()) == 1; });
    handle_->Close();
  }

 private:
  bool Compressed() const { return IsInteger(header_.dtype); }

  bool IsBig(const Metadata& metadata, const TiffOptions& options) const {
    const int64_t samples = row_bytes_ * header_.shape[1];
    const int64_t strips = (header_.shape[1] + strip_rows_ - 1) / strip_rows_;
    const auto words = static_cast<int64_t>(metadata.icc.size() + metadata.exif.size() +
                                            metadata.description.size() + metadata.xmp.size() +
                                            metadata.iptc.size());
    // Deflate may add five bytes per 16 KiB and some per strip.
    const int64_t most = samples + samples / 1024 + strips * 64 + 2 * words + kMargin;
    return most > options.classic_limit;
  }

  template <typename... Values>
  void Set(uint32_t tag, Values... values) {
    handle_->Call("tag " + std::to_string(tag),
                  [&] { return TIFFSetField(handle_->get(), tag, values...) == 1; });
  }

  void SetLayout() {
    const int colours = PhotometricColours(header_);
    Set(TIFFTAG_IMAGEWIDTH, static_cast<uint32_t>(header_.shape[2]));
    Set(TIFFTAG_IMAGELENGTH, static_cast<uint32_t>(header_.shape[1]));
    Set(TIFFTAG_BITSPERSAMPLE, static_cast<int>(DTypeSize(header_.dtype) * 8));
    Set(TIFFTAG_SAMPLESPERPIXEL, header_.channels);
    const bool is_signed = IsInteger(header_.dtype) && LowestOf(header_.dtype) < 0;
    Set(TIFFTAG_SAMPLEFORMAT, IsFloat(header_.dtype) ? SAMPLEFORMAT_IEEEFP
                              : is_signed            ? SAMPLEFORMAT_INT
                                                     : SAMPLEFORMAT_UINT);
    Set(TIFFTAG_PHOTOMETRIC, colours == 3 ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK);
    Set(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    Set(TIFFTAG_ROWSPERSTRIP, static_cast<uint32_t>(strip_rows_));
    Set(TIFFTAG_COMPRESSION, Compressed() ? COMPRESSION_ADOBE_DEFLATE : COMPRESSION_NONE);
    if (Compressed()) Set(TIFFTAG_PREDICTOR, PREDICTOR_HORIZONTAL);
    const int extras = header_.channels - colours;
    if (extras > 0) {
      std::vector<uint16_t> kinds(static_cast<size_t>(extras), EXTRASAMPLE_UNSPECIFIED);
      if (header_.alpha == AlphaKind::kStraight) kinds.back() = EXTRASAMPLE_UNASSALPHA;
      if (header_.alpha == AlphaKind::kAssociated) kinds.back() = EXTRASAMPLE_ASSOCALPHA;
      Set(TIFFTAG_EXTRASAMPLES, extras, kinds.data());
    }
  }

  void SetMetadata(const Metadata& metadata) {
    if (metadata.orientation != 1) Set(TIFFTAG_ORIENTATION, metadata.orientation);
    if (metadata.resolution) {
      // Metres are not in TIFF: centimetres.
      const bool metres = metadata.resolution_unit == 1;
      const double per = metres ? 0.01 : 1;
      Set(TIFFTAG_XRESOLUTION, (*metadata.resolution)[0] * per);
      Set(TIFFTAG_YRESOLUTION, (*metadata.resolution)[1] * per);
      Set(TIFFTAG_RESOLUTIONUNIT, metadata.resolution_unit == 0   ? RESUNIT_NONE
                                  : metadata.resolution_unit == 2 ? RESUNIT_INCH
                                                                  : RESUNIT_CENTIMETER);
    }
    if (!metadata.description.empty()) {
      Set(TIFFTAG_IMAGEDESCRIPTION, metadata.description.c_str());
    }
    if (!metadata.icc.empty() && ForeignProfile(metadata.icc, Colours(header_)).empty()) {
      Set(TIFFTAG_ICCPROFILE, static_cast<uint32_t>(metadata.icc.size()),
          static_cast<const void*>(metadata.icc.data()));
    }
    if (!metadata.xmp.empty()) {
      Set(TIFFTAG_XMLPACKET, static_cast<uint32_t>(metadata.xmp.size()),
          static_cast<const void*>(metadata.xmp.data()));
    }
    if (!metadata.iptc.empty()) SetIptc(metadata.iptc);
  }

  // Some versions of libtiff know the field as 32-bit words only, with zeros at the end.
  void SetIptc(std::string iptc) {
    const TIFFField* field = TIFFFieldWithTag(handle_->get(), TIFFTAG_RICHTIFFIPTC);
    size_t unit = 1;
    if (field != nullptr && TIFFFieldDataType(field) == TIFF_LONG) unit = sizeof(uint32_t);
    iptc.resize((iptc.size() + unit - 1) / unit * unit, '\0');
    Set(TIFFTAG_RICHTIFFIPTC, static_cast<uint32_t>(iptc.size() / unit),
        static_cast<const void*>(iptc.data()));
  }

  void SubmitStrip() {
    while (strips_.full()) WriteOldestStrip();
    auto strip = std::make_shared<Strip>(std::move(strip_));
    strips_.Add([this, strip] {
      if (Compressed()) Encode(strip.get());
      return std::move(*strip);
    });
    strip_.clear();
  }

  void WriteOldestStrip() {
    Strip strip = strips_.Take();
    const auto bytes = static_cast<tmsize_t>(strip.size());
    handle_->Call("strip " + std::to_string(next_strip_), [&] {
      return TIFFWriteRawStrip(handle_->get(), static_cast<uint32_t>(next_strip_), strip.data(),
                               bytes) == bytes;
    });
    ++next_strip_;
  }

  // On a thread of the pool: samples become a zlib stream.
  void Encode(Strip* strip) const {
    const size_t size = DTypeSize(header_.dtype);
    const int64_t samples = header_.shape[2] * header_.channels;
    for (auto row = strip->begin(); row != strip->end(); row += row_bytes_) {
      if (size == 1) Difference<uint8_t>(&*row, samples, header_.channels);
      if (size == 2) Difference<uint16_t>(&*row, samples, header_.channels);
      if (size == 4) Difference<uint32_t>(&*row, samples, header_.channels);
    }
    std::array<std::byte, 4> adler;
    const auto* const data = reinterpret_cast<const Bytef*>(strip->data());
    Store(adler.data(), static_cast<uint32_t>(adler32_z(1, data, strip->size())), true);
    Strip packed;
    RunDeflater().Deflate(*strip, &packed);
    strip->assign(kZlibHead.begin(), kZlibHead.end());
    strip->insert(strip->end(), packed.begin(), packed.end());
    strip->insert(strip->end(), kLastBlock.begin(), kLastBlock.end());
    strip->insert(strip->end(), adler.begin(), adler.end());
  }

  OutputFile& file_;
  Header header_;
  RowCursor cursor_;
  std::string exif_;
  bool big_ = false;
  int64_t row_bytes_, strip_rows_;
  int64_t next_strip_ = 0;  // to be written
  Strip strip_;             // being filled
  std::unique_ptr<TiffHandle> handle_;
  OrderedWork<Strip> strips_;  // the last member: its pieces use the others
};

bool RecognisesTiff(std::span<const std::byte> head) {
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const std::string_view magic :
       {std::string_view("II*\0", 4), std::string_view("MM\0*", 4), std::string_view("II+\0", 4),
        std::string_view("MM\0+", 4)}) {
    if (text.starts_with(magic)) return true;
  }
  return false;
}

std::unique_ptr<Writer> Create(OutputFile& file, const WriteSpec& spec) {
  return CreateTiff(file, spec, {});
}

std::string WhyNotTiff(const Header& header) {
  constexpr int64_t kMostPixels = 0x7FFFFFFF;
  constexpr int64_t kMostChannels = 65535;
  if (header.shape[0] != 1) {
    return "TIFF of " + std::to_string(header.shape[0]) +
           " pages is not supported yet; .npy and NIfTI hold volumes";
  }
  if (header.channels > kMostChannels) {
    return "TIFF holds 1 to " + std::to_string(kMostChannels) + " channels, not " +
           std::to_string(header.channels);
  }
  for (const int axis : {1, 2}) {
    if (header.shape[static_cast<size_t>(axis)] > kMostPixels) {
      return "TIFF holds 1 to " + std::to_string(kMostPixels) + " pixels along an axis, not " +
             std::to_string(header.shape[static_cast<size_t>(axis)]);
    }
  }
  // A strip has one row at least, and zlib takes less than 4 GiB at once.
  const int64_t row_bytes =
      header.shape[2] * header.channels * static_cast<int64_t>(DTypeSize(header.dtype));
  if (row_bytes > kWholePictureLimit) {
    return "TIFF is written in rows of " + Bytes(kWholePictureLimit) + " at most, not " +
           Bytes(row_bytes) + "; .npy holds more";
  }
  return "";
}

std::vector<std::string> TiffLosses(const Header& from, const Metadata& metadata) {
  std::vector<std::string> losses;
  const std::string foreign = ForeignProfile(metadata.icc, Colours(from));
  if (!foreign.empty()) losses.push_back("ICC profile (made for " + foreign + " pictures)");
  AddColourLosses(metadata, &losses);
  AddCommonLosses(metadata, false, &losses);
  if (!metadata.nifti.empty()) losses.push_back("NIfTI header (affine, units)");
  return losses;
}

}  // namespace

std::unique_ptr<Writer> CreateTiff(OutputFile& file, const WriteSpec& spec,
                                   const TiffOptions& options) {
  return std::make_unique<TiffWriter>(file, spec, options);
}

const Container& TiffContainer() {
  static const Container container{"tiff", {".tif", ".tiff"}, RecognisesTiff, OpenTiff,
                                   Create, WhyNotTiff,        TiffLosses};
  return container;
}

}  // namespace tilery
