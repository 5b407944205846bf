// Uncompressed arrays inside files: boxes read through strides, rows written in place.
//
// .npy, raw, plain NIfTI and uncompressed TIFF strips are all of this kind. Reading is thread-safe
// and holds at most 4 MiB beside the target.
#pragma once

#include <array>

#include "io/file.h"
#include "io/row_cursor.h"
#include "io/view.h"

namespace tilery {

struct ArrayLayout {
  DType dtype = DType::kU8;
  int64_t channels = 1;
  Index shape{1, 1, 1};
  int64_t offset = 0;                         // of the first sample in the file
  std::array<int64_t, 4> stride{0, 0, 0, 0};  // bytes in the file per step of c, z, y, x
  bool swap = false;                          // other byte order than the host's

  int64_t bytes() const {
    return channels * shape[0] * shape[1] * shape[2] * static_cast<int64_t>(DTypeSize(dtype));
  }
};

// Strides of a dense [c,z,y,x] array (C order), and of its transpose on disk (Fortran order).
std::array<int64_t, 4> DenseStrides(DType dtype, int64_t channels, const Index& shape);
std::array<int64_t, 4> FortranStrides(DType dtype, int64_t channels, const Index& shape);

// `out` has the layout's dtype and channels and the shape of `box`. Errors as InputFile::ReadAt.
void ReadArray(const InputFile& file, const ArrayLayout& layout, const Box& box, const View& out);

// Writes rows of a dense [c,z,y,x] array in host order at `layout.offset`; `samples` holds just
// them.
void WriteArrayRows(OutputFile& file, const ArrayLayout& layout, const RowRange& rows,
                    const ConstView& samples);

}  // namespace tilery
