// What changes in a picture's or volume's description when its grid gets finer or coarser.
#include <algorithm>
#include <cmath>

#include "io/exif.h"
#include "io/format.h"
#include "io/nifti.h"

namespace tilery {
namespace {

double Value(const Rational& scale) {
  return static_cast<double>(scale.num) / static_cast<double>(scale.den);
}

// Voxel i of the output covers input positions from i / s on, so its centre lies at
// (i + 0.5) / s - 0.5: the affine gets A' = A * M with M = diag(1/s) and shift (1/s - 1) / 2, which
// leaves the outer corner of the first voxel where it was. NIfTI counts axes x, y, z.
void ScaleNifti(NiftiHeader& nifti, const Scale& scale) {
  double step[3], shift[3];
  for (size_t axis = 0; axis < 3; ++axis) {
    step[axis] = 1 / Value(scale[2 - axis]);
    shift[axis] = (step[axis] - 1) / 2;
  }
  for (int row = 0; row < 3; ++row) {
    double moved = nifti.Get(Nifti::kSrow, 4 * row + 3);
    for (int axis = 0; axis < 3; ++axis) {
      const double value = nifti.Get(Nifti::kSrow, 4 * row + axis);
      moved += value * shift[axis];
      nifti.Set(Nifti::kSrow, 4 * row + axis, value * step[axis]);
    }
    nifti.Set(Nifti::kSrow, 4 * row + 3, moved);
  }

  // The rotation of the quaternion (a, b, c, d), whose third column is flipped where pixdim[0] is
  // -1.
  const double b = nifti.Get(Nifti::kQuatern, 0);
  const double c = nifti.Get(Nifti::kQuatern, 1);
  const double d = nifti.Get(Nifti::kQuatern, 2);
  const double a = std::sqrt(std::max(0.0, 1 - (b * b + c * c + d * d)));
  const double rotation[3][3] = {
      {a * a + b * b - c * c - d * d, 2 * (b * c - a * d), 2 * (b * d + a * c)},
      {2 * (b * c + a * d), a * a + c * c - b * b - d * d, 2 * (c * d - a * b)},
      {2 * (b * d - a * c), 2 * (c * d + a * b), a * a + d * d - b * b - c * c}};
  const double flip = nifti.Get(Nifti::kPixdim, 0) < 0 ? -1 : 1;
  for (int row = 0; row < 3; ++row) {
    double moved = nifti.Get(Nifti::kQoffset, row);
    for (int axis = 0; axis < 3; ++axis) {
      const double pixel = nifti.Get(Nifti::kPixdim, axis + 1) * (axis == 2 ? flip : 1);
      moved += rotation[row][axis] * pixel * shift[axis];
    }
    nifti.Set(Nifti::kQoffset, row, moved);
  }
  for (int axis = 0; axis < 3; ++axis) {
    nifti.Set(Nifti::kPixdim, axis + 1, nifti.Get(Nifti::kPixdim, axis + 1) * step[axis]);
  }
  if (scale[0] != Rational{}) {  // when which slice was taken no longer applies
    for (const Nifti field :
         {Nifti::kSliceCode, Nifti::kSliceStart, Nifti::kSliceEnd, Nifti::kSliceDuration}) {
      nifti.Set(field, 0, 0);
    }
  }
}

// Texts that other programs parse as the file's layout, which they no longer describe.
bool StatesShape(const std::string& description) {
  return description.starts_with("{\"shape\":") || description.starts_with("shape=(") ||
         description.find("<OME") != std::string::npos;
}

}  // namespace

Metadata ScaleMetadata(const Metadata& metadata, const Scale& scale, const Index& output_shape) {
  Metadata out = metadata;
  out.exif = WithExifPixelSize(metadata.exif, output_shape[2], output_shape[1]);
  if (scale == Scale{}) return out;
  const double x = Value(scale[2]), y = Value(scale[1]);
  const bool only_aspect = out.resolution_unit == 0 && x == y;
  if (out.resolution && !only_aspect) {
    (*out.resolution)[0] *= x;
    (*out.resolution)[1] *= y;
  }
  if (StatesShape(out.description)) out.description.clear();
  if (!metadata.nifti.empty()) {
    NiftiParts parts = SplitNifti(metadata.nifti);
    ScaleNifti(parts.header, scale);
    out.nifti = parts.header.bytes() + parts.extensions;
  }
  return out;
}

}  // namespace tilery
