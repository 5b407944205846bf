// The fields of a NIfTI-1 or NIfTI-2 header, by name, whichever version it is. Internal to io.
//
// Source: nifti1.h and nifti2.h of the NIfTI data format working group.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tilery {

enum class Nifti {
  kDim,     // [8]: number of axes, then x, y, z, t, ...
  kPixdim,  // [8]
  kDatatype,
  kBitpix,
  kVoxOffset,
  kSlope,
  kInter,
  kCalMax,
  kCalMin,
  kQformCode,
  kSformCode,
  kQuatern,  // [3]: b, c, d
  kQoffset,  // [3]
  kSrow,     // [12]: three rows of the affine
  kSliceStart,
  kSliceEnd,
  kSliceCode,
  kSliceDuration,
  kToffset,
  kUnits,
  kIntentCode,
  kIntentP,  // [3]
  kDimInfo,
};

class NiftiHeader {
 public:
  static constexpr size_t kBytes1 = 348;
  static constexpr size_t kBytes2 = 540;

  struct Kind {
    int version = 0;  // 0: no NIfTI
    bool big_endian = false;
    bool pair = false;  // samples in a second file
  };
  // By the first bytes of a file; the magic is checked as far as `head` reaches.
  static Kind Recognise(std::span<const std::byte> head);

  // An empty NIfTI-1 header: one voxel of u8, no affine.
  NiftiHeader();
  // `bytes`: 348 or 540, in host order.
  explicit NiftiHeader(std::string bytes);
  // Bytes of a file to host order.
  static NiftiHeader FromFile(std::string bytes, bool big_endian);

  int version() const { return bytes_.size() == kBytes1 ? 1 : 2; }
  const std::string& bytes() const { return bytes_; }
  double Get(Nifti field, int index = 0) const;
  void Set(Nifti field, int index, double value);
  // The same header as NIfTI-2, for axes beyond 32767.
  NiftiHeader AsVersion2() const;

 private:
  std::string bytes_;
};

}  // namespace tilery
