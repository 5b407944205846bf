// XMP and IPTC on their way from one picture format to another, and the wrappings they lie in.
//
// A packet is carried as it is: nothing here reads XML or the values of data sets, so a damaged
// packet arrives as it left. IPTC means IIM data sets (bytes that begin with 0x1C); of Photoshop's
// image resources around them only these are kept, since the others (thumbnail, paths, print
// settings) speak of the old samples. Source: XMP specification part 3, IPTC-IIM 4.2, Adobe
// Photoshop file formats, and for PNG the "Raw profile type" texts of ImageMagick and Exiv2.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "io/format.h"

namespace tilery {

// Most bytes of one packet; a larger one is left out, by name.
inline constexpr size_t kMostPacket = size_t{16} << 20;

// "XMP (larger than 16777216 bytes)": for Metadata::left_out.
std::string TooLarge(const std::string& what, size_t most);

// Keep a packet, or name it in `left_out`; an empty one changes nothing.
void TakeXmp(std::string packet, Metadata* metadata);
void TakeIptc(std::string packet, Metadata* metadata);

// The data sets inside image resources (the 8BIM blocks of a JPEG's APP13 or of TIFF tag 34377), or
// the bytes themselves where they are data sets; "" if there are none. Damaged blocks are skipped,
// a cut one gives what is there.
std::string IptcOfResources(const std::string& resources);
std::string ResourcesOfIptc(const std::string& iptc);

// Without the zeros, three at most, that fill the last of the 32-bit words in TIFF tag 33723.
std::string WithoutPadding(const std::string& iptc);

// The text of a PNG's "Raw profile type <name>": name, length, hexadecimal digits.
std::string RawProfileText(const std::string& name, const std::string& bytes);
std::optional<std::string> RawProfileBytes(const std::string& text);  // nothing if it is not one

}  // namespace tilery
