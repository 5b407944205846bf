// The few things of an EXIF payload that must agree with the picture around it.
//
// A payload starts with "II*\0" or "MM\0*" (no "Exif\0\0" before it). Damaged payloads are never an
// error: what can't be found counts as absent, and nothing is changed. Source: EXIF 2.32, TIFF 6.0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tilery {

// Orientation 1..8; 1 where it is not said or not valid.
int ExifOrientation(const std::string& exif);

// `exif` with its orientation set. Where it has no such field it comes back unchanged; an empty one
// becomes a minimal payload, unless the orientation is 1.
std::string WithExifOrientation(const std::string& exif, int orientation);

// `exif` with its pixel dimensions (PixelXDimension and PixelYDimension) set, where it has them.
std::string WithExifPixelSize(const std::string& exif, int64_t width, int64_t height);

}  // namespace tilery
