// The two halves of the JPEG container. Internal to io.
#pragma once

#include <memory>

#include "io/format.h"

namespace tilery {

inline constexpr char kExifTag[] = "Exif\0";  // and the zero that ends the literal
inline constexpr size_t kExifTagBytes = 6;
inline constexpr size_t kSegmentBytes = 65533;  // most that one marker segment carries

std::unique_ptr<Reader> OpenJpeg(InputFile file);
std::unique_ptr<Writer> CreateJpeg(OutputFile& file, const WriteSpec& spec);

}  // namespace tilery
