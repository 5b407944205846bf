// What a TIFF page says of itself: layout, sample type, colour.
#include <tiffio.h>

#include <algorithm>
#include <cstring>

#include "io/container.h"
#include "io/tiff.h"

namespace tilery {
namespace {

// Beyond all files, and low enough for arithmetic with what a strip or tile expands to.
constexpr int64_t kMostChunkBytes = int64_t{1} << 50;

[[noreturn]] void NotYet(const InputFile& file, const std::string& what) {
  ThrowInput(file.path(), "TIFF with " + what + " is not supported yet");
}

int Short(TIFF* tiff, uint32_t tag, int otherwise) {
  uint16_t value = 0;
  return TIFFGetFieldDefaulted(tiff, tag, &value) == 1 ? value : otherwise;
}

// ImageJ writes stacks above 4 GiB as one page and says the number of pictures in its description.
int64_t PicturesInDescription(TIFF* tiff) {
  const char* text = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_IMAGEDESCRIPTION, &text) != 1 || text == nullptr) return 1;
  if (std::strncmp(text, "ImageJ=", 7) != 0) return 1;
  const char* images = std::strstr(text, "\nimages=");
  return images == nullptr ? 1 : std::max(1LL, std::atoll(images + std::strlen("\nimages=")));
}

bool IsCopyOrMask(TIFF* tiff) {
  uint32_t kind = 0;
  TIFFGetField(tiff, TIFFTAG_SUBFILETYPE, &kind);
  return (kind & (FILETYPE_REDUCEDIMAGE | FILETYPE_MASK)) != 0;
}

// Smaller copies and masks of the picture do not count as pages.
void GoToOnlyPage(TiffHandle& handle, const InputFile& file) {
  TIFF* tiff = handle.get();
  int64_t directories = 0;
  handle.Call("its pages", [&] { return (directories = TIFFNumberOfDirectories(tiff)) > 0; });
  int64_t pages = 0, first = 0;
  for (int64_t i = 0; i < directories; ++i) {
    // On to the next one, since going to one by its number means a walk from the first.
    if (i > 0) {
      handle.Call("page " + std::to_string(i), [&] { return TIFFReadDirectory(tiff) == 1; });
    }
    if (!IsCopyOrMask(tiff) && pages++ == 0) first = i;
  }
  if (directories > 1) {
    handle.Call("its pages",
                [&] { return TIFFSetDirectory(tiff, static_cast<tdir_t>(first)) == 1; });
  }
  if (pages <= 1) pages = PicturesInDescription(tiff);
  if (pages > 1) NotYet(file, std::to_string(pages) + " pages");
  // Raw files of cameras: the picture itself must not be mistaken for the preview before it.
  uint16_t below = 0;
  const uint64_t* offsets = nullptr;
  if (IsCopyOrMask(tiff) && TIFFGetField(tiff, TIFFTAG_SUBIFD, &below, &offsets) == 1 &&
      below > 0) {
    NotYet(file,
           "its picture in a directory below that of a smaller copy (as in raw files of "
           "cameras)");
  }
}

DType SampleType(const InputFile& file, int bits, int format) {
  const bool is_float = format == SAMPLEFORMAT_IEEEFP;
  const bool is_signed = format == SAMPLEFORMAT_INT;
  const bool is_unsigned = format == SAMPLEFORMAT_UINT || format == SAMPLEFORMAT_VOID;
  if (is_float && bits == 16) return DType::kF16;
  if (is_float && bits == 32) return DType::kF32;
  if (is_float && bits == 64) return DType::kF64;
  if (is_unsigned && (bits == 1 || bits == 2 || bits == 4 || bits == 8)) return DType::kU8;
  if (is_unsigned && bits == 16) return DType::kU16;
  if (is_unsigned && bits == 32) return DType::kU32;
  if (is_signed && bits == 8) return DType::kI8;
  if (is_signed && bits == 16) return DType::kI16;
  if (is_signed && bits == 32) return DType::kI32;
  const char* kind = is_float      ? "float"
                     : is_signed   ? "signed"
                     : is_unsigned ? "unsigned"
                                   : "complex";
  NotYet(file,
         std::to_string(bits) + "-bit " + kind +
             " samples (unsigned 1, 2, 4, 8, 16, 32, signed 8, 16, 32 and float 16, 32, 64 are)");
}

