// One interface for all containers of pictures and volumes: region reads, band-wise writes.
//
// Samples are delivered as a viewer would show them: palettes and MinIsWhite expanded, 1/2/4-bit
// scaled to u8, CMYK JPEG converted to RGB, NIfTI intensities scaled (then f32; f64 where f64 is
// stored). Orientation is never applied to samples: it travels in Metadata. Axis order is z,y,x
// with channels apart; pictures have z = 1. Raw files and .npy of rank 4 hold channels first:
// c,z,y,x.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/view.h"

namespace tilery {

class ThreadPool;

enum class AlphaKind : uint8_t { kNone, kStraight, kAssociated };  // of the last channel
enum class Access : uint8_t { kRandom, kRows };  // kRows: boxes must come in ascending order

// What every plan needs; small, since a job may hold 100,000 of them.
struct Header {
  std::string format;        // registry name: "png", "jpeg", "tiff", "npy", "raw", "nifti"
  DType dtype = DType::kU8;  // of the samples Read() delivers
  uint8_t dims = 2;          // natural dimensions: 2 pictures, 3 volumes
  AlphaKind alpha = AlphaKind::kNone;
  Access access = Access::kRandom;
  int32_t channels = 1;  // with alpha
  Index shape{1, 1, 1};
};

// What the container says beside its samples and what must survive into the output. Empty = not
// said.
struct Metadata {
  std::string icc;                 // ICC profile bytes
  std::string exif;                // EXIF payload ("II*\0..."/"MM\0*..."), orientation included
  int orientation = 1;             // EXIF/TIFF orientation 1..8
  std::optional<double> gamma;     // PNG gAMA as file gamma (0.45455)
  std::optional<int> srgb_intent;  // PNG sRGB
  std::optional<std::array<double, 8>> chromaticities;  // PNG cHRM: white, red, green, blue (x, y)
  std::optional<std::array<double, 2>> resolution;      // x, y pixels per unit
  int resolution_unit = 0;  // 0 none (aspect only), 1 metre, 2 inch, 3 centimetre
  std::string description;  // TIFF ImageDescription, PNG Description, JPEG comment
  std::string xmp;          // XMP packet, whatever its bytes; what it says is not adjusted
  std::vector<std::string> extended_xmp;  // of a JPEG, segment by segment, without the marker
  std::string iptc;                       // IPTC-IIM data sets, whatever their bytes
  std::string nifti;           // the raw NIfTI header (348 or 540 bytes, host order) + extensions
  bool fortran_order = false;  // .npy: Fortran-ordered on disk
  // What the file holds and no output gets, in words: a loss whatever the format of the output.
  std::vector<std::string> left_out;
};

// Reads one container. Read() may be called from several threads for Access::kRandom, from one at a
// time for kRows, where each box must span whole rows (all of y,x or all of x in one plane) at or
// after the end of the previous one. Errors: Error(kInput) with the path; damage found late is
// still an error, never silent zeros.
class Reader {
 public:
  virtual ~Reader() = default;
  virtual const Header& header() const = 0;
  virtual const Metadata& metadata() const = 0;
  virtual const FileStamp& stamp() const = 0;  // of the very file that is open
  // `out`: header().dtype, header().channels, shape of `box`, any strides.
  virtual void Read(const Box& box, const View& out) = 0;
  // After the last row: checks what follows (CRC, trailer). Called once all has been read in order.
  virtual void CheckEnd() {}
};

// For raw files: what the job says of them.
struct RawLayout {
  DType dtype = DType::kU8;
  Index shape{0, 0, 0};
  int32_t channels = 1;
  bool big_endian = false;
  int64_t offset = 0;  // bytes before the first sample
};

struct WriteSpec {
  Header header;      // format, dtype, dims, channels, alpha, shape of what will be written
  Metadata metadata;  // already adjusted to the output (see ScaleMetadata)
  // Encodes beside the caller, who may share it among any number of writers; it outlives them.
  // Null: the caller's thread encodes. Never changes the bytes.
  ThreadPool* pool = nullptr;
};

// Writes one container through an OutputFile. Bands are full-width boxes in ascending order that
// together cover the shape exactly once: rows of one plane, or whole planes. Not thread-safe.
class Writer {
 public:
  virtual ~Writer() = default;
  virtual void Write(const Box& band, const ConstView& samples) = 0;
  virtual void
  Finish() = 0;  // all bands seen (else Error(kInternal)); the file is complete, unpublished
  // Bands should start at multiples of this many rows (strips, tiles); 1 = any.
  virtual int64_t RowGranularity() const { return 1; }
};

// Chooses by content (magic bytes), never by name; raw needs `raw`. Error(kInput) if unknown,
// naming what the first bytes look like.
std::unique_ptr<Reader> OpenReader(const std::filesystem::path& path,
                                   const std::optional<RawLayout>& raw = {});
// `file` outlives the writer. NIfTI is gzipped where the target's name ends in ".gz". Error(kUsage)
// with what WhyNot says.
std::unique_ptr<Writer> CreateWriter(OutputFile& file, const WriteSpec& spec);

// "png" for ".png" etc. (any case; ".nii.gz" counts as one); "" if unknown.
std::string FormatOfExtension(const std::filesystem::path& path);
std::vector<std::string> KnownExtensions();
// Why `format` can't hold this (dtype, channels, alpha, dims, sizes), with what it can hold; "" if
// it can.
std::string WhyNot(const std::string& format, const Header& header);
// What of `metadata` the format would lose, in words ("ICC profile"); empty if nothing. A format
// loses nothing of its own but what `left_out` names.
std::vector<std::string> Losses(const std::string& format, const Header& from,
                                const Metadata& metadata);
// Metadata of an output whose axes are `scale` times the input's: NIfTI affine (outer corner kept),
// pixel dimensions and resolution; an output of labels drops intensity scaling.
Metadata ScaleMetadata(const Metadata& metadata, const Scale& scale, const Index& output_shape);

}  // namespace tilery
