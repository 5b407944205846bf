#include "io/format.h"

#include <algorithm>
#include <cstring>

#include "io/container.h"

namespace tilery {
namespace {

const std::vector<const Container*>& Registry() {
  static const std::vector<const Container*> all{
      &PngContainer(),   &JpegContainer(), &TiffContainer(), &NpyContainer(),
      &NiftiContainer(), &VdbContainer(),  &RawContainer()};
  return all;
}

const Container& Find(const std::string& name) {
  for (const Container* container : Registry()) {
    if (name == container->name) return *container;
  }
  std::vector<std::string> names;
  for (const Container* container : Registry()) names.emplace_back(container->name);
  throw Error(Fault::kUsage, "no format is called '" + Printable(name, 60) + "'; " + OneOf(names) +
                                 " can be written");
}

// What a file that no container recognises looks like, for people.
std::string LooksLike(std::span<const std::byte> head) {
  struct Known {
    size_t at;
    std::string_view magic;
    const char* name;
  };
  static constexpr Known kKnown[] = {
      {0, {"\0\5\x16\7", 4}, "an AppleDouble side file of macOS"},
      {0, "GIF8", "a GIF"},
      {0, "BM", "a BMP"},
      {8, "WEBP", "a WebP picture"},
      {0, "v/1\1", "an OpenEXR picture"},
      {0, {"\0\0\0\x0CJXL ", 8}, "a JPEG XL picture"},
      {0, "\xFF\x0A", "a JPEG XL picture"},
      {4, "ftyp", "a HEIF, AVIF or MP4 file"},
      {0, "8BPS", "a Photoshop document"},
      {0, "\x89HDF", "an HDF5 file"},
      {0, "%PDF", "a PDF"},
      {0, "PK\3\4", "a zip archive (or .npz)"},
      {0, "\x1F\x8B", "gzip data that hold no NIfTI volume"},
      {128, "DICM", "a DICOM file"},
      {0, "<svg", "an SVG drawing"},
      {0, "<?xml", "XML text"},
  };
  const std::string_view text(reinterpret_cast<const char*>(head.data()), head.size());
  for (const Known& known : kKnown) {
    if (text.size() >= known.at + known.magic.size() &&
        text.substr(known.at, known.magic.size()) == known.magic) {
      return std::string("it looks like ") + known.name;
    }
  }
  const bool is_text = std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 0x20 && c < 0x7F) || c == '\n' || c == '\r' || c == '\t';
  });
  if (is_text) return "it looks like text: \"" + Printable(std::string(text.substr(0, 24))) + "\"";
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : text.substr(0, 8)) {
    hex += ' ';
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return "its first bytes are" + hex;
}

}  // namespace

std::unique_ptr<Reader> OpenReader(const std::filesystem::path& path,
                                   const std::optional<RawLayout>& raw) {
  InputFile file(path);
  if (raw) return OpenRaw(std::move(file), *raw);
  std::array<std::byte, kSniffBytes> bytes;
  const auto head = std::span<const std::byte>(bytes).first(file.ReadSome(0, bytes));
  if (head.empty()) ThrowInput(path, "the file is empty (0 bytes)");
  for (const Container* container : Registry()) {
    if (container->recognises != nullptr && container->recognises(head)) {
      return container->open(std::move(file));
    }
  }
  ThrowInput(path, "no known picture or volume (PNG, JPEG, TIFF, .npy, NIfTI); " + LooksLike(head) +
                       "; a raw file needs its dtype and shape");
}

std::unique_ptr<Writer> CreateWriter(OutputFile& file, const WriteSpec& spec) {
  const Container& container = Find(spec.header.format);
  const std::string why_not = WhyNot(spec.header.format, spec.header);
  if (!why_not.empty()) throw Error(Fault::kUsage, InFile(file.target(), why_not));
  return container.create(file, spec);
}

std::string FormatOfExtension(const std::filesystem::path& path) {
  std::string name = path.filename().string();
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  for (const Container* container : Registry()) {
    for (const std::string& extension : container->extensions) {
      if (name.size() > extension.size() && name.ends_with(extension)) return container->name;
    }
  }
  return "";
}

std::vector<std::string> KnownExtensions() {
  std::vector<std::string> all;
  for (const Container* container : Registry()) {
    all.insert(all.end(), container->extensions.begin(), container->extensions.end());
  }
  return all;
}

std::string WhyNot(const std::string& format, const Header& header) {
  const Container& container = Find(format);
  if (header.channels < 1 || (header.alpha != AlphaKind::kNone && header.channels < 2)) {
    return std::to_string(header.channels) + " channels" +
           (header.alpha != AlphaKind::kNone ? " with alpha" : "") + " are no picture or volume";
  }
  for (const int64_t n : header.shape) {
    if (n < 1) return "a shape of " + ShapeToString(header.shape, 3) + " holds nothing";
  }
  return container.why_not(header);
}

std::vector<std::string> Losses(const std::string& format, const Header& from,
                                const Metadata& metadata) {
  return Find(format).losses(from, metadata);
}

}  // namespace tilery
