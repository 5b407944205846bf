// The two halves of the PNG container. Internal to io.
#pragma once

#include <memory>

#include "io/format.h"

namespace tilery {

inline constexpr char kPngDescription[] = "Description";  // the text keyword

std::unique_ptr<Reader> OpenPng(InputFile file);
std::unique_ptr<Writer> CreatePng(OutputFile& file, const WriteSpec& spec);

}  // namespace tilery
