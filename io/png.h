// The two halves of the PNG container. Internal to io.
#pragma once

#include <memory>

#include "io/format.h"

namespace tilery {

inline constexpr char kPngDescription[] = "Description";  // keys of texts
inline constexpr char kPngXmp[] = "XML:com.adobe.xmp";
inline constexpr char kPngIptc[] = "Raw profile type iptc";

// Reads the chunks before and after the image data, not these. Error(kInput) for damaged ones;
// where the file was cut, what is there.
Metadata ReadPngMetadata(const InputFile& file);

std::unique_ptr<Reader> OpenPng(InputFile file);
std::unique_ptr<Writer> CreatePng(OutputFile& file, const WriteSpec& spec);

}  // namespace tilery