// Colour channels of a photometric interpretation, or 0 if it is not supported.
int ColourChannels(int photometric, int compression, bool separate) {
  switch (photometric) {
    case PHOTOMETRIC_MINISBLACK:
    case PHOTOMETRIC_MINISWHITE:
    case PHOTOMETRIC_PALETTE:
      return 1;
    case PHOTOMETRIC_RGB:
      return 3;
    case PHOTOMETRIC_YCBCR:
      return compression == COMPRESSION_JPEG && !separate ? 3 : 0;
    default:
      return 0;
  }
}

std::string PhotometricName(int photometric) {
  switch (photometric) {
    case PHOTOMETRIC_SEPARATED:
      return "CMYK colour";
    case PHOTOMETRIC_YCBCR:
      return "YCbCr colour outside JPEG";
    case PHOTOMETRIC_CIELAB:
    case PHOTOMETRIC_ICCLAB:
    case PHOTOMETRIC_ITULAB:
      return "L*a*b* colour";
    case PHOTOMETRIC_CFA:
      return "raw sensor data";
    case PHOTOMETRIC_LOGL:
    case PHOTOMETRIC_LOGLUV:
      return "LogLuv colour";
    default:
      return "photometric interpretation " + std::to_string(photometric);
  }
}

AlphaKind FindAlpha(TIFF* tiff, const InputFile& file, int extras) {
  uint16_t count = 0;
  const uint16_t* kinds = nullptr;
  if (TIFFGetField(tiff, TIFFTAG_EXTRASAMPLES, &count, &kinds) != 1) return AlphaKind::kNone;
  AlphaKind alpha = AlphaKind::kNone;
  for (int i = 0; i < std::min<int>(count, extras); ++i) {
    if (kinds[i] != EXTRASAMPLE_ASSOCALPHA && kinds[i] != EXTRASAMPLE_UNASSALPHA) continue;
    if (i != extras - 1) NotYet(file, "an alpha channel that is not the last");
    alpha = kinds[i] == EXTRASAMPLE_ASSOCALPHA ? AlphaKind::kAssociated : AlphaKind::kStraight;
  }
  return alpha;
}

std::vector<uint8_t> ReadPalette(TiffHandle& handle, int bits) {
  uint16_t *red = nullptr, *green = nullptr, *blue = nullptr;
  handle.Call("its palette", [&] {
    return TIFFGetField(handle.get(), TIFFTAG_COLORMAP, &red, &green, &blue) == 1;
  });
  const size_t entries = size_t{1} << bits;
  // Old writers filled the 16-bit entries with 8-bit values.
  const auto small = [entries](const uint16_t* map) {
    return std::all_of(map, map + entries, [](uint16_t v) { return v < 256; });
  };
  const int shift = small(red) && small(green) && small(blue) ? 0 : 8;
  std::vector<uint8_t> palette;
  for (size_t i = 0; i < entries; ++i) {
    for (const uint16_t* map : {red, green, blue}) {
      palette.push_back(static_cast<uint8_t>(map[i] >> shift));
    }
  }
  return palette;
}

// Most bytes that one stored byte can give, rounded up; 0: no limit is known.
int64_t MostRatio(int compression) {
  switch (compression) {
    case COMPRESSION_PACKBITS:
      return 64;
    case COMPRESSION_LZW:  // strings of up to 3838 bytes, codes of 9 bits or more
      return 4096;
    case COMPRESSION_DEFLATE:
    case COMPRESSION_ADOBE_DEFLATE:
      return kDeflateRatio;
    case COMPRESSION_JPEG:  // a block of 64 samples takes two bits
      return 4096;
    case COMPRESSION_ZSTD:  // a block of 128 KiB takes four bytes
    case COMPRESSION_LZMA:
      return 1 << 16;
    default:
      return 0;
  }
}

