// The two halves of the JPEG container. Internal to io.
#pragma once

#include <memory>

#include "io/format.h"

namespace tilery {

inline constexpr char kExifTag[] = "Exif\0";  // and the zero that ends the literal
inline constexpr size_t kExifTagBytes = 6;
inline constexpr char kXmpTag[] = "http://ns.adobe.com/xap/1.0/";  // likewise
inline constexpr size_t kXmpTagBytes = sizeof kXmpTag;
inline constexpr char kExtendedXmpTag[] = "http://ns.adobe.com/xmp/extension/";
inline constexpr size_t kExtendedXmpTagBytes = sizeof kExtendedXmpTag;
inline constexpr char kResourcesTag[] = "Photoshop 3.0";
inline constexpr size_t kResourcesTagBytes = sizeof kResourcesTag;
inline constexpr size_t kSegmentBytes = 65533;  // most that one marker segment carries

std::unique_ptr<Reader> OpenJpeg(InputFile file);
std::unique_ptr<Writer> CreateJpeg(OutputFile& file, const WriteSpec& spec);

}  // namespace tilery
