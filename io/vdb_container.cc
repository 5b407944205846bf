// OpenVDB files among the formats: which names are theirs, and what grids hold. Their grids are
// read and written by io/vdb_region.h and io/vdb_writer.h, since a sparse grid has no shape.
#include <algorithm>

#include "io/container.h"

namespace tilery {
namespace {

bool Recognises(std::span<const std::byte> head) {
  constexpr std::string_view kMagic(" BDV\0\0\0\0", 8);
  return head.size() >= kMagic.size() &&
         std::equal(kMagic.begin(), kMagic.end(), head.begin(),
                    [](char a, std::byte b) { return static_cast<std::byte>(a) == b; });
}

std::unique_ptr<Reader> Open(InputFile file) {
  ThrowInput(file.path(), "an OpenVDB file has grids, but no one box of samples");
}

std::unique_ptr<Writer> Create(OutputFile& file, const WriteSpec&) {
  throw Error(Fault::kInternal, InFile(file.target(), "grids are not written by bands"));
}

std::string WhyNotGrid(const Header& header) {
  if (header.dims != 3) return "an OpenVDB grid holds volumes, not pictures";
  if (header.dtype != DType::kF32)
    return std::string("an OpenVDB grid holds f32, not ") + DTypeName(header.dtype);
  if (header.alpha != AlphaKind::kNone || (header.channels != 1 && header.channels != 3))
    return "an OpenVDB grid holds 1 or 3 numbers for a voxel, not " +
           std::to_string(header.channels) + " channels";
  return "";
}

}  // namespace

const Container& VdbContainer() {
  static const Container container{"vdb",  {".vdb"},   Recognises,       Open,
                                   Create, WhyNotGrid, SamplesOnlyLosses};
  return container;
}

}  // namespace tilery