void RequirePlausibleSize(const TiffPicture& picture, int compression, const InputFile& file) {
  const int64_t ratio = MostRatio(compression);
  if (ratio == 0) return;
  const double bytes = static_cast<double>(picture.width) * static_cast<double>(picture.height) *
                       picture.samples * picture.bits / 8;
  constexpr double kMost = 9e18;  // fits 64 bits
  RequireRatio(file.path(), file.size(), static_cast<int64_t>(std::min(bytes, kMost)), ratio);
}

void ReadChunks(TiffHandle& handle, const InputFile& file, TiffPicture& picture) {
  TIFF* tiff = handle.get();
  picture.tiled = TIFFIsTiled(tiff) != 0;
  uint32_t across = static_cast<uint32_t>(picture.width), down = 0;
  if (picture.tiled) {
    handle.Call("its tile size", [&] {
      return TIFFGetField(tiff, TIFFTAG_TILEWIDTH, &across) == 1 &&
             TIFFGetField(tiff, TIFFTAG_TILELENGTH, &down) == 1 && across > 0 && down > 0;
    });
  } else {
    TIFFGetFieldDefaulted(tiff, TIFFTAG_ROWSPERSTRIP, &down);
    down = std::min(down, static_cast<uint32_t>(picture.height));
    if (down == 0) ThrowInput(file.path(), "damaged TIFF: strips of no rows");
  }
  picture.chunk_width = across;
  picture.chunk_height = down;
  handle.Call("its strip or tile size", [&] {
    picture.chunk_bytes =
        static_cast<int64_t>(picture.tiled ? TIFFTileSize64(tiff) : TIFFVStripSize64(tiff, down));
    return picture.chunk_bytes > 0;
  });
  if (picture.chunk_bytes > kMostChunkBytes) {
    ThrowInput(file.path(),
               "damaged TIFF: strips or tiles of " + Bytes(picture.chunk_bytes) + " each");
  }
  const int64_t planes = picture.separate ? picture.samples : 1;
  const int64_t chunks = picture.chunks_across() * picture.chunks_down() * planes;
  const int64_t found = picture.tiled ? TIFFNumberOfTiles(tiff) : TIFFNumberOfStrips(tiff);
  if (found < chunks) {
    ThrowInput(file.path(), "damaged TIFF: " + std::to_string(found) + " strips or tiles, " +
                                std::to_string(chunks) + " are needed");
  }
  // Files are mostly cut at their end, so the last chunk tells.
  const auto last = static_cast<uint32_t>(chunks - 1);
  uint64_t begin = 0, bytes = 0;
  handle.Call("its last strip or tile", [&] {
    begin = TIFFGetStrileOffset(tiff, last);
    bytes = TIFFGetStrileByteCount(tiff, last);
    return true;
  });
  const auto size = static_cast<uint64_t>(file.size());
  if (begin > size || bytes > size - begin) {
    ThrowInput(file.path(), "damaged TIFF: its last strip or tile ends at byte " +
                                std::to_string(begin + bytes) + ", the file at " +
                                std::to_string(size) + ": it was cut");
  }
}

}  // namespace

