// The parts of the TIFF container. Internal to io; libtiff's types stay in the sources.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/format.h"

struct tiff;  // libtiff's TIFF

namespace tilery {

// One open libtiff handle over a file of ours. Not thread-safe; several may share an InputFile.
// libtiff prints nothing and its messages come back as exceptions.
class TiffHandle {
 public:
  TiffHandle(const InputFile& file, const std::string& mode);  // reading
  TiffHandle(OutputFile& file, const std::string& mode);       // writing
  ~TiffHandle();                                               // writes nothing more
  TiffHandle(const TiffHandle&) = delete;

  ::tiff* get() const { return tiff_; }
  // Runs a call into libtiff. Throws what a file operation threw, or else an Error that names
  // `what` and libtiff's own words if `call` returns false.
  void Call(const std::string& what, const std::function<bool()>& call);
  // Also throws if libtiff complains of the samples but goes on with made-up ones.
  void Decode(const std::string& what, const std::function<bool()>& call);
  void Close();  // for writing: everything is on its way to the file, or Error

  // For the hooks that libtiff calls.
  int64_t ReadHere(void* into, int64_t bytes) noexcept;
  int64_t WriteHere(const void* from, int64_t bytes) noexcept;
  int64_t SeekTo(int64_t offset, int whence) noexcept;
  int64_t size() const noexcept;

 private:
  void Open(const std::string& mode);
  [[noreturn]] void Fail(const std::string& what);

  const InputFile* input_ = nullptr;
  OutputFile* output_ = nullptr;
  bool abandoned_ = false;
  int64_t position_ = 0;
  std::exception_ptr pending_;
  ::tiff* tiff_ = nullptr;
};

// How the samples of one page lie in the file.
struct TiffPicture {
  int64_t width = 0, height = 0;
  int bits = 1;           // of a stored sample
  int samples = 1;        // stored, per pixel
  bool separate = false;  // one plane per sample
  bool tiled = false;
  int64_t chunk_width = 0, chunk_height = 0;  // of a tile, or of a strip
  int64_t chunk_bytes = 0;                    // decoded, of a full chunk
  bool direct = false;           // uncompressed whole bytes: chunks can be read without libtiff
  bool swapped = false;          // direct, in the other byte order
  bool invert = false;           // MinIsWhite
  std::vector<uint8_t> palette;  // RGB triples
  DType dtype = DType::kU8;      // delivered
  int channels = 1;              // delivered
  AlphaKind alpha = AlphaKind::kNone;

  int chunk_samples() const { return separate ? 1 : samples; }
  int64_t chunks_across() const { return (width + chunk_width - 1) / chunk_width; }
  int64_t chunks_down() const { return (height + chunk_height - 1) / chunk_height; }
  bool expands() const { return bits < 8 || !palette.empty(); }
};

// Goes to the one full-size page of the file and reads its layout. Error(kInput) for what is not
// supported, by name; several pages are refused with their count.
TiffPicture ReadTiffPicture(TiffHandle& handle, const InputFile& file);
Metadata ReadTiffMetadata(TiffHandle& handle, const InputFile& file);

// Adds the EXIF of a payload to the page being written, which has all its strips by then: texts
// become tags, the directories below are appended to the file.
void WriteTiffExif(TiffHandle& handle, OutputFile& file, const std::string& exif, bool big_tiff);

// Stored samples of `pixels` pixels (packed bits or palette indices, each row on a byte boundary)
// to delivered u8 samples.
void ExpandTiffRow(const TiffPicture& picture, const std::byte* packed, int64_t pixels,
                   std::byte* expanded);
// MinIsWhite to MinIsBlack, in place, of the first channel.
void InvertTiffSamples(const View& samples);

std::unique_ptr<Reader> OpenTiff(InputFile file);

struct TiffOptions {
  // A picture that would not fit below this uncompressed, tables and metadata included, becomes
  // BigTIFF.
  int64_t classic_limit = (int64_t{1} << 32) - 1;
};
std::unique_ptr<Writer> CreateTiff(OutputFile& file, const WriteSpec& spec,
                                   const TiffOptions& options);

}  // namespace tilery
