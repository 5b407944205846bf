#include <algorithm>
#include <cctype>

#include "io/array_file.h"
#include "io/container.h"
#include "io/gzip.h"
#include "io/nifti.h"

namespace tilery {
namespace {

constexpr int64_t kMostAxis1 = 32767;  // NIfTI-1 counts in 16 bits
constexpr int64_t kSlab = 1 << 20;

bool IsGzip(const std::filesystem::path& target) {
  const std::string name = target.filename().string();
  constexpr std::string_view kEnd = ".gz";
  return name.size() > kEnd.size() &&
         std::equal(kEnd.begin(), kEnd.end(), name.end() - static_cast<std::ptrdiff_t>(kEnd.size()),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

class NiftiWriter final : public Writer {
 public:
  NiftiWriter(OutputFile& file, const WriteSpec& spec)
      : file_(file), header_(spec.header), cursor_(spec.header.shape) {
    if (IsGzip(file.target())) gzip_ = std::make_unique<GzipOutput>(file, spec.pool);
    NiftiParts parts = SplitNifti(spec.metadata.nifti);
    if (*std::max_element(header_.shape.begin(), header_.shape.end()) > kMostAxis1) {
      parts.header = parts.header.AsVersion2();
    }
    Describe(parts);
    Emit(std::as_bytes(std::span(parts.header.bytes())));
    Emit(std::as_bytes(std::span(parts.extensions)));
  }

  void Write(const Box& band, const ConstView& samples) override {
    const RowRange rows = cursor_.Continue(band);
    const int64_t width = header_.shape[2], height = header_.shape[1];
    const int64_t row_bytes = width * static_cast<int64_t>(DTypeSize(header_.dtype));
    const int64_t most = std::max<int64_t>(1, kSlab / row_bytes);
    int64_t next = 0;
    for (int64_t row = rows.begin; row < rows.end; row = next) {
      next = std::min({row + most, rows.end, (row / height + 1) * height});  // in one plane
      const int64_t z = row / height - rows.begin / height;
      const int64_t y = z == 0 ? row - rows.begin : row % height;
      const ConstView from = samples.Crop({{z, y, 0}, {z + 1, y + next - row, width}});
      const auto bytes = static_cast<size_t>((next - row) * row_bytes);
      const std::byte* data = from.data;
      if (!IsDense(from, Layout::kPlanar)) {
        slab_.resize(std::max(slab_.size(), bytes));
        CopyView(from, DenseView(slab_.data(), header_.dtype, 1, from.shape, Layout::kPlanar));
        data = slab_.data();
      }
      Emit({data, bytes});
    }
  }

  void Finish() override {
    cursor_.RequireEnd();
    if (gzip_ != nullptr) gzip_->Finish();
  }

 private:
  // Makes the header say what will be written.
  void Describe(NiftiParts& parts) {
    NiftiHeader& nifti = parts.header;
    if (parts.extensions.empty()) parts.extensions.assign(4, '\0');
    const int code = NiftiOfDType(header_.dtype);
    const bool scaled = nifti.Get(Nifti::kSlope) != 0 &&
                        (nifti.Get(Nifti::kSlope) != 1 || nifti.Get(Nifti::kInter) != 0);
    const bool same_values = !scaled && static_cast<int>(nifti.Get(Nifti::kDatatype)) == code;
    if (!same_values && IsInteger(header_.dtype)) {
      nifti.Set(Nifti::kCalMin, 0, 0);  // a display range of values that are no more
      nifti.Set(Nifti::kCalMax, 0, 0);
    }
    // A picture in z = 1 and a volume with one time point keep their number of axes.
    const int axes = static_cast<int>(nifti.Get(Nifti::kDim, 0));
    nifti.Set(Nifti::kDim, 0, header_.shape[0] > 1 ? std::max(3, axes) : axes);
    for (int axis = 1; axis < 8; ++axis) {
      nifti.Set(Nifti::kDim, axis,
                axis > 3 ? 1 : static_cast<double>(header_.shape[static_cast<size_t>(3 - axis)]));
    }
    nifti.Set(Nifti::kDatatype, 0, code);
    nifti.Set(Nifti::kBitpix, 0, static_cast<double>(DTypeSize(header_.dtype) * 8));
    nifti.Set(Nifti::kSlope, 0, 1);
    nifti.Set(Nifti::kInter, 0, 0);
    nifti.Set(Nifti::kVoxOffset, 0,
              static_cast<double>(nifti.bytes().size() + parts.extensions.size()));
  }

  void Emit(std::span<const std::byte> bytes) {
    if (gzip_ != nullptr) {
      gzip_->Write(bytes);
    } else {
      file_.Write(bytes);
    }
  }

  OutputFile& file_;
  Header header_;
  RowCursor cursor_;
  std::unique_ptr<GzipOutput> gzip_;
  std::vector<std::byte> slab_;
};

bool RecognisesNifti(std::span<const std::byte> head) {
  if (NiftiHeader::Recognise(head).version != 0 && head.size() >= NiftiHeader::kBytes1) return true;
  return NiftiHeader::Recognise(GunzipHead(head)).version != 0;
}

std::string WhyNotNifti(const Header& header) {
  if (NiftiOfDType(header.dtype) == 0) {
    return std::string("NIfTI holds u8 i8 u16 i16 u32 i32 f32 or f64, not ") +
           DTypeName(header.dtype);
  }
  if (header.channels != 1) {
    return "NIfTI of " + std::to_string(header.channels) +
           " channels is not supported yet, 1 is; .npy holds any number";
  }
  return "";
}

std::vector<std::string> NiftiLosses(const Header& from, const Metadata& metadata) {
  Metadata other = metadata;
  other.nifti.clear();
  return SamplesOnlyLosses(from, other);
}

}  // namespace

std::unique_ptr<Writer> CreateNifti(OutputFile& file, const WriteSpec& spec) {
  return std::make_unique<NiftiWriter>(file, spec);
}

const Container& NiftiContainer() {
  static const Container container{"nifti",     {".nii.gz", ".nii"}, RecognisesNifti, OpenNifti,
                                   CreateNifti, WhyNotNifti,         NiftiLosses};
  return container;
}

}  // namespace tilery
