#include <algorithm>
#include <cmath>
#include <cstring>

#include "io/array_file.h"
#include "io/byte_order.h"
#include "io/container.h"
#include "io/gzip.h"
#include "io/nifti.h"

namespace tilery {
namespace {

constexpr int64_t kExtensionLimit = 8 << 20;
constexpr int64_t kSlab = 1 << 20;  // bytes that are converted at once

template <typename Stored, typename Real>
void ScaleSamples(const std::byte* from, std::byte* to, int64_t count, double slope, double inter) {
  for (int64_t i = 0; i < count; ++i) {
    const auto stored = LoadLittle<Stored>(from + i * static_cast<int64_t>(sizeof(Stored)));
    const Real real = static_cast<Real>(static_cast<double>(stored) * slope + inter);
    std::memcpy(to + i * static_cast<int64_t>(sizeof(Real)), &real, sizeof real);
  }
}

using ScaleFunction = void (*)(const std::byte*, std::byte*, int64_t, double, double);

ScaleFunction ScaleFunctionOf(DType stored) {
  switch (stored) {
    case DType::kU8:
      return ScaleSamples<uint8_t, float>;
    case DType::kI8:
      return ScaleSamples<int8_t, float>;
    case DType::kU16:
      return ScaleSamples<uint16_t, float>;
    case DType::kI16:
      return ScaleSamples<int16_t, float>;
    case DType::kU32:
      return ScaleSamples<uint32_t, float>;
    case DType::kI32:
      return ScaleSamples<int32_t, float>;
    case DType::kF32:
      return ScaleSamples<float, float>;
    case DType::kF64:
      return ScaleSamples<double, double>;
    case DType::kF16:
      break;
  }
  throw Error(Fault::kInternal, "NIfTI holds no f16");
}

class NiftiReader final : public Reader {
 public:
  explicit NiftiReader(InputFile file) : file_(std::move(file)) {
    std::array<std::byte, 2> magic{};
    file_.ReadSome(0, magic);
    if (magic == std::array{std::byte{0x1F}, std::byte{0x8B}}) {
      gzip_ = std::make_unique<GzipInput>(file_);
    }
    ReadHeader();
  }

  const Header& header() const override { return header_; }
  const Metadata& metadata() const override { return metadata_; }
  const FileStamp& stamp() const override { return file_.stamp(); }

  void Read(const Box& box, const View& out) override {
    if (gzip_ != nullptr) {
      ReadRows(cursor_.Advance(box), out);
    } else if (scale_ == nullptr) {
      ReadArray(file_, layout_, box, out);
    } else {
      ReadScaled(box, out);
    }
  }

  void CheckEnd() override {
    if (gzip_ == nullptr) return;
    const int64_t end = layout_.offset + layout_.bytes();
    SkipTo(end);
    std::byte beyond;
    if (gzip_->Read({&beyond, 1}) != 0) {
      ThrowInput(file_.path(), "it decodes to more than the " + std::to_string(end) +
                                   " bytes that its header promises: it was altered");
    }
  }

 private:
  size_t ReadHead(int64_t offset, std::span<std::byte> into) {
    return gzip_ != nullptr ? gzip_->Read(into) : file_.ReadSome(offset, into);
  }

  void ReadHeader() {
    std::string bytes(NiftiHeader::kBytes2, '\0');
    const auto span = std::as_writable_bytes(std::span(bytes));
    size_t got = ReadHead(0, span.first(NiftiHeader::kBytes1));
    const auto kind = NiftiHeader::Recognise(span.first(got));
    if (kind.version == 2) {
      got += ReadHead(static_cast<int64_t>(got), span.subspan(got));
    }
    const size_t size = kind.version == 2 ? NiftiHeader::kBytes2 : NiftiHeader::kBytes1;
    if (kind.version == 0 || got < size) {
      ThrowInput(file_.path(), "no NIfTI header, or a cut one: " + std::to_string(got) + " of " +
                                   std::to_string(size) + " bytes");
    }
    if (kind.pair) {
      ThrowInput(file_.path(),
                 "NIfTI in two files (.hdr and .img) is not supported yet; convert it "
                 "to .nii");
    }
    bytes.resize(size);
    const NiftiHeader nifti = NiftiHeader::FromFile(std::move(bytes), kind.big_endian);
    SetType(nifti, kind.big_endian);
    SetShape(nifti);
    ReadExtensions(nifti, kind.big_endian);
    if (gzip_ != nullptr) return RequireRatio(file_.path(), file_.size(), layout_.bytes());
    const int64_t expected = layout_.offset + layout_.bytes();
    if (file_.size() != expected) {
      ThrowInput(file_.path(), "the NIfTI header promises " + std::to_string(expected) +
                                   " bytes, the file has " + std::to_string(file_.size()) +
                                   (file_.size() < expected ? ": it was cut" : ": it was altered"));
    }
  }