TiffPicture ReadTiffPicture(TiffHandle& handle, const InputFile& file) {
  GoToOnlyPage(handle, file);
  TIFF* tiff = handle.get();
  TiffPicture picture;
  uint32_t width = 0, height = 0;
  handle.Call("its size", [&] {
    return TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &width) == 1 &&
           TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &height) == 1 && width > 0 && height > 0;
  });
  picture.width = width;
  picture.height = height;
  picture.bits = Short(tiff, TIFFTAG_BITSPERSAMPLE, 1);
  picture.samples = Short(tiff, TIFFTAG_SAMPLESPERPIXEL, 1);
  picture.separate = picture.samples > 1 && Short(tiff, TIFFTAG_PLANARCONFIG,
                                                  PLANARCONFIG_CONTIG) == PLANARCONFIG_SEPARATE;
  const int format = Short(tiff, TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  picture.dtype = SampleType(file, picture.bits, format);
  const int compression = Short(tiff, TIFFTAG_COMPRESSION, COMPRESSION_NONE);
  if (TIFFIsCODECConfigured(static_cast<uint16_t>(compression)) == 0 ||
      compression == COMPRESSION_OJPEG) {
    NotYet(file, "compression " + std::to_string(compression));
  }
  uint16_t photometric = picture.samples >= 3 ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK;
  TIFFGetField(tiff, TIFFTAG_PHOTOMETRIC, &photometric);
  const int colours = ColourChannels(photometric, compression, picture.separate);
  if (colours == 0) NotYet(file, PhotometricName(photometric));
  if (picture.samples < colours) {
    ThrowInput(file.path(), "damaged TIFF: " + std::to_string(picture.samples) +
                                " samples per pixel for " + std::to_string(colours) + " colours");
  }
  if (photometric == PHOTOMETRIC_YCBCR) {
    TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  }
  const int extras = picture.samples - colours;
  picture.alpha = extras > 0 ? FindAlpha(tiff, file, extras) : AlphaKind::kNone;
  picture.channels = picture.samples;
  picture.invert = photometric == PHOTOMETRIC_MINISWHITE;
  if (picture.invert && IsFloat(picture.dtype)) NotYet(file, "MinIsWhite float samples");
  if (picture.invert && picture.alpha == AlphaKind::kAssociated) {
    NotYet(file, "MinIsWhite and associated alpha");
  }
  if (photometric == PHOTOMETRIC_PALETTE) {
    if (picture.samples != 1 || picture.bits > 8) {
      NotYet(file, "a palette and " + std::to_string(picture.samples) + " samples of " +
                       std::to_string(picture.bits) + " bits");
    }
    picture.palette = ReadPalette(handle, picture.bits);
    picture.channels = 3;
  }
  ReadChunks(handle, file, picture);
  RequirePlausibleSize(picture, compression, file);
  picture.direct = compression == COMPRESSION_NONE && !picture.expands() &&
                   Short(tiff, TIFFTAG_FILLORDER, FILLORDER_MSB2LSB) == FILLORDER_MSB2LSB;
  picture.swapped = TIFFIsByteSwapped(tiff) != 0 && picture.bits > 8;
  return picture;
}

void ExpandTiffRow(const TiffPicture& picture, const std::byte* packed, int64_t pixels,
                   std::byte* expanded) {
  const int64_t samples = pixels * picture.chunk_samples();
  const int bits = picture.bits;
  const int most = (1 << bits) - 1;
  const auto* from = reinterpret_cast<const uint8_t*>(packed);
  auto* to = reinterpret_cast<uint8_t*>(expanded);
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t bit = i * bits;
    const int value = from[bit / 8] >> (8 - bits - bit % 8) & most;
    if (picture.palette.empty()) {
      *to++ = static_cast<uint8_t>(value * 255 / most);
    } else {
      std::memcpy(to, &picture.palette[static_cast<size_t>(value) * 3], 3);
      to += 3;
    }
  }
}

void InvertTiffSamples(const View& samples) {
  const size_t size = DTypeSize(samples.dtype);
  for (int64_t z = 0; z < samples.shape[0]; ++z) {
    for (int64_t y = 0; y < samples.shape[1]; ++y) {
      for (int64_t x = 0; x < samples.shape[2]; ++x) {
        // Lowest and highest swap places: in two's complement as in unsigned, that is the
        // complement.
        std::byte* sample = samples.at(0, z, y, x);
        for (size_t i = 0; i < size; ++i) sample[i] = ~sample[i];
      }
    }
  }
}

}  // namespace tilery
