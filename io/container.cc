#include "io/container.h"

#include <cmath>
#include <cstdio>

namespace tilery {

std::string InFile(const std::filesystem::path& path, const std::string& text) {
  return Printable(path.string()) + ": " + text;
}

void ThrowInput(const std::filesystem::path& path, const std::string& text) {
  throw Error(Fault::kInput, InFile(path, text));
}

std::string Bytes(int64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return std::to_string(bytes) + " bytes";
  char text[64];
  std::snprintf(text, sizeof text, "%.4g %s (%lld bytes)", value, kUnits[unit],
                static_cast<long long>(bytes));
  return text;
}

void RequireRatio(const std::filesystem::path& path, int64_t file_bytes, int64_t decoded,
                  int64_t most_ratio) {
  if (decoded / most_ratio <= file_bytes) return;
  ThrowInput(path, "its header promises " + Bytes(decoded) + ", which a compressed file of " +
                       Bytes(file_bytes) + " can't hold: it was cut, or the header is damaged");
}

std::string OneOf(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) out += i + 1 == words.size() ? " and " : ", ";
    out += words[i];
  }
  return out;
}

std::string ForeignProfile(const std::string& icc, int colours) {
  constexpr size_t kColourSpace = 16;  // offset of the signature in the profile's header
  if (icc.size() < kColourSpace + 4) return "";
  const std::string space = icc.substr(kColourSpace, 4);
  const bool foreign =
      space == "CMYK" || (space == "RGB " && colours == 1) || (space == "GRAY" && colours != 1);
  return foreign ? space.substr(0, space.find(' ')) : "";
}

void AddColourLosses(const Metadata& metadata, std::vector<std::string>* losses) {
  // A profile outranks gAMA and cHRM, and sRGB is what a picture without a word means.
  if (!metadata.icc.empty() || metadata.srgb_intent) return;
  constexpr double kDisplayGamma = 0.45455;
  if (metadata.gamma && std::abs(*metadata.gamma - kDisplayGamma) > 1e-4)
    losses->push_back("gamma");
  if (metadata.chromaticities) losses->push_back("chromaticities");
}

void AddCommonLosses(const Metadata& metadata, bool keeps_extended_xmp,
                     std::vector<std::string>* losses) {
  if (!metadata.extended_xmp.empty() && !keeps_extended_xmp) {
    size_t bytes = 0;
    for (const std::string& segment : metadata.extended_xmp) bytes += segment.size();
    losses->push_back("extended XMP (" + std::to_string(bytes) + " bytes; JPEG alone holds it)");
  }
  losses->insert(losses->end(), metadata.left_out.begin(), metadata.left_out.end());
}

std::vector<std::string> SamplesOnlyLosses(const Header& from, const Metadata& metadata) {
  std::vector<std::string> losses;
  if (from.alpha != AlphaKind::kNone) losses.push_back("which channel is alpha");
  if (!metadata.icc.empty()) losses.push_back("ICC profile");
  AddColourLosses(metadata, &losses);
  if (!metadata.exif.empty()) losses.push_back("EXIF");
  if (!metadata.xmp.empty()) losses.push_back("XMP");
  if (!metadata.iptc.empty()) losses.push_back("IPTC");
  AddCommonLosses(metadata, false, &losses);
  if (metadata.orientation != 1) losses.push_back("orientation");
  if (metadata.resolution) losses.push_back("resolution");
  if (!metadata.description.empty()) losses.push_back("description");
  if (!metadata.nifti.empty()) losses.push_back("NIfTI header (affine, units)");
  return losses;
}

}  // namespace tilery