  void SetType(const NiftiHeader& nifti, bool big_endian) {
    const int code = static_cast<int>(nifti.Get(Nifti::kDatatype));
    if (!DTypeOfNifti(code, &layout_.dtype)) {
      ThrowInput(file_.path(), "NIfTI data type " + std::to_string(code) +
                                   " is not supported; u8 i8 u16 i16 u32 i32 f32 f64 are "
                                   "(2 256 512 4 768 8 16 64)");
    }
    layout_.swap = big_endian && DTypeSize(layout_.dtype) > 1;
    slope_ = nifti.Get(Nifti::kSlope);
    inter_ = nifti.Get(Nifti::kInter);
    // A slope of 0 means no scaling; so does one that is no number.
    if (!std::isfinite(slope_) || slope_ == 0) slope_ = 1, inter_ = 0;
    if (!std::isfinite(inter_)) inter_ = 0;
    const bool scaled = slope_ != 1 || inter_ != 0;
    if (scaled) scale_ = ScaleFunctionOf(layout_.dtype);
    header_.dtype = !scaled || layout_.dtype == DType::kF64 ? layout_.dtype : DType::kF32;
  }

  void SetShape(const NiftiHeader& nifti) {
    const double rank = nifti.Get(Nifti::kDim, 0);
    if (rank < 1 || rank > 7) {
      ThrowInput(file_.path(), "damaged NIfTI: " + std::to_string(static_cast<int64_t>(rank)) +
                                   " axes, 1 to 7 are possible");
    }
    std::array<int64_t, 8> n;
    n.fill(1);
    int64_t all = static_cast<int64_t>(DTypeSize(layout_.dtype));
    for (int axis = 1; axis <= static_cast<int>(rank); ++axis) {
      auto& length = n[static_cast<size_t>(axis)];
      length = static_cast<int64_t>(nifti.Get(Nifti::kDim, axis));
      if (length < 1 || __builtin_mul_overflow(all, length, &all)) {
        ThrowInput(file_.path(), "damaged NIfTI: axis " + std::to_string(axis) + " has length " +
                                     std::to_string(length));
      }
    }
    for (size_t axis = 4; axis < 8; ++axis) {
      if (n[axis] == 1) continue;
      ThrowInput(file_.path(), "NIfTI with " + std::to_string(n[axis]) +
                                   (axis == 4 ? " time points" : " values") + " along axis " +
                                   std::to_string(axis) +
                                   " is not supported yet; split it into single volumes");
    }
    layout_.shape = {n[3], n[2], n[1]};
    layout_.stride = DenseStrides(layout_.dtype, 1, layout_.shape);
    header_.format = "nifti";
    header_.dims = 3;
    header_.access = gzip_ != nullptr ? Access::kRows : Access::kRandom;
    header_.shape = layout_.shape;
    cursor_ = RowCursor(layout_.shape);
  }

  void ReadExtensions(const NiftiHeader& nifti, bool big_endian) {
    const auto header_bytes = static_cast<int64_t>(nifti.bytes().size());
    const double said = nifti.Get(Nifti::kVoxOffset);
    const double least = static_cast<double>(header_bytes + 4);
    const double offset = said == 0 ? least : said;
    if (!(offset >= least && offset <= least + static_cast<double>(kExtensionLimit)) ||
        offset != std::floor(offset)) {
      ThrowInput(file_.path(), "damaged NIfTI: its voxels start at byte " + std::to_string(said) +
                                   "; " + std::to_string(header_bytes + 4) + " to " +
                                   std::to_string(header_bytes + 4 + kExtensionLimit) +
                                   " are possible");
    }
    layout_.offset = static_cast<int64_t>(offset);
    std::string extensions(static_cast<size_t>(layout_.offset - header_bytes), '\0');
    const size_t got = ReadHead(header_bytes, std::as_writable_bytes(std::span(extensions)));
    if (got < extensions.size()) {
      ThrowInput(file_.path(), "its voxels should start at byte " + std::to_string(layout_.offset) +
                                   ", it ends after " +
                                   std::to_string(header_bytes + static_cast<int64_t>(got)));
    }
    metadata_.nifti = nifti.bytes();
    if (extensions[0] == 0) return;
    if (!WalkExtensions(extensions, big_endian)) {
      ThrowInput(file_.path(), "damaged NIfTI: an extension does not end where it should");
    }
    metadata_.nifti += extensions;
  }

  // Brings size and code of each extension to host order; its content has none that is known.
  static bool WalkExtensions(std::string& extensions, bool big_endian) {
    size_t at = 4;
    while (at + 8 <= extensions.size()) {
      const auto size = Load<uint32_t>(extensions.data() + at, big_endian);
      if (size == 0) break;  // padding
      if (size < 8 || size > extensions.size() - at) return false;
      Store(extensions.data() + at, size, false);
      Store(extensions.data() + at + 4, Load<uint32_t>(extensions.data() + at + 4, big_endian),
            false);
      at += size;
    }
    return true;
  }

