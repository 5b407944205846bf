// How a container joins the registry: one entry per format, listed in format.cc. Internal to io.
//
// The names of the functions are those of io/format.h, narrowed to one format. An entry is plain
// data with static lifetime; its functions may be called from any thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/error.h"
#include "io/file.h"
#include "io/format.h"

namespace tilery {

struct Container {
  const char* name;
  std::vector<std::string> extensions;                  // lower case, with the dot
  bool (*recognises)(std::span<const std::byte> head);  // first kSniffBytes; null: never by content
  std::unique_ptr<Reader> (*open)(InputFile file);      // null: needs more than the file (raw)
  std::unique_ptr<Writer> (*create)(OutputFile& file, const WriteSpec& spec);
  std::string (*why_not)(const Header& header);
  std::vector<std::string> (*losses)(const Header& from, const Metadata& metadata);
};

// Enough for the whole NIfTI-2 header, whose magic stands near its start and NIfTI-1's at 344.
inline constexpr size_t kSniffBytes = 1024;

const Container& PngContainer();
const Container& JpegContainer();
const Container& TiffContainer();
const Container& NpyContainer();
const Container& RawContainer();
const Container& NiftiContainer();
const Container& VdbContainer();

std::unique_ptr<Reader> OpenRaw(InputFile file, const RawLayout& layout);

// "PATH: text" with the path made printable.
std::string InFile(const std::filesystem::path& path, const std::string& text);
// Error(kInput) with InFile's text.
[[noreturn]] void ThrowInput(const std::filesystem::path& path, const std::string& text);
// "1.5 GiB (1610612736 bytes)".
std::string Bytes(int64_t bytes);

// "u8 or u16", "1, 2 or 3": for messages that name what is possible.
std::string OneOf(const std::vector<std::string>& words);

// Whole pictures that can only be decoded in memory (interlaced, progressive) are refused above
// this.
inline constexpr int64_t kWholePictureLimit = int64_t{1} << 30;

// Refuses a header that promises more decoded bytes than `file_bytes` can hold, before anyone plans
// with them or makes room: no coding gives more than `most_ratio` bytes for one.
inline constexpr int64_t kDeflateRatio = 1032;
void RequireRatio(const std::filesystem::path& path, int64_t file_bytes, int64_t decoded,
                  int64_t most_ratio = kDeflateRatio);

// What no picture format but the named ones holds; shared by the losses functions.
void AddColourLosses(const Metadata& metadata, std::vector<std::string>* losses);
// Extended XMP, for formats but JPEG, and what no format gets.
void AddCommonLosses(const Metadata& metadata, bool keeps_extended_xmp,
                     std::vector<std::string>* losses);
// Of containers that hold samples only (.npy, raw).
std::vector<std::string> SamplesOnlyLosses(const Header& from, const Metadata& metadata);
// "" if the profile fits pictures with so many colour channels (or does not say), else e.g. "GRAY".
std::string ForeignProfile(const std::string& icc, int colours);
inline int Colours(const Header& header) {
  return header.channels - (header.alpha == AlphaKind::kNone ? 0 : 1);
}

}  // namespace tilery