  void ReadScaled(const Box& box, const View& out) {
    const int64_t rows = std::max<int64_t>(
        1, kSlab / (box.extent(2) * static_cast<int64_t>(DTypeSize(layout_.dtype))));
    const auto samples = static_cast<size_t>(std::min(rows, box.extent(1)) * box.extent(2));
    std::vector<std::byte> stored(samples * DTypeSize(layout_.dtype));
    std::vector<std::byte> real(samples * DTypeSize(header_.dtype));
    for (int64_t z = box.begin[0]; z < box.end[0]; ++z) {
      for (int64_t y = box.begin[1]; y < box.end[1]; y += rows) {
        const Box part{{z, y, box.begin[2]}, {z + 1, std::min(y + rows, box.end[1]), box.end[2]}};
        ReadArray(file_, layout_, part,
                  DenseView(stored.data(), layout_.dtype, 1, part.shape(), Layout::kPlanar));
        scale_(stored.data(), real.data(), part.voxels(), slope_, inter_);
        CopyView(DenseView(static_cast<const std::byte*>(real.data()), header_.dtype, 1,
                           part.shape(), Layout::kPlanar),
                 out.Crop(Shift(part, {-box.begin[0], -box.begin[1], -box.begin[2]})));
      }
    }
  }

  void ReadRows(const RowRange& rows, const View& out) {
    const auto size = static_cast<int64_t>(DTypeSize(layout_.dtype));
    const int64_t width = layout_.shape[2], height = layout_.shape[1];
    const int64_t most = std::max<int64_t>(1, kSlab / (width * size));
    std::vector<std::byte> stored(
        static_cast<size_t>(std::min(most, rows.end - rows.begin) * width * size));
    std::vector<std::byte> real(scale_ == nullptr ? 0
                                                  : stored.size() / DTypeSize(layout_.dtype) *
                                                        DTypeSize(header_.dtype));
    SkipTo(layout_.offset + rows.begin * width * size);
    int64_t next = 0;
    for (int64_t row = rows.begin; row < rows.end; row = next) {
      next = std::min({row + most, rows.end, (row / height + 1) * height});  // in one plane
      const int64_t count = (next - row) * width;
      Decode({stored.data(), static_cast<size_t>(count * size)});
      if (layout_.swap) {
        SwapSamples(stored.data(), static_cast<size_t>(count), static_cast<size_t>(size));
      }
      if (scale_ != nullptr) scale_(stored.data(), real.data(), count, slope_, inter_);
      const std::byte* samples = scale_ != nullptr ? real.data() : stored.data();
      const int64_t z = row / height - rows.begin / height;
      const int64_t y = z == 0 ? row - rows.begin : row % height;
      const Box part{{z, y, 0}, {z + 1, y + next - row, width}};
      CopyView(DenseView(samples, header_.dtype, 1, part.shape(), Layout::kPlanar), out.Crop(part));
    }
  }

  void SkipTo(int64_t offset) {
    std::vector<std::byte> scrap;
    while (gzip_->position() < offset) {
      scrap.resize(static_cast<size_t>(std::min(kSlab, offset - gzip_->position())));
      Decode(scrap);
    }
  }

  void Decode(std::span<std::byte> into) {
    if (gzip_->Read(into) == into.size()) return;
    ThrowInput(file_.path(), "the NIfTI header promises " +
                                 std::to_string(layout_.offset + layout_.bytes()) +
                                 " decoded bytes, there are " + std::to_string(gzip_->position()));
  }

  InputFile file_;
  std::unique_ptr<GzipInput> gzip_;
  ArrayLayout layout_;
  double slope_ = 1, inter_ = 0;
  ScaleFunction scale_ = nullptr;  // null: samples are as stored
  Header header_;
  Metadata metadata_;
  RowCursor cursor_{{1, 0, 0}};
};

struct Code {
  int nifti;
  DType dtype;
};
constexpr Code kCodes[] = {{2, DType::kU8},   {256, DType::kI8},  {512, DType::kU16},
                           {4, DType::kI16},  {768, DType::kU32}, {8, DType::kI32},
                           {16, DType::kF32}, {64, DType::kF64}};

}  // namespace

bool DTypeOfNifti(int code, DType* dtype) {
  for (const Code& known : kCodes) {
    if (known.nifti == code) {
      *dtype = known.dtype;
      return true;
    }
  }
  return false;
}

int NiftiOfDType(DType dtype) {
  for (const Code& known : kCodes) {
    if (known.dtype == dtype) return known.nifti;
  }
  return 0;
}

NiftiParts SplitNifti(const std::string& metadata) {
  if (metadata.empty()) return {};
  const auto size = metadata.size() < 4 ? 0 : LoadLittle<uint32_t>(metadata.data());
  if (size > metadata.size()) throw Error(Fault::kInternal, "a cut NIfTI header");
  return {NiftiHeader(metadata.substr(0, size)), metadata.substr(size)};
}

std::unique_ptr<Reader> OpenNifti(InputFile file) {
  return std::make_unique<NiftiReader>(std::move(file));
}

}  // namespace tilery
